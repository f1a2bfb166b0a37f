"""The expected seconds of the cells of ``compare`` and ``slim``: their weights in a plan.

First guesses from the FLOPs of the dense model; a plan corrects them by the cells that are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sparing.experiment.cells.probe import Shape
from sparing.experiment.plan import clocked
from sparing.experiment.run import Cell
from sparing.tasks import Task

TYPICAL_FLOPS = 25e9  # of one core
FORWARD_AND_BACK = 3  # FLOPs of a training step over those of a forward pass
PROCESS_S = 6.0  # a fresh process that imports PyTorch and transformers
EXPORT_S = 4.0  # one model written and read as ONNX
Seconds = Callable[[str], float]


def weighted(cells: Sequence[Cell], seconds: Seconds) -> list[Cell]:
    """The cells with their expected seconds as weights; each records how long it took."""
    return [clocked(replace(cell, weight=max(0.1, seconds(cell.key)))) for cell in cells]


def forward_seconds(shape: Shape, tokens: float) -> float:
    """Seconds of one input of so many tokens through the dense model."""
    linear = 2 * shape.width * (4 * shape.width + 2 * shape.feed_forward_dim)
    return shape.layers * tokens * (linear + 4 * tokens * shape.width) / TYPICAL_FLOPS


def split_seconds(shape: Shape, task: Task, split: str) -> float:
    """Seconds of every input of a split through the dense model."""
    examples = task.split(split)
    total = len(examples) * task.tokens if task.kind == "image" else sum(examples.lengths)
    return len(examples) * forward_seconds(shape, total / max(1, len(examples)))


def of_compare(
    shape: Shape, task: Task, *, arms: int, rounds: int, epochs: int, energy_s: float
) -> Seconds:
    """Seconds of the cells of a comparison, by their keys."""
    once = forward_seconds(shape, float(task.tokens))
    training = epochs * (
        FORWARD_AND_BACK * split_seconds(shape, task, "train")
        + split_seconds(shape, task, "validation")
    )

    def seconds(key: str) -> float:
        kind, *rest = key.split("/")
        if kind == "latency" and rest[0] == "attention":
            tokens = float(rest[1])
            return 0.5 + rounds * (arms / shape.layers + 0.5) * forward_seconds(shape, tokens)
        if kind == "latency":
            return 0.5 + rounds * arms * int(rest[1]) * once
        if kind == "energy":
            return arms * (1.0 + 5 * energy_s)
        if kind == "train":
            return 1.0 + training + split_seconds(shape, task, "test")
        return PROCESS_S if kind == "memory" else 0.2 + once

    return seconds


def of_slim(shape: Shape, task: Task, *, epochs: dict[str, int], timed: int, plans: int) -> Seconds:
    """Seconds of the steps of ``slim``; ``epochs`` are by part, such as ``distil``."""
    train, held, test = (split_seconds(shape, task, s) for s in ("train", "validation", "test"))
    per_input = test / max(1, len(task.test))
    forms = 12  # of both models, in all engines and precisions
    timing = forms * (EXPORT_S / 2 + 3 * timed * per_input / 2)
    step = FORWARD_AND_BACK * train
    followed = step + train  # the teacher's pass besides
    table = {
        "dense": epochs["dense"] * step + 1.0,
        "dense-answers": train + held + test,
        "distil": epochs["distil"] * followed + 2.0,
        "baseline": held,
        "survey": plans * held + 2.0,
        "choose": 4 * (EXPORT_S + 60 * 3 * per_input),
        "fixed-width": epochs["fixed-width"] * followed + held,
        "forms": forms * (EXPORT_S + held / 2),
        "candidates": 2 * forms * (EXPORT_S / 2 + 120 * 3 * per_input / 3),
        "static": (epochs["distil"] + epochs["fixed-width"]) * followed,
        "verify": timing,
        "exits": test,
        "answers": forms * (EXPORT_S / 2 + test / 2),
        "memory": forms * PROCESS_S,
    }

    def seconds(key: str) -> float:
        return table.get(key, table.get(key.split("/")[0], 1.0))

    return seconds
