"""The tables of the Linformer study that come from trainings and from the clock."""

from __future__ import annotations

from functools import partial

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE, share_text, value_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.linformer.page import prose
from sparing_papers.long_range import DENSE
from sparing_papers.long_range.page.lookups import (
    arms,
    difference,
    mean,
    named,
    numbers,
    tasks,
)
from sparing_papers.long_range.page.tables import points_text, ratio_text, score_blocks, score_text

SLICED = "linformer, sliced"
GUESSING, ELSEWHERE = "guessing", "other domains"
SUBJECTS = {"model": "the whole encoder", "core": "attention alone, one layer"}
ARM = Column[str]("variant", str)


def training_blocks(run: Run) -> list[Block]:
    """Scores at the trained length, at longer ones, by form and in other domains."""
    swapped = named(run, "length_score", "task", question="pretrained")
    return [
        *score_blocks(run, "longer", "At the length of training", prose("trained")),
        *(_lengths(run, task) for task in tasks(run, "longer")),
        *(_swapped(run, task) for task in swapped),
        *_sharing(run),
        *(_domains(run, task) for task in tasks(run, "shift") if _domain_names(run, task)),
    ]


def _lost(run: Run, name: str, head: str, **labels: Label) -> list[Column[str]]:
    """What a variant loses, and how much more than dense attention does."""
    return [
        Column(f"{head}, points", lambda arm: points_text(mean(run, name, arm=arm, **labels))),
        Column(
            "less what softmax loses",
            lambda arm: points_text(difference(run, name, arm=arm, **labels)),
        ),
    ]


def _lengths(run: Run, task: str) -> Block:
    """Scores by length, the difference from softmax behind, and what is lost on the way."""
    factors = [int(factor) for factor in run.config.get("factors") or []]
    at: dict[str, Label] = {"question": "longer", "task": task}

    def cell(factor: int, arm: str) -> str:
        if arm == GUESSING:
            return share_text(run.table.find("length_chance", factor=factor, **at))
        return score_text(run, "length_score", arm=arm, factor=factor, **at)

    scores = [Column(f"{f} n" if f > 1 else "n", partial(cell, f)) for f in factors]
    lost = _lost(run, "length_drop", f"lost from n to {factors[-1]} n", factor=factors[-1], **at)
    lengthened = arms(run, "longer", "length_score")
    rows = [arm for arm in lengthened if mean(run, "length_score", arm=arm, factor=1, **at)]
    tokens = (run.config.get("tasks") or {}).get(task, {}).get("tokens")
    title, explain = f"Longer than trained: {task}", prose("lengths", tokens=tokens)
    return table(f"longer-{task}", title, explain, [*rows, GUESSING], [ARM, *scores, *lost])


def _swapped(run: Run, task: str) -> Block:
    """The pretrained encoder, distilled on short inputs: scores by length."""
    at: dict[str, Label] = {"question": "pretrained", "task": task}
    lengths = numbers(run, "length_score", "tokens", **at)

    def cell(tokens: int, arm: str) -> str:
        return score_text(run, "length_score", arm=arm, stage="warm", tokens=tokens, **at)

    columns = [
        Column[str]("variant", lambda arm: SLICED if arm == "linformer" else arm),
        *(Column(f"{tokens:,} tokens", partial(cell, tokens)) for tokens in lengths),
    ]
    counts = sorted({record.count for record in run.table.all("length_score", **at)})
    explain = prose(
        "swapped",
        cut=_cut_to(run, task),
        count=" to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1]))),
        longest=lengths[-1],
    )
    title = f"Longer than distilled: a pretrained encoder on {task}"
    rows = arms(run, "pretrained", "length_score")
    return table(f"swapped-{task}", title, explain, rows, columns)


def _cut_to(run: Run, task: str) -> str:
    """How long the inputs were that the swapped encoders were distilled on."""
    swapped = run.config["identity"].get("swapped") or {}
    tokens = swapped.get("task_options", {}).get(task, {}).get("max_tokens")
    return f", cut to {tokens:,} tokens" if tokens else ""


def _sharing(run: Run) -> list[Block]:
    forms = (run.config.get("forms") or {}).items()
    named_forms = [f"{name.partition(', ')[2]}: {_options(form)}" for name, form in forms]
    others = f"; the others: {'; '.join(named_forms)}" if named_forms else ""
    trained_on = (run.config.get("tasks") or {}).values()
    usual = next((str(of["slots"]) for of in trained_on if of.get("slots")), "?")
    explain = prose("sharing", usual=usual, others=others)
    return score_blocks(run, "sharing", "Sharing, and how many slots", explain)


def _options(form: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in form.items()) if isinstance(form, dict) else ""


def _domain_names(run: Run, task: str) -> list[str]:
    names = named(run, "domain_score", "domain", question="shift", task=task)
    return [name for name in names if name != ELSEWHERE]


def _domains(run: Run, task: str) -> Block:
    """Scores at home and elsewhere."""
    at: dict[str, Label] = {"question": "shift", "task": task}

    def cell(domain: str, arm: str) -> str:
        return score_text(run, "domain_score", arm=arm, domain=domain, **at)

    columns = [
        ARM,
        Column[str](task, lambda arm: share_text(mean(run, "score", arm=arm, **at))),
        *(Column(domain, partial(cell, domain)) for domain in _domain_names(run, task)),
        *_lost(run, "domain_drop", f"lost in {ELSEWHERE}", domain=ELSEWHERE, **at),
    ]
    rows = [arm for arm in arms(run, "shift") if mean(run, "score", arm=arm, **at)]
    from_nothing = task in (run.config.get("tasks") or {})
    how = prose("domains-trained", task=task)
    if not from_nothing:
        how = prose("domains-pretrained", task=task)
    key = f"shift-{task.replace(', ', '-')}"
    return table(key, "Another domain", prose("domains", how=how), rows, columns)


def cost_blocks(run: Run) -> list[Block]:
    """Time and memory by length, and what was not run."""
    blocks = [*(_cost(run, subject) for subject in SUBJECTS), _not_run(run)]
    return [block for block in blocks if block.rows]


def _cost(run: Run, subject: str) -> Block:
    def rows_text(tokens: int) -> str:
        plan = run.table.find("predicted_s", subject=subject, tokens=tokens)
        return "" if plan is None else str(plan.labels["batch"])

    columns = [
        Column[int]("tokens in a row", "{:,}".format),
        Column[int]("rows", rows_text),
        *(
            Column(a, partial(_cost_text, run, subject, a))
            for a in named(run, "predicted_s", "arm")
        ),
    ]
    total = (run.config.get("cost") or {}).get("tokens", 0)
    lengths = numbers(run, "predicted_s", "tokens", subject=subject)
    title = f"Time and memory: {SUBJECTS[subject]}"
    return table(f"cost-{subject}", title, prose("cost", total=total), lengths, columns)


def _cost_text(run: Run, subject: str, arm: str, tokens: int) -> str:
    at: dict[str, Label] = {"subject": subject, "tokens": tokens, "arm": arm}
    time = value_text(
        run.table.find("latency_ms", **at), lambda value: wording.duration(value / 1e3)
    )
    if time == NONE and run.table.matching("not_run", {**at, "of": "time"}):
        time = "not run"
    ratio = NONE if arm == DENSE else ratio_text(run.table.find("latency_ratio", **at))
    peak = value_text(run.table.find("peak_bytes", **at), wording.size_of_bytes)
    return "; ".join(part for part in (time, ratio, peak) if part != NONE) or NONE


def _not_run(run: Run) -> Block:
    columns = (
        Column[Record]("variant", lambda r: str(r.labels["arm"])),
        Column[Record]("of", lambda r: f"{r.labels['of']}, {SUBJECTS[str(r.labels['subject'])]}"),
        Column[Record]("tokens in a row", lambda r: f"{r.labels['tokens']:,}"),
        Column[Record]("why", lambda r: str(r.labels["why"])),
    )
    return table("not-run", "Not run", prose("not-run"), run.table.matching("not_run", {}), columns)


def ratios(run: Run) -> list[Record]:
    """Linformer's times over fused softmax's, whole encoders, at the longest lengths first."""
    records = run.table.all("latency_ratio", subject="model")
    ours = [r for r in records if str(r.labels["arm"]).startswith("linformer, k")]
    return sorted(ours, key=lambda r: -int(r.labels["tokens"] or 0))
