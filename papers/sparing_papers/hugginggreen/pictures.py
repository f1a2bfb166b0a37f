"""The patches that each score keeps of some of a task's images, for the page."""

from __future__ import annotations

import json
from typing import Any

import torch

from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.tasks import Task
from sparing.transfer.patching import PatchSelector, Selection
from sparing_papers.hugginggreen.arms import selection_arms
from sparing_papers.hugginggreen.train import Work

SHOWN = 3
PLACES = 4  # decimals of a score


def pictures_cell(work: Work) -> Cell:
    """Test images of different classes, with the scores of their patches and those kept."""

    def do() -> list[Record]:
        arms = selection_arms(work.options, work.task, whole=False)
        selections = [arm.selection for arm in arms if arm.selection is not None]
        return [_picture(work.task, work.name, index, selections) for index in places(work.task)]

    return Cell(f"pictures/{work.name}", do, weight=1.0)


def places(task: Task) -> list[int]:
    """The first test image of each of some classes."""
    labels = task.test.labels.tolist()
    firsts = [labels.index(kind) for kind in range(task.classes) if kind in labels]
    return firsts[:: max(1, len(firsts) // SHOWN)][:SHOWN]


def _picture(task: Task, name: str, index: int, selections: list[Selection]) -> Record:
    pixels = task.test[index]["pixel_values"]
    raw = (pixels * task.pixel_deviation + task.pixel_mean).clamp(0, 1)
    scored = {one.score: _scored(task, one, pixels) for one in selections}
    content = {
        "pixels": (raw * 255).round().int().permute(1, 2, 0).tolist(),
        "scored": scored,
        "side": task.image_size // task.patch_size,
    }
    label = task.labels[int(task.test.labels[index])]
    labels: dict[str, Label] = {"task": name, "label": label, "told": json.dumps(content)}
    return Record("picture", None, "", "measured", labels)


def _scored(task: Task, selection: Selection, pixels: torch.Tensor) -> dict[str, Any]:
    size = (task.patch_size, task.patch_size)
    selector = PatchSelector(selection, size).eval()
    scores = selector.scores(pixels[None])[0].double()
    return {
        "scores": [round(value, PLACES) for value in scores.tolist()],
        "kept": selector.choose(pixels[None])[0].tolist(),
    }
