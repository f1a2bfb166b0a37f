"""The README.md of a saved slim model, with the YAML head that the Hugging Face Hub reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from huggingface_hub.repocard import metadata_load
from huggingface_hub.repocard_data import EvalResult, ModelCardData

from sparing.core.paths import expanded
from sparing.core.record import Record
from sparing.core.rounding import rounded_up
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Run, machines_of
from sparing.layers.plan import Plan
from sparing.models import names
from sparing.report.estimates import interval_text
from sparing.report.prose import Prose
from sparing.slim.engines import has_onnx
from sparing.slim.state import Form
from sparing.slim.steps import OURS, Steps
from sparing.tasks import Task

LOADING = """```python
import sparing

model = sparing.load("model")
model.budget = 0.5  # a share of the dense FLOPs, as the frontier offers it
```"""
TUNED_LOADING = """```python
import sparing

model = sparing.load("model")  # at its final widths
wide = sparing.load("model/any-budget")  # all widths, not fine-tuned
wide.budget = 0.5  # a share of the dense FLOPs, as the frontier offers it
```"""
INT8_LOADING = """```python
from pathlib import Path

from sparing.export.folder import open_chain

chain = open_chain(Path("model/onnx-int8"))
logits, segments = chain(inputs)  # the tokenizer's tensors, by name
```"""
Row = tuple[str, ...]
prose = Prose("sparing.slim")
# The hub's names of our metrics, where they differ.
HUB_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
PIPELINES = {"tokens": "text-classification", "image": "image-classification"}


def model_card(run: Run, steps: Steps, source: str) -> str:
    """The model, its scores, its speed and how to load it, as Markdown.

    All scores are those of the whole test split. A table of times holds forms timed in turns.
    """
    table, task, form = RecordTable(run.records()), steps.task, steps.served()
    model = Path(source).name
    blocks = [
        f"---\n{_head(table, task, form, source)}\n---",
        f"# {model} on {task.name}, made faster",
        prose("made", model=model, plan=form.plan, exits=_exits(form.plan, task.classes)),
        *([] if form.good else [prose("not-good")]),
        *_scores(table),
        *_speeds(table, run, steps.engines.thread_count),
        "## How often answers change",
        _guarantee(table.all("disagreement_bound")[-1]),
        *_int8_guarantee(table),
        "## Inputs and labels",
        f"{_inputs(task)} Labels: {_labels(task)}.",
        "## Load it",
        TUNED_LOADING if steps.state.fine_tunes else LOADING,
        *([INT8_LOADING] if steps.state.int8 else []),
        "## Data",
        _data(task),
    ]
    return "\n\n".join(blocks) + "\n"


def _head(table: RecordTable, task: Task, form: Form, source: str) -> str:
    """The YAML head without its marks; unknown values are left out."""
    results = [
        EvalResult(
            task_type=PIPELINES.get(task.kind, "other"),
            dataset_type=task.name,
            dataset_name=task.name,
            dataset_split="test",
            metric_type=HUB_METRICS.get(str(record.labels["metric"]), str(record.labels["metric"])),
            metric_value=record.value,
        )
        for record in table.all("whole_score", arm=OURS)
    ]
    tags = ["sparing", "pruning", *(["early-exit"] if form.plan.stops else [])]
    head = ModelCardData(
        library_name="sparing",
        license=_license(source),
        tags=[*tags, *(["onnx"] if has_onnx() else [])],
        pipeline_tag=PIPELINES.get(task.kind),
        base_model=source if _is_hub_id(source) else None,
        metrics=[result.metric_type for result in results] or None,
        model_name=f"{Path(source).name} on {task.name}, made faster",
        eval_results=results or None,
    )
    return head.to_yaml()


def _is_hub_id(source: str) -> bool:
    """Whether a model's source is "owner/name" on the hub, and not a path of this machine."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", source)) and not (
        source.startswith(".") or expanded(source).exists()
    )


def _license(source: str) -> str | None:
    """The licence that the card of the source states, where it has one."""
    path = expanded(source) / "README.md"
    if source in names() or not path.is_file():
        return None
    try:
        stated = (metadata_load(path) or {}).get("license")
    except Exception:  # damaged YAML states no licence
        return None
    return stated if isinstance(stated, str) else None


def _exits(plan: Plan, classes: int) -> str:
    if not plan.stops:
        return "all inputs run all of them"
    if plan.lets_all_leave(classes):
        return f"all inputs but exact ties exit after layer {plan.stops[0]}"
    sure = "largest class probability" if plan.confidence == "softmax" else "learned confidence"
    layers = ", ".join(map(str, plan.stops))
    return f"an input exits after layer {layers} when its {sure} is above {plan.threshold:g}"


def _scores(table: RecordTable) -> Iterator[str]:
    """Every model's score on the whole test split; empty before they were evaluated there."""
    scores = table.all("whole_score", primary=True)
    if not scores:
        return
    yield f"## Scores on all {scores[0].count:,} test inputs"
    heads = ("model", str(scores[0].labels["metric"]), prose("difference"))
    yield _table(heads, [_score_row(table, score) for score in scores])


def _score_row(table: RecordTable, score: Record) -> Row:
    arm = str(score.labels["arm"])
    gap = table.find("whole_difference", primary=True, arm=arm)
    words = interval_text(gap, lambda value: f"{100 * value:+.1f}") if gap else ""
    return arm, f"{score.value:.4f}", words


def _table(heads: Row, rows: Sequence[Row]) -> str:
    lines = (heads, ("---",) * len(heads), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _speeds(table: RecordTable, run: Run, threads: int) -> Iterator[str]:
    """One table for each step and batch size: its forms were timed in turns, input by input."""
    means = table.all("latency_ms", of="mean")
    machines = machines_of(run.config)
    for cell, batch in dict.fromkeys((mean.cell, mean.labels["batch"]) for mean in means):
        together = [m for m in means if (m.cell, m.labels["batch"]) == (cell, batch)]
        int8 = all(str(mean.labels["arm"]).endswith("int8") for mean in together)
        yield f"## Speed{' in INT8' if int8 else ''}, batch {batch}"
        heads = ("model", "engine", "milliseconds", prose("speed"))
        yield _table(heads, [_speed_row(table, mean) for mean in together])
        machine = machines.get(together[0].machine) or run.config["machine"]
        busy = table.disturbance(together[0])
        yield prose(
            "timed",
            cpu=machine.get("cpu") or "unknown",
            threads=threads,
            count=together[0].count,
            commit=run.config["commit"],
            busy=f" The machine was busy: {busy}." if busy else "",
        )


def _speed_row(table: RecordTable, mean: Record) -> Row:
    labels = {name: mean.labels[name] for name in ("arm", "engine", "batch")}
    speed = table.find("speed_up", **labels)
    factor = interval_text(speed, "{:.2f}".format) if speed else "1"
    return str(labels["arm"]), str(labels["engine"]), f"{mean.value:.3g}", factor


def _guarantee(bound: Record) -> str:
    """The bound on answers that differ from the dense model's, with its evidence.

    If the threshold was chosen on the same rows, they bound only the chosen rate.
    """
    keeps_rate = bool(bound.labels.get("kept"))
    at_most = (
        float(str(bound.labels["epsilon"])) if keeps_rate else rounded_up(bound.value or 0.0, 3)
    )
    which = ", which its threshold was chosen on," if keeps_rate else ""
    return _bound("bound", bound, rate=f"{100 * at_most:g}%", which=which)


def _bound(key: str, bound: Record, **values: object) -> str:
    """A text about a bound, with its confidence and its counts."""
    sure, seen = f"{1 - float(str(bound.labels['delta'])):g}", bound.labels["disagreements"]
    return prose(key, sure=sure, seen=seen, count=bound.count, **values)


def _int8_guarantee(table: RecordTable) -> Iterator[str]:
    """The INT8 form and its bound; empty without an INT8 form."""
    trial = table.find("int8_trial", arm=f"{OURS} int8", chosen=True)
    bound = table.find("int8_disagreement_bound")
    if trial is None or bound is None or bound.value is None:
        return
    trained = ", distilled with INT8 rounding" if trial.labels.get("trained") else ""
    short = "" if trial.labels.get("good") else " It loses more than the floor allows."
    float32 = table.find("disagreement_bound", kept=True)
    seen = ", which its threshold was chosen on in float32," if float32 else ""
    settings, rate = f"{trial.labels['settings']}{trained}", f"{rounded_up(bound.value, 3):.1%}"
    yield _bound("int8-bound", bound, settings=settings, short=short, rate=rate, which=seen)


def _inputs(task: Task) -> str:
    if task.kind == "image":
        return f"Images of {task.image_size} × {task.image_size} pixels, {task.channels} channels."
    return f"The longest input has {task.tokens:,} tokens."


def _labels(task: Task) -> str:
    shown = (" ".join(label.split()) for label in task.labels)
    return ", ".join(f"{number} is {label!r}" for number, label in enumerate(shown))


def _data(task: Task) -> str:
    """The source of the data; a path of this machine is not shown."""
    path = task.source.startswith(("/", "~", ".")) or os.path.exists(task.source)
    subset = " A subset of what was published." if task.subset else ""
    return f"{'Own files' if path else task.source}; licence: {task.licence}.{subset}"
