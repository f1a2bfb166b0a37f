"""The order in which a training run sees its examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

POOL = 50


class LengthGrouped(Sampler[int]):
    """Random batches of examples of like length, a function of seed and epoch alone.

    Each epoch is shuffled and cut into pools of 50 batches. Each pool is sorted by length and cut
    into batches, and the batches are shuffled; the last, smaller batch stays last. What differs
    from transformers' sampler for the same purpose: that one uses the global generator, so a run
    resumed in the middle of an epoch sees another order. It also shows each pool from long to
    short. ``epoch`` is set before each epoch.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        if len(set(self.lengths)) <= 1:
            yield from order
            return
        whole = len(order) - len(order) % self.batch_size
        order, last = order[:whole], order[whole:]
        pool = POOL * self.batch_size
        batches = []
        for start in range(0, whole, pool):
            near = sorted(order[start : start + pool], key=self.lengths.__getitem__)
            batches += [
                near[first : first + self.batch_size]
                for first in range(0, len(near), self.batch_size)
            ]
        for number in torch.randperm(len(batches), generator=generator).tolist():
            yield from batches[number]
        yield from last
