"""A training's batches divided among processes, and what each process does with its share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers.trainer_pt_utils import safe_globals

from sparing.core.ranks import Share, is_first, rank, share_of, world
from sparing.core.writing import replacing
from sparing.tasks import Examples, Task
from sparing.train.order import LengthGrouped

SHARE = "share"
GENERATORS = "rng_state.pth"


class Batches:
    """The batches of one process's order; every process has the same ones."""

    def __init__(self, sampler: LengthGrouped) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.sampler.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.sampler)
        for start in range(0, len(order), self.sampler.batch_size):
            yield order[start : start + self.sampler.batch_size]


class Shared:
    """Whole batches of a task, of which each process then takes its rows.

    All are padded to the longest example of the whole batch, as one process pads them: some
    mechanisms depend on the padded length.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.examples: Examples = task.train

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.examples[index]

    def collate(self, examples: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
        """The rows of this process, and its share."""
        share = share_of(len(examples), rank(), world())
        batch = self.task.collate(examples)
        return {**{name: rows[share.rows] for name, rows in batch.items()}, SHARE: share}


def shared_loader(task: Task, sampler: LengthGrouped, *, pinned: bool) -> DataLoader[Any]:
    """The batches of this process in the order of the sampler."""
    shared: Any = Shared(task)
    batches: Any = Batches(sampler)
    return DataLoader(shared, batch_sampler=batches, collate_fn=shared.collate, pin_memory=pinned)


def taken(inputs: dict[str, Any]) -> Share | None:
    """Remove this process's share from a batch, and return it; None in one process."""
    share: Share | None = inputs.pop(SHARE, None)
    return share


def through(model: nn.Module, function: Callable[[], Tensor]) -> Tensor:
    """Call a function that uses the parts of a model as if it were the model's ``forward``.

    Gradients of several processes are averaged only for what runs inside ``forward``.
    """
    if not isinstance(model, DistributedDataParallel):
        return function()
    inner = model.module
    before = inner.__dict__.get("forward")

    def restore() -> None:
        inner.__dict__.pop("forward", None)
        if before is not None:
            inner.__dict__["forward"] = before

    def once(nothing: int) -> Tensor:
        restore()
        return function()

    inner.__dict__["forward"] = once
    try:
        result: Tensor = model(0)
    finally:
        restore()
    return result


def reseed(seed: int, step: int) -> None:
    """Seed the generators of all processes but the first: by seed, step and process.

    So they draw other dropout than process 0, and a resumed training draws the same.
    """
    if is_first():
        return
    drawn = random.Random(f"{seed}:{step}:{rank()}").getrandbits(32)
    random.seed(drawn)
    np.random.seed(drawn)  # noqa: NPY002  # transformers' own
    torch.manual_seed(drawn)


def save_generators(folder: Path) -> None:
    """Write the state of process 0's generators, as a training in one process does."""
    if not is_first():
        return
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.random.get_rng_state()
    with replacing(folder / GENERATORS) as beside:
        torch.save(states, beside)


def load_generators(folder: Path) -> None:
    """Read a state of ``save_generators``, or of a training in one process."""
    with safe_globals():
        states = torch.load(folder / GENERATORS, weights_only=True)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.random.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.random.set_rng_state(states["cuda"])
