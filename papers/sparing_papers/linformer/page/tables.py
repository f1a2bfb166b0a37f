"""The tables of the Linformer study that come from trainings and from the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparing.core.record import Label, Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing_papers.long_range.page.results import DENSE, LongResults
from sparing_papers.long_range.page.tables import (
    NONE,
    points_text,
    ratio_text,
    score_blocks,
    score_text,
)

SLICED = "linformer, sliced"

ELSEWHERE = "other domains"
SUBJECTS = {"model": "the whole encoder", "core": "attention alone, one layer"}


def training_blocks(results: LongResults) -> list[Block]:
    """Scores at the trained length, at longer ones, by form and in other domains."""
    return [
        *score_blocks(
            results,
            "longer",
            "At the length of training",
            "Every arm on the test split of its task.",
        ),
        *(_lengths(results, task) for task in results.tasks("longer")),
        *_swapped(results),
        *_sharing(results),
        *_domains(results),
    ]


def _lengths(results: LongResults, task: str) -> Block:
    """Scores by length, the difference from softmax behind, and what is lost on the way."""
    factors = [int(each) for each in results.run.config.get("factors") or []]
    here: dict[str, Label] = {"question": "longer", "task": task}
    rows = []
    for arm in results.arms("longer", "length_score"):
        labels: dict[str, Label] = {**here, "arm": arm}
        if results.mean("length_score", **labels, factor=1) is None:
            continue
        cells = [arm]
        for factor in factors:
            text = score_text(results.mean("length_score", **labels, factor=factor))
            gap = results.difference("length_score", {**labels, "factor": factor})
            cells.append(text if gap is None else f"{text}; {points_text(gap)}")
        longest = {**labels, "factor": factors[-1]}
        cells.append(points_text(results.mean("length_drop", **longest)))
        cells.append(points_text(results.difference("length_drop", longest)))
        rows.append(tuple(cells))
    guessing = [results.find("length_chance", **here, factor=factor) for factor in factors]
    rows.append(("guessing", *(score_text(each) for each in guessing), NONE, NONE))
    names = [f"{factor} n" if factor > 1 else "n" for factor in factors]
    last = f"lost from n to {factors[-1]} n"
    heads = ("arm", *names, f"{last}, points", "less what softmax loses")
    tokens = (results.run.config.get("tasks") or {}).get(task, {}).get("tokens")
    explain = (
        f"n is {tokens} tokens; nothing is trained further. Behind each score the difference from "
        "softmax at the same length, in points, with its 95 % interval over seeds. Position "
        "embeddings are interpolated for every arm alike. A projection is sliced where it was "
        "built for the longest input and trained on rows up to n (columns beyond are as drawn), "
        "or interpolated along the tokens and scaled so that a constant sequence keeps its slots. "
        "Guessing is the most frequent answer at that length."
    )
    return Block(f"longer-{task}", f"Longer than trained: {task}", explain, heads, tuple(rows))


def _swapped(results: LongResults) -> list[Block]:
    """The pretrained encoder, distilled on short inputs: scores by length."""
    judged = list(results.all("length_score", question="pretrained"))
    blocks = []
    for task in dict.fromkeys(str(r.labels["task"]) for r in judged):
        own = [r for r in judged if r.labels["task"] == task]
        lengths = sorted({int(r.labels["tokens"] or 0) for r in own})
        here: dict[str, Label] = {"question": "pretrained", "task": task}
        rows = []
        for arm in results.arms("pretrained", "length_score"):
            cells = [SLICED if arm == "linformer" else arm]
            for tokens in lengths:
                labels: dict[str, Label] = {**here, "arm": arm, "stage": "warm", "tokens": tokens}
                gap = results.difference("length_score", labels)
                text = score_text(results.mean("length_score", **labels))
                cells.append(text if gap is None else f"{text}; {points_text(gap)}")
            rows.append(tuple(cells))
        explain = (
            "The pretrained encoder fine-tuned and every layer's attention swapped and distilled "
            f"on the same inputs{_cut_to(results, task)}; then {_filled(own, lengths)}, cut to "
            "each length, so that no row is padded. Its positions were trained to all of them. "
            "Behind each score the difference from softmax, trained on as long, with its 95 % "
            "interval over seeds. "
            "Linformer's projections are sliced (columns beyond are as they were drawn) or "
            "interpolated. Its pooled form has a slot for every few tokens, and more slots on "
            "longer inputs; with as many slots its stretches grow instead."
        )
        heads = ("arm", *(f"{tokens:,} tokens" for tokens in lengths))
        name = f"Longer than distilled: a pretrained encoder on {task}"
        blocks.append(Block(f"swapped-{task}", name, explain, heads, tuple(rows)))
    return blocks


def _filled(judged: Sequence[Record], lengths: Sequence[int]) -> str:
    """Which test inputs are read, and how many."""
    counts = sorted({r.count for r in judged})
    told = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{told} test inputs of {lengths[-1]:,} tokens and more"


def _cut_to(results: LongResults, task: str) -> str:
    """How long the inputs were that the encoder's copies were distilled on."""
    swapped = results.run.config["identity"].get("swapped") or {}
    tokens = swapped.get("task_options", {}).get(task, {}).get("max_tokens")
    return f", cut to {tokens:,} tokens" if tokens else ""


def _sharing(results: LongResults) -> list[Block]:
    forms = results.run.config.get("forms") or {}
    told = "; ".join(f"{name.partition(', ')[2]}: {_options(own)}" for name, own in forms.items())
    tasks = (results.run.config.get("tasks") or {}).values()
    usual = next((str(facts.get("slots")) for facts in tasks if facts.get("slots")), "?")
    explain = (
        f"Linformer with other sharing of its matrices and other numbers of slots. The usual form "
        f"has k = {usual} and one matrix for keys and one for values in each layer (headwise)"
        + (f"; the others: {told}." if told else ".")
    )
    return score_blocks(results, "sharing", "Sharing, and how many slots", explain)


def _options(own: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in own.items()) if isinstance(own, dict) else ""


def _domains(results: LongResults) -> list[Block]:
    """Scores at home and elsewhere."""
    found = []
    for task in results.tasks("shift"):
        here: dict[str, Label] = {"question": "shift", "task": task}
        listed = (str(r.labels["domain"]) for r in results.all("domain_score", **here))
        domains = [each for each in dict.fromkeys(listed) if each != ELSEWHERE]
        if not domains:
            continue
        rows = []
        for arm in results.arms("shift"):
            labels: dict[str, Label] = {**here, "arm": arm}
            if results.mean("score", **labels) is None:
                continue
            cells = [arm, score_text(results.mean("score", **labels))]
            for domain in domains:
                there: dict[str, Label] = {**labels, "domain": domain}
                text = score_text(results.mean("domain_score", **there))
                gap = results.difference("domain_score", there)
                cells.append(text if gap is None else f"{text}; {points_text(gap)}")
            everywhere: dict[str, Label] = {**labels, "domain": ELSEWHERE}
            cells.append(points_text(results.mean("domain_drop", **everywhere)))
            cells.append(points_text(results.difference("domain_drop", everywhere)))
            rows.append(tuple(cells))
        lost = f"lost in {ELSEWHERE}, points"
        heads = ("arm", task, *domains, lost, "less what softmax loses")
        how = f"Trained on {task}, asked of texts from elsewhere, in the words of {task}."
        if task not in (results.run.config.get("tasks") or {}):
            how = f"A pretrained encoder ({task} and distilled), asked of texts from elsewhere."
        explain = (
            f"{how} Behind each score the difference from softmax there, in points. Sentences on "
            "films are of the same domain, and what they lose comes of being short; the last "
            "columns are means over products and phones, which are short too."
        )
        name = task.replace(", ", "-")
        found.append(Block(f"shift-{name}", "Another domain", explain, heads, tuple(rows)))
    return found


def cost_blocks(results: LongResults) -> list[Block]:
    """Time and memory by length, and what was not run."""
    found = [_cost(results, subject) for subject in SUBJECTS]
    left = _left_out(results)
    return [block for block in (*found, left) if block.rows]


def _cost(results: LongResults, subject: str) -> Block:
    arms = list(dict.fromkeys(str(r.labels["arm"]) for r in results.all("predicted_s")))
    made = [*results.all("predicted_s", subject=subject)]
    rows = []
    for tokens in sorted({int(r.labels["tokens"] or 0) for r in made}):
        batch = next(str(r.labels["batch"]) for r in made if r.labels["tokens"] == tokens)
        cells = [f"{tokens:,}", batch]
        cells += [_of_arm(results, subject, tokens, arm) for arm in arms]
        rows.append(tuple(cells))
    total = (results.run.config.get("cost") or {}).get("tokens", 0)
    explain = (
        f"One forward call on {total:,} tokens in all: seconds, the ratio to fused softmax in "
        "turns with it (below 1 is faster) with its 95 % interval, and memory at the peak in a "
        "process of its own. eager writes the whole matrix down, as the paper's baseline does."
    )
    heads = ("tokens in a row", "rows", *arms)
    title = f"Time and memory: {SUBJECTS[subject]}"
    return Block(f"cost-{subject}", title, explain, heads, tuple(rows))


def _of_arm(results: LongResults, subject: str, tokens: int, arm: str) -> str:
    here: dict[str, Label] = {"subject": subject, "tokens": tokens, "arm": arm}
    time, ratio, peak = (
        results.find(name, **here) for name in ("latency_ms", "latency_ratio", "peak_bytes")
    )
    parts = []
    if time is not None:
        parts.append(wording.duration(float(time.value or 0) / 1e3))
    elif results.find("not_run", **here, of="time") is not None:
        parts.append("not run")
    if ratio is not None and arm != DENSE:
        parts.append(ratio_text(ratio))
    if peak is not None:
        parts.append(wording.size_of_bytes(float(peak.value or 0)))
    return "; ".join(parts) or NONE


def _left_out(results: LongResults) -> Block:
    rows = tuple(_skipped(r) for r in results.all("not_run"))
    explain = (
        "Predicted from arithmetic and the rate of one short row, measured on the same machine, "
        "and not attempted."
    )
    heads = ("arm", "of", "tokens in a row", "why")
    return Block("not-run", "Not run", explain, heads, tuple(dict.fromkeys(rows)))


def _skipped(record: Record) -> tuple[str, ...]:
    labels = record.labels
    of = f"{labels['of']}, {SUBJECTS[str(labels['subject'])]}"
    return str(labels["arm"]), of, f"{labels['tokens']:,}", str(labels["why"])


def ratios(results: LongResults) -> Iterator[Record]:
    """Linformer's times over fused softmax's, whole encoders, at the longest lengths first."""
    found = [
        r
        for r in results.all("latency_ratio", subject="model")
        if str(r.labels["arm"]).startswith("linformer, k")
    ]
    yield from sorted(found, key=lambda r: -int(r.labels["tokens"] or 0))
