"""The cells that train the models of a task and score them.

They may run beside others: each has its threads pinned, since sums of several threads round
differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from sparing.core.record import Labels, Record, measured
from sparing.core.recording import record
from sparing.experiment.cells.device import device
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing.mechanisms.adaptive import Adaptive
from sparing.mechanisms.shared.widths import Cut
from sparing.slim.inputs import inputs_of
from sparing.train import TrainResult
from sparing_papers.adaattention.arms import (
    Arm,
    Work,
    train_arm,
    train_dense,
)
from sparing_papers.adaattention.cells.answers import answers_on_test, keep, scored
from sparing_papers.adaattention.names import DENSE, FULL


def dense_cell(work: Work, seed: int, thread_count: int) -> Cell:
    """Fine-tune the dense model."""

    def do() -> list[Record]:
        result = train_dense(work, seed)
        labels: Labels = {"arm": DENSE, "task": work.name, "seed": seed}
        return [*_evaluated(work, DENSE, seed), *_trained(result, labels)]

    pinned = partial(_pinned, thread_count, do)
    return Cell(_key_of(work, DENSE, seed), pinned, beside=True)


def arm_cell(work: Work, arm: Arm, seed: int, thread_count: int) -> Cell:
    """Change the dense model's attention and train on; scores, head scores and training time."""

    def do() -> list[Record]:
        result, changes = train_arm(work, arm, seed)
        labels: Labels = {"arm": arm.name, "task": work.name, "seed": seed}
        about = {**labels, "told": json.dumps(changes), "weight": arm.weight}
        model = work.open(arm.name, seed)
        return [
            *_trained(result, labels),
            *_epochs(result, labels),
            *head_scores(model, work, labels),
            Record("arm", None, "", "measured", about),
            *_evaluated(work, arm.name, seed),  # last: the file of answers marks the cell as done
        ]

    # slim must hold the better score of dense and full
    needed = (DENSE, FULL) if arm.kind == "slim" else (DENSE,)
    needs = tuple(_key_of(work, name, seed) for name in needed)
    pinned = partial(_pinned, thread_count, do)
    return Cell(_key_of(work, arm.name, seed), pinned, beside=True, needs=needs)


def _key_of(work: Work, arm: str, seed: int) -> str:
    return f"{work.name}/train/{arm}/{seed}"


def _pinned(thread_count: int, do: Callable[[], list[Record]]) -> list[Record]:
    with threads(thread_count):
        return do()


def _trained(result: TrainResult, labels: Labels) -> list[Record]:
    """Time and steps; ``early`` if the score fell below 95 % of the dense model's."""
    early: Labels = {**labels, "early": result.stopped_early}
    return [
        *measured(labels, "s", train_time_s=result.train_time_s),
        *measured(early, "", steps=float(result.steps)),
    ]


def _epochs(result: TrainResult, labels: Labels) -> list[Record]:
    """Score, time of one input and mean head score at each validation, once an epoch."""
    names = {
        "validation_score": ("epoch_score", "score"),
        "validation_latency_ms": ("epoch_latency", "ms"),
        "mean_head_score": ("epoch_head_score", "share"),
    }
    return [
        Record(name, entry[key], unit, "measured", {**labels, "epoch": round(entry["epoch"], 2)})
        for entry in result.curve
        for key, (name, unit) in names.items()
        if key in entry
    ]


def _evaluated(work: Work, arm: str, seed: int) -> list[Record]:
    """The test scores and the answers, for differences example by example."""
    model = work.open(arm, seed).to(device())
    outputs = answers_on_test(model, work)
    return [*scored(work, arm, seed, outputs), keep(work, arm, seed, outputs)]


def adaptive_layers(model: nn.Module) -> dict[str, Adaptive]:
    """The paper's mechanism in each layer, by the module's name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Adaptive)}


@torch.inference_mode()
def head_scores(model: nn.Module, work: Work, labels: Labels) -> list[Record]:
    """Over test inputs: the mean score, the share of heads that are cut, and their mean width.

    Empty if the variant has no scores.
    """
    layers = adaptive_layers(model)
    if not layers:
        return []
    scores: dict[str, list[Tensor]] = {name: [] for name in layers}
    with record(model) as log:
        for _, inputs in inputs_of(work.task, work.task.test, 64):
            model(**inputs)
            for name in layers:
                scores[name] += log.pop(f"{name}/score")
            log.clear()
    whole = torch.stack([torch.cat(parts) for parts in scores.values()])
    widths = torch.stack(
        [_cut(layer).widths(torch.cat(scores[name])).float() for name, layer in layers.items()]
    )
    dim = next(iter(layers.values())).heads.dim
    shares = {
        "head_score": whole.mean(),
        "cut_share": (widths < dim).float().mean(),
        "width_share": widths.mean() / dim,
        "input_spread": whole.std(1).mean(),
    }
    return measured(labels, "share", **{name: float(value) for name, value in shares.items()})


def _cut(layer: Adaptive) -> Cut:
    return Cut(layer.heads.dim, layer.threshold, layer.levels, layer.temperature)
