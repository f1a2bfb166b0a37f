"""A task and a model so small that a training run takes a second."""

from __future__ import annotations

import torch

from sparing.models import build_model
from sparing.tasks import Examples, Task


def token_task(count: int = 60, longest: int = 9) -> Task:
    """Rows of two tokens, of many lengths; the label is which one is more frequent."""
    generator = torch.Generator().manual_seed(5)

    def split(size):
        rows, labels = [], []
        for _ in range(size):
            length = int(torch.randint(1, longest, (), generator=generator))
            row = torch.randint(2, 4, (length,), generator=generator)
            rows.append(torch.cat([torch.ones(1, dtype=torch.long), row]))
            labels.append(int((row == 3).sum() * 2 > length))
        return Examples("input_ids", rows, torch.tensor(labels))

    return Task(
        name="majority",
        kind="tokens",
        train=split(count),
        validation=split(20),
        test=split(20),
        labels=("two", "three"),
        tokens=longest,
        licence="none",
        source="generated",
        vocabulary=4,
        pad_id=0,
    )


def token_model(task: Task, seed: int = 0, **sizes):
    """A BERT of one layer, with dropout, so that the random state matters."""
    return build_model(
        "bert", task, seed=seed, **{"layers": 1, "heads": 2, "width": 8, "dropout": 0.1} | sizes
    )


def weights(model) -> list[torch.Tensor]:
    """Copies of all weights."""
    return [tensor.clone() for tensor in model.state_dict().values()]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Whether all tensors are equal bit for bit."""
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
