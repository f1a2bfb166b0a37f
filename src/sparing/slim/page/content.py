"""The text of the page of ``slim``: headline, notices, training, loading and facts."""

from __future__ import annotations

import json

from sparing.report import blocks, wording
from sparing.report.blocks import Block
from sparing.report.facts import facts as run_facts
from sparing.report.run import Run
from sparing.report.sections import Snippet
from sparing.slim.page import lookups, prose
from sparing.slim.page.lookups import DENSE, OURS, STATIC
from sparing.slim.page.wording import per_cent, times

FIXED_WIDTH = "fixed-width"  # fine-tuned at fixed width, in the names of variants
TRAININGS = {
    DENSE: "fine-tuning the dense model",
    OURS: "distilling the slim model",
    f"{OURS} {FIXED_WIDTH}": "fine-tuning the chosen plan at fixed width",
    f"{DENSE} continued": "training the dense baseline longer",
    STATIC: "distilling the static pruned model",
}


def headline(run: Run) -> list[str]:
    """The few facts above the verdict."""
    config = run.config
    task, model = config["task"], config["model"].get("name")
    facts = ["slim", f"{model} on {task.get('name', 'a task')}" if model else task.get("name")]
    if task.get("subset") is True:
        facts.append("a subset of the data")
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    return [" ".join(str(fact).split()) for fact in facts if fact]


def notices(run: Run) -> list[str]:
    """Warnings and limits of the numbers on this page."""
    notes = blocks.busy_notices(run)
    planned, missing = _planned(run), _missing(run)
    if missing:
        steps, names = wording.count_of(len(planned), "step"), wording.listing(missing)
        done = len(planned) - len(missing)
        notes.append(prose("incomplete", done=done, planned=steps, missing=names))
    if run.config.get("onnxruntime") is False:
        notes.append(prose("no-onnxruntime"))
    return [*notes, *_timed_notice(run), *blocks.data_notices(run)]


def _planned(run: Run) -> list[str]:
    options = lookups.options(run)
    steps = ["dense", "distil", "baseline", "survey", "choose", "calibrate"]
    steps += ["dense-continued"] if options.get("continue_dense") is True else []
    steps += ["fixed-width"] if lookups.option(run, "fixed_width_epochs", 0.0) else []
    steps += ["static"] if options.get("static_control") is True else []
    steps += [f"verify/batch-{batch}" for batch in lookups.batches(run)]
    int8 = options.get("int8") is True and run.config.get("onnxruntime") is True
    return steps + (["int8"] if int8 else [])


def _missing(run: Run) -> list[str]:
    """The planned steps that have not ended."""
    done = {record.cell for record in run.records if record.name == "cell"}
    return [cell for cell in _planned(run) if cell not in done]


def _timed_notice(run: Run) -> list[str]:
    examples = run.config["task"].get("examples")
    test = examples.get("test") if isinstance(examples, dict) else None
    limit = lookups.option(run, "timed_examples", float("inf"))
    if not isinstance(test, int) or limit >= test:
        return []
    scored_on_all = bool(run.table.all("whole_score"))
    return [prose("timed" if scored_on_all else "timed-and-scored", limit=limit, test=test)]


def training(run: Run) -> Block:
    """What it cost to make the slim model."""
    rows, total = [], 0.0
    for arm, words in TRAININGS.items():
        taken = [record.value or 0.0 for record in run.table.all("train_time_s", arm=arm)]
        counts = [record.value or 0.0 for record in run.table.all("train_examples", arm=arm)]
        if taken:
            total += sum(taken)
            seen = f"{sum(counts):,.0f}" if counts else "not recorded"
            tried = f", {len(taken)} attempts" if len(taken) > 1 else ""
            rows.append((words + tried, seen, wording.duration(sum(taken))))
    explain = prose("training" if rows else "no-training")
    if rows and run.table.value("train_time_s", arm=DENSE) is None:
        explain += f" {prose('dense-given')}"
    if len(rows) > 1:
        rows.append(("together", "", wording.duration(total)))
    heads = ("Step", "Examples seen", "Time")
    return Block("training", "What training took", explain, heads, tuple(rows))


def loading(run: Run) -> list[Snippet]:
    """How to use what was saved; nothing before the run came to its end."""
    if run.failed or _missing(run):
        return []
    trained = lookups.fixed_width(run)
    name = " ".join(blocks.name_of(run).split())
    folder = json.dumps(f"{name}/model", ensure_ascii=False)
    code = f"import sparing\n\nmodel = sparing.load({folder})\nlogits = model(**inputs).logits"
    points = trained or lookups.surveyed(run)
    front = sorted(point.cost_share for point in points if point.on_front)
    if front:
        budget = f"{min(1.0, front[len(front) // 2] + 0.005):.2f}"
        least = f"{front[0] + 0.005:.2f}"
        code += f"\n\nmodel.budget = {budget}  # any share of the dense FLOPs from {least} to 1"
    if trained:
        code += f"\n\nwide = sparing.load({json.dumps(f'{name}/model/any-budget')})  # all widths"
    words = ":" if trained else "; one checkpoint serves every budget:"
    snippets = [Snippet(f"The chosen plan in PyTorch{words}", code)]
    if run.config.get("onnxruntime") is True and lookups.final_plan(run):
        code = (
            "from pathlib import Path\n\nfrom sparing.export.folder import open_chain\n\n"
            f'chain = open_chain(Path({folder}) / "onnx")\n'
            "logits, segments = chain(inputs)  # and the segment after which each input exited"
        )
        words = "The same plan in ONNX Runtime, one file for each segment:"
        snippets.append(Snippet(words, code))
    return snippets


def facts(run: Run) -> list[tuple[str, str]]:
    """The target, then task, model, machine and versions."""
    options, epsilon = lookups.options(run), lookups.option(run, "epsilon", 0.0)
    threads, least = run.config.get("threads"), per_cent(lookups.floor(run))
    settings = {
        "target": f"{times(lookups.target(run))} at {least} of the dense score",
        "largest disagreement": f"at most {per_cent(epsilon)}" if epsilon else "",
        "widths tried": _shares(options.get("widths")),
        "tokens tried": _shares(options.get("tokens")),
        "seed": str(options.get("seed", "")),
        "timed with": wording.count_of(threads, "thread") if isinstance(threads, int) else "",
    }
    rest = (pair for pair in run_facts(run) if pair[0] != "baseline")
    return [*((key, value) for key, value in settings.items() if value), *rest]


def _shares(values: object) -> str:
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) for v in values):
        return ""
    return ", ".join(wording.share(value, 0) for value in values)
