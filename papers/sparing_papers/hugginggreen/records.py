"""The records of a training of the HuggingGreen study: scores, energy by component, curves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from sklearn.metrics import f1_score

from sparing.core.record import Label, Record, measured
from sparing.experiment.cells.training import components_here, joules_in
from sparing.measure.energy import Component
from sparing.measure.machine import threads
from sparing.measure.windows import SUFFIX
from sparing.tasks import Task
from sparing.train import evaluate
from sparing.transfer.patching import selector_of
from sparing_papers.hugginggreen.options import Options
from sparing_papers.hugginggreen.train import (
    WARM_UP_STEPS,
    Arithmetic,
    Paid,
    selecting,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

IDLE_SECONDS = 5.0
INFERENCE_BATCH = 64
Scores = Callable[[Any, Task], dict[str, float]]


def class_scores(model: PreTrainedModel, task: Task) -> dict[str, float]:
    """Top-1, which equals micro-F1 with one class an image, and macro-F1."""
    answers = evaluate(model, task, "test")
    truth = task.test.labels.tolist()
    macro = f1_score(truth, answers.predictions, average="macro", zero_division=0)
    return {"accuracy": answers.accuracy, "macro_f1": float(macro)}


def score_records(
    model: PreTrainedModel, task: Task, labels: Mapping[str, Label], scores: Scores
) -> list[Record]:
    """Test scores; for a model that selects patches in evaluation also with every patch."""
    by_name, selector = scores(model, task), selector_of(model)
    selects = selector is not None and selector.selection.at_inference
    with selecting(model, at_inference=False):
        every = scores(model, task) if selects else {}
    by_name |= {f"{name}_of_all_patches": value for name, value in every.items()}
    return measured(labels, "score", len(task.test), **by_name)


def inference_energy(
    model: PreTrainedModel, task: Task, options: Options, labels: Mapping[str, Label]
) -> list[Record]:
    """Joules of a thousand predictions, in batches of 64 test images, by component."""
    device = next(model.parameters()).device
    size = min(INFERENCE_BATCH, len(task.test))
    batch = task.collate([task.test[index] for index in range(size)])
    pixels = batch["pixel_values"].to(device)
    model.eval()
    with threads(options.thread_count), torch.inference_mode():
        for _ in range(WARM_UP_STEPS):
            model(pixel_values=pixels)
        calls, start = 0, time.perf_counter()
        with options.energy_meter() as meter:
            while not calls or time.perf_counter() - start < options.inference_seconds:
                model(pixel_values=pixels)
                calls += 1
    per = calls * size / 1000
    return [
        energy_record("inference_energy_j", component, component.energy_j / per, labels)
        for component in meter.energy.components
    ]


def energy_record(
    name: str, component: Component, joules: float, labels: Mapping[str, Label]
) -> Record:
    """A component's energy and how it was obtained; the interval is that of its constant."""
    interval = None
    if component.interval is not None and component.energy_j > 0:
        low, high = component.interval
        scale = joules / component.energy_j
        interval = (low * scale, high * scale)
    about = {**labels, "component": component.name, "method": component.method}
    return Record(name, joules, "J", component.obtained, about, interval)


def idle_records(options: Options, labels: Mapping[str, Label]) -> list[Record]:
    """Watts of counters while nothing runs; empty if energy is estimated from busy seconds."""
    meter = options.energy_meter()
    if all(part.obtained == "estimated" for part in components_here(meter)):
        return []
    with meter:
        time.sleep(IDLE_SECONDS)
    return [
        replace(
            energy_record("idle_w", component, component.energy_j / meter.energy.window_s, labels),
            unit="W",
            interval=None,
        )
        for component in meter.energy.components
        if component.obtained != "estimated"
    ]


def training_records(paid: Paid, labels: Mapping[str, Label]) -> list[Record]:
    """Energy by component, seconds, steps, notes of the meter, and the curve."""
    records = [
        *measured(labels, "s", train_time_s=paid.time_s),
        *measured(labels, "", steps=float(paid.steps)),
        _curve(paid, labels),
    ]
    spent = paid.spent
    for component in paid.last.components:
        joules = spent.get(f"{component.name}{SUFFIX}")
        if joules is not None:
            records.append(energy_record("train_energy_j", component, joules, labels))
    if paid.counted is not None:
        records += _counted_records(paid.counted, labels)
    records += [
        Record("meter_note", None, "", "measured", {**labels, "told": note}) for note in paid.notes
    ]
    return records


def _counted_records(counted: Arithmetic, labels: Mapping[str, Label]) -> list[Record]:
    """FLOPs of the training and of one prediction, and the epochs."""
    return [
        Record("train_flops", counted.total, "FLOP", "modelled", dict(labels)),
        Record("image_flops", float(counted.image), "FLOP", "modelled", dict(labels)),
        Record("image_tokens", counted.tokens, "tokens", "modelled", dict(labels)),
        Record("epochs", float(len(counted.by_epoch)), "", "measured", dict(labels)),
    ]


def _curve(paid: Paid, labels: Mapping[str, Label]) -> Record:
    """Validation scores by epoch, with joules and FLOPs until then, earlier stages included."""
    before: dict[str, float] = {}
    for earlier in paid.before:
        for name, joules in joules_in(earlier.curve[-1]).items():
            before[name] = before.get(name, 0.0) + joules
    result, flops = paid.last.result, paid.counted.by_epoch if paid.counted else None
    curve = [
        {
            "epoch": entry["epoch"],
            "score": entry["validation_score"],
            "energy": {k: v + before.get(k, 0.0) for k, v in joules_in(entry).items()},
            "flops": flops[number] if flops else None,
        }
        for number, entry in enumerate(result.curve)
    ]
    score = mean(float(entry["validation_score"]) for entry in result.curve)
    of_curve: dict[str, Label] = {**labels, "metric": result.metric, "told": json.dumps(curve)}
    return Record("curve", score, "score", "measured", of_curve, count=len(curve))
