"""The README.md of a saved slim model, with the YAML head that the Hugging Face Hub reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from huggingface_hub.repocard import metadata_load
from huggingface_hub.repocard_data import EvalResult, ModelCardData

from sparing.core.errors import DataError
from sparing.core.paths import expanded
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Run, machines_of
from sparing.models import names
from sparing.report.estimates import interval_text
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.promise import (
    dense_words,
    form_name,
    form_of,
    form_words,
    guarantee,
    promise_of,
    prose,
    torch_program,
)
from sparing.slim.steps import OURS, Steps
from sparing.tasks import Task

LOADING = """```python
from pathlib import Path

from sparing.export.folder import open_chain

chain = open_chain(Path("model/serve"))
logits, exits = chain(inputs)  # the tokenizer's tensors, by name
```"""
TORCH = '"model/torch"'
Row = tuple[str, ...]
# The hub's names of our metrics, where they differ.
HUB_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
PIPELINES = {"tokens": "text-classification", "image": "image-classification"}
BY_ANSWER = {
    "vector": "feature-extraction",
    "entities": "token-classification",
    "span": "question-answering",
}


def model_card(run: Run, steps: Steps, source: str) -> str:
    """The guarantee first, then scores, speed, the frontier and how to load it, as Markdown.

    All scores are those of the whole test split. A table of times holds forms timed in turns.
    """
    table, task, form = RecordTable(run.records()), steps.task, steps.served()
    model, plan, device = Path(source).name, steps.plan(), steps.options.device
    promise = promise_of(table)
    if promise is None:
        raise DataError(f"{run.folder} has no certified form: an earlier step has failed")
    lead, meaning = guarantee(promise)
    blocks = [
        f"---\n{_head(table, task, form, source)}\n---",
        f"# {model} on {task.name}, made faster",
        f"**{lead}.** {meaning}",
        prose("made", model=model, plan=plan, form=form_words(form)),
        "## The frontier",
        _frontier(table),
        *_scores(table),
        *_speeds(table, run, steps.engines.thread_count),
        "## Inputs and labels",
        f"{_inputs(task)} {_answers(task)}",
        "## Load it",
        *([LOADING] if form.engine != "eager" else []),
        *([words] if (words := dense_words(form)) else []),
        f"In PyTorch:\n\n```python\n{torch_program(form, device, TORCH)}\n```",
        "## Data",
        _data(task),
    ]
    return "\n\n".join(blocks) + "\n"


def _head(table: RecordTable, task: Task, form: Candidate, source: str) -> str:
    """The YAML head without its marks; unknown values are left out."""
    results = [
        EvalResult(
            task_type=_pipeline(task) or "other",
            dataset_type=task.name,
            dataset_name=task.name,
            dataset_split="test",
            metric_type=HUB_METRICS.get(str(record.labels["metric"]), str(record.labels["metric"])),
            metric_value=record.value,
        )
        for record in table.all("whole_score", **form.labels)
    ]
    tags = ["sparing", *(["pruning"] if form.model == OURS else [])]
    tags += ["early-exit"] if form.exits else []
    tags += [form.engine.replace("runtime", "")] if form.engine != "eager" else []
    head = ModelCardData(
        library_name="sparing",
        license=_license(source),
        tags=tags,
        pipeline_tag=_pipeline(task),
        base_model=source if _is_hub_id(source) else None,
        metrics=[result.metric_type for result in results] or None,
        model_name=f"{Path(source).name} on {task.name}, made faster",
        eval_results=results or None,
    )
    return head.to_yaml()


def _pipeline(task: Task) -> str | None:
    """What the hub calls such a task."""
    return BY_ANSWER.get(task.answer) or PIPELINES.get(task.kind)


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


def _frontier(table: RecordTable) -> str:
    """The certified points: at most this share of changed answers, the form, and its speed."""
    rows = []
    for point in table.matching("certified_speed", {}):
        share = f"{100 * float(str(point.labels['epsilon'])):g} %"
        if point.value is None:
            rows.append((share, prose("none"), "1"))
            continue
        rows.append((share, form_name(form_of(point)), f"{point.value:.2f}"))
    return _table((prose("changed"), "form", prose("speed-short")), rows)


def _scores(table: RecordTable) -> Iterator[str]:
    """Every model's score on the whole test split; empty before they were evaluated there."""
    scores = table.all("whole_score", primary=True)
    if not scores:
        return
    yield f"## Scores on all {scores[0].count:,} test inputs"
    heads = ("model", str(scores[0].labels["metric"]), prose("difference"))
    yield _table(heads, [_score_row(table, score) for score in scores])


def _score_row(table: RecordTable, score: Record) -> Row:
    form = form_of(score)
    gap = table.find("whole_difference", primary=True, **form.labels)
    words = interval_text(gap, lambda value: f"{100 * value:+.1f}") if gap else ""
    return form_name(form), f"{score.value:.4f}", words


def _table(heads: Row, rows: Sequence[Row]) -> str:
    lines = (heads, ("---",) * len(heads), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _speeds(table: RecordTable, run: Run, threads: int) -> Iterator[str]:
    """One table for each step and batch size: its forms were timed in turns, input by input."""
    means = table.all("latency_ms", of="mean")
    machines = machines_of(run.config)
    for cell, batch in dict.fromkeys((mean.cell, mean.labels["batch"]) for mean in means):
        together = [m for m in means if (m.cell, m.labels["batch"]) == (cell, batch)]
        yield f"## Speed, batch {batch}"
        heads = ("form", "milliseconds", prose("speed"))
        yield _table(heads, [_speed_row(table, mean) for mean in together])
        machine = machines.get(together[0].machine) or run.config["machine"]
        on_device = "device" in (run.config.get("identity") or {})  # else the forms ran on the CPU
        busy = table.disturbance(together[0])
        yield prose(
            "timed",
            cpu=machine.get("accelerator" if on_device else "cpu") or "unknown",
            threads=threads,
            count=together[0].count,
            commit=run.config["commit"],
            busy=f" The machine was busy: {busy}." if busy else "",
        )


def _speed_row(table: RecordTable, mean: Record) -> Row:
    form = form_of(mean)
    speed = table.find("speed_up", batch=mean.labels["batch"], **form.labels)
    factor = interval_text(speed, "{:.2f}".format) if speed else "1"
    return form_name(form), f"{mean.value:.3g}", factor


def _inputs(task: Task) -> str:
    if task.kind == "image":
        return f"Images of {task.image_size} × {task.image_size} pixels, {task.channels} channels."
    return f"The longest input has {task.tokens:,} tokens."


def _answers(task: Task) -> str:
    if task.answer == "vector":
        return f"A vector has {task.classes:,} numbers."
    if task.answer == "number":
        return "The answer is one number."
    if task.answer == "span":
        return "The answer is a segment of the second text."
    return f"Labels: {_labels(task)}."


def _labels(task: Task) -> str:
    shown = (" ".join(label.split()) for label in task.labels)
    return ", ".join(f"{number} is {label!r}" for number, label in enumerate(shown))


def _data(task: Task) -> str:
    """The source of the data; a path of this machine is not shown."""
    path = task.source.startswith(("/", "~", ".")) or os.path.exists(task.source)
    subset = " A subset of what was published." if task.subset else ""
    return f"{'Own files' if path else task.source}; licence: {task.licence}.{subset}"
