"""The result of ``slim`` on disk: the model for any budget, its exported form, and its card."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.core.paths import expanded
from sparing.core.record import Record
from sparing.core.rounding import rounded_up
from sparing.core.scratch import scratch_beside
from sparing.core.writing import write_atomically
from sparing.experiment.owned import drop_folder, require_own
from sparing.experiment.run import Run
from sparing.export.folder import DESCRIPTION
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import Plan
from sparing.slim.engines import has_onnx
from sparing.slim.int8 import int8_folder
from sparing.slim.search.exits import dense_flops
from sparing.slim.state import State
from sparing.slim.steps import DENSE, OURS, Steps
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint

LOADING = """```python
import sparing

model = sparing.load("model")
model.budget = 0.5  # any share of the dense model's arithmetic that the frontier offers
```"""
POLISHED_LOADING = """```python
import sparing

model = sparing.load("model")  # the chosen widths
wide = sparing.load("model/any-budget")  # all widths, not polished
wide.budget = 0.5  # any share of the dense model's arithmetic that the frontier offers
```"""
LATER = (
    " Forms without milliseconds were timed later, beside a dense form that ran then: only their "
    "speeds compare with the rest."
)
ANY_BUDGET = "any-budget"
INT8 = "onnx-int8"
INT8_LOADING = f"""```python
from pathlib import Path

from sparing.export.folder import open_chain

chain = open_chain(Path("model/{INT8}"))
logits, segments = chain(inputs)  # the tokenizer's tensors, by name
```"""


def refuse_model_folder(model: str, folder: Path) -> None:
    """Raise ``UsageError`` where the result would be written over the user's model."""
    source = expanded(model)
    if source.is_dir() and source.resolve() == folder.resolve():
        raise UsageError(f"{folder} is the model itself: choose another folder for the result")


def save(steps: Steps, run: Run, source: str) -> Path:
    """Write ``model/`` beside the records, whole or not at all, and return it."""
    target = run.folder / "model"
    with scratch_beside(target) as part:
        state, plan, model = steps.state, steps.served().plan, steps.model()
        _set_frontier(steps, model, state.thresholds if state.fine_tunes else _front(state))
        if has_onnx():
            steps.engines.exported(model, plan, str(part.resolve() / "onnx"))
        _keep_int8(int8_folder(steps) or target / INT8, part / INT8)
        model.plan = plan
        write_pretrained(model, part)
        if state.fine_tunes:
            _save_any_budget(steps, state, part / ANY_BUDGET)
        if steps.task.tokenizer is not None:
            write_pretrained(steps.task.tokenizer, part)
        write_atomically(part / "README.md", model_card(run, steps, source))
        require_own(run.folder, ("model",))
        drop_folder(target)
        part.replace(target)
    return target


def _front(state: State) -> list[FrontierPoint]:
    return [point.to_frontier() for point in state.front]


def _set_frontier(steps: Steps, model: AdaptiveClassifier, points: Sequence[FrontierPoint]) -> None:
    """Store what plans of a model cost, all of it included, as shares of the dense FLOPs."""
    whole = float(dense_flops(model, steps.parts[0]).mean()) / steps.dense_flops
    model.set_frontier(points, whole)


def _save_any_budget(steps: Steps, state: State, folder: Path) -> None:
    """The model with all widths, which the chosen plan was cut from."""
    model = steps.models.adaptive()
    _set_frontier(steps, model, _front(state))
    if state.chosen is not None:
        model.plan = state.chosen.plan
    write_pretrained(model, folder)


def _keep_int8(source: Path, place: Path) -> None:
    """The chosen INT8 form, where there is one: segments and ``chain.json``."""
    if (source / DESCRIPTION).is_file():
        shutil.copytree(source, place)


def _leaving(plan: Plan, classes: int) -> str:
    if not plan.stops:
        return "all inputs run all of them"
    if plan.lets_all_leave(classes):
        return f"all inputs but exact ties leave after layer {plan.stops[0]}"
    sure = "largest class probability" if plan.confidence == "softmax" else "learned confidence"
    places = ", ".join(map(str, plan.stops))
    return f"an input leaves after layer {places} when its {sure} is above {plan.threshold:g}"


def model_card(run: Run, steps: Steps, source: str) -> str:
    """What the model is, how good and how fast, and how to load it, as Markdown."""
    records, task, plan = run.records(), steps.task, steps.served().plan
    bound = next(record for record in records if record.name == "disagreement_bound")
    width = f"{plan.heads[0]} heads and {plan.neurons[0]} neurons in each of {plan.layers} layers"
    leaves = _leaving(plan, task.classes)
    subset = " A subset of what was published." if task.subset else ""
    lines = [
        f"# {Path(source).name} on {task.name}, slimmed",
        "",
        f"Made by sparing from {Path(source).name} by ordering heads and neurons by importance and "
        f"distilling. It runs {width}; {leaves}.",
        "",
        "| form | engine | batch | milliseconds | speed over the fastest dense | "
        f"{task.metric} ({_scored_on(records)}) |",
        "| --- | --- | --- | --- | --- | --- |",
        *_rows(records),
        "",
        *_difference_lines(records),
        f"Machine: {run.config['machine'].get('cpu') or 'unknown processor'}, "
        f"{steps.engines.thread_count} thread; commit {run.config['commit']}. Intervals are 95 % "
        f"over test inputs.{LATER if _has_later(records) else ''}",
        "",
        _guarantee(bound),
        "",
        POLISHED_LOADING if steps.state.fine_tunes else LOADING,
        "",
        *_int8_lines(records),
        f"Data: {task.source}; licence: {task.licence}.{subset}",
        "",
    ]
    return "\n".join(lines)


def _guarantee(bound: Record) -> str:
    """How often it answers otherwise than the dense model, and how that is known.

    Rows that a threshold was chosen on bound only the rate that it was chosen for.
    """
    kept = bool(bound.labels.get("kept"))
    at_most = float(str(bound.labels["epsilon"])) if kept else rounded_up(bound.value or 0.0, 3)
    rate = f"{100 * at_most:g}%"
    which = ", which its threshold was chosen on," if kept else ""
    return (
        f"With confidence {1 - float(str(bound.labels['delta'])):g} at most {rate} of inputs like "
        f"those of the task are answered otherwise than by the dense model "
        f"({bound.labels['disagreements']} of {bound.count} held-out inputs{which} were)."
    )


def _int8_lines(records: list[Record]) -> list[str]:
    """What the INT8 form is, what it promises, and how to load it; nothing where there is none."""
    key = {"arm": f"{OURS} int8", "chosen": True}
    trial, bound = (
        _find(records, name, labels)
        for name, labels in (("int8_trial", key), ("int8_disagreement_bound", {}))
    )
    if trial is None or bound is None or bound.value is None:
        return []
    trained = ", distilled with its rounding" if trial.labels.get("trained") else ""
    short = "" if trial.labels.get("good") else " It loses more than the floor allows."
    float32 = _find(records, "disagreement_bound", {"kept": True})
    seen = ", which its threshold was chosen on in float32," if float32 else ""
    return [
        f"`{INT8}` is the same plan in INT8 for ONNX Runtime ({trial.labels['settings']}{trained})."
        f"{short} With confidence {1 - float(str(bound.labels['delta'])):g} at most "
        f"{rounded_up(bound.value, 3):.1%} of inputs, one at a time, are answered otherwise than "
        f"by the dense model ({bound.labels['disagreements']} of {bound.count}{seen} were).",
        "",
        INT8_LOADING,
        "",
    ]


def _rows(records: list[Record]) -> list[str]:
    rows = []
    for mean in _timed(records):
        key = {name: mean.labels[name] for name in ("arm", "engine", "batch")}
        speed = _find(records, "speed_up", key)
        factor = "1" if speed is None else _interval(speed)
        time = "" if _is_later(records, mean) else f"{mean.value:.3g}"
        rows.append(
            f"| {key['arm']} | {key['engine']} | {key['batch']} | {time} | {factor} | "
            f"{_score(records, key)} |"
        )
    return rows


def _timed(records: list[Record]) -> list[Record]:
    return [r for r in records if r.name == "latency_ms" and r.labels["of"] == "mean"]


def _is_later(records: list[Record], mean: Record) -> bool:
    """Whether a form was timed in another step than the dense forms of its batch size."""
    batch = mean.labels["batch"]
    first = next(
        r for r in _timed(records) if r.labels["batch"] == batch and r.labels["arm"] == DENSE
    )
    return mean.cell != first.cell


def _has_later(records: list[Record]) -> bool:
    return any(_is_later(records, mean) for mean in _timed(records))


def _whole(records: list[Record], name: str, arm: object) -> Record | None:
    return _find(records, name, {"arm": arm, "judged": True})


def _scored_on(records: list[Record]) -> str:
    """Which test inputs all scores of the table are of: the whole split, else those timed."""
    whole = _whole(records, "whole_score", DENSE)
    if whole is not None:
        return f"all {whole.count:,} test inputs"
    timed = next((r for r in records if r.name == "score" and r.labels["split"] == "test"), None)
    return f"{timed.count:,} timed test inputs" if timed is not None else "test"


def _score(records: list[Record], key: Mapping[str, object]) -> str:
    """A form's score on the inputs that the column is of; one table never mixes two samples."""
    found = _find(records, "score", key)
    if _whole(records, "whole_score", DENSE) is not None:
        eager_int8 = key["engine"] == "torch.ao"  # answers were kept of the chosen INT8 form alone
        found = None if eager_int8 else _whole(records, "whole_score", key["arm"])
    return "not measured" if found is None or found.value is None else f"{found.value:.4f}"


def _difference_lines(records: list[Record]) -> list[str]:
    """How far slim's scores are from the dense ones on the whole test split."""
    lines = []
    for arm in (OURS, f"{OURS} int8"):
        gap = _whole(records, "whole_difference", arm)
        if gap is not None and gap.value is not None and gap.interval is not None:
            low, high = (100 * end for end in gap.interval)
            lines.append(
                f"{arm} less dense on all {gap.count:,} test inputs: {100 * gap.value:+.1f} points "
                f"(90 % interval {low:+.1f} to {high:+.1f})."
            )
    return [*lines, ""] if lines else []


def _interval(record: Record) -> str:
    assert record.value is not None
    assert record.interval is not None
    return f"{record.value:.2f} ({record.interval[0]:.2f} to {record.interval[1]:.2f})"


def _find(records: list[Record], name: str, key: Mapping[str, object]) -> Record | None:
    return next((r for r in records if r.name == name and key.items() <= r.labels.items()), None)
