"""The work of a mechanism's call, and its cost in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Workload:
    """One call of a mechanism: its sizes, element type and whether it is causal."""

    batch: int
    heads: int
    queries: int
    keys: int
    dim: int
    dtype: torch.dtype = torch.float32
    causal: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def rows(self) -> int:
        """Batch times heads: how often the per-head work is done."""
        return self.batch * self.heads

    @property
    def visible_pairs(self) -> int:
        """Query-key pairs that may interact, for one head of one sample."""
        if not self.causal:
            return self.queries * self.keys
        hidden = self.queries * (self.queries - 1) // 2
        return self.queries * self.keys - hidden


@dataclass(frozen=True)
class Cost:
    """The cost of a call in closed form: a model, not a measurement.

    ``matmul_flops`` counts matrix products, a multiply-add as 2, and is checked against PyTorch's
    counter. ``other_flops`` counts elementwise work with one per operation (an exponential is one).
    ``peak_bytes`` is the largest live extra memory of an inference call, its output included;
    ``params`` the mechanism's own trainable parameters. ``upper_bound`` says that the cost depends
    on the inputs, and that no input costs more than this.
    """

    matmul_flops: int
    other_flops: int
    peak_bytes: int
    params: int = 0
    upper_bound: bool = False
