"""Examples as batches of a model's inputs, and a model's answers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparing.tasks import Examples, Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BATCH = 64


@torch.inference_mode()
def answers_to(task: Task, examples: Examples, model: PreTrainedModel) -> Tensor:
    """A model's logits of all examples (count, classes), in their order, on the CPU."""
    logits = torch.zeros(len(examples), task.classes)
    for indices, inputs in inputs_of(task, examples, BATCH):
        given = {name: value.to(model.device) for name, value in inputs.items()}
        logits[indices] = model(**given).logits.float().cpu()
    return logits


def inputs_of(task: Task, examples: Examples, batch: int) -> list[tuple[list[int], dict[str, Any]]]:
    """Every example once, in batches of similar length: indices and inputs."""
    order = sorted(range(len(examples)), key=lambda index: (examples.lengths[index], index))
    batches = []
    for part in _parts(order, batch):
        inputs = task.collate([examples[index] for index in part])
        inputs.pop("labels")
        batches.append((part, inputs))
    return batches


def _parts(indices: list[int], size: int) -> list[list[int]]:
    return [indices[start : start + size] for start in range(0, len(indices), size)]
