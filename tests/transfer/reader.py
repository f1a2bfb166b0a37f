"""A third party's mechanism that reads the layer's input; swapped in by its dotted path."""

from __future__ import annotations

import torch
from torch import nn

from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost
from sparing.mechanisms.shared.arithmetic import fused_softmax


class Reader(Mechanism):
    """Softmax attention plus a projection of x, which starts as the layer's own for q.

    ``one`` is a buffer that is not saved: loading has to make it anew.
    """

    traits = Traits(paper="none", year=2026, causal=True)
    streams = ("q", "k", "v", "x")

    def __init__(self, heads, *, gain=1.0):
        super().__init__(heads)
        self.gain = gain
        self.projection = nn.Parameter(torch.zeros(heads.count * heads.dim, heads.width))
        self.register_buffer("one", torch.ones(()), persistent=False)
        self.shift = nn.Parameter(torch.zeros(heads.count * heads.dim))

    def init_from(self, weights):
        with torch.no_grad():
            self.projection.copy_(weights["q"])
            if "q_bias" in weights:
                self.shift.copy_(weights["q_bias"])

    def mix(self, q, k, v, x, *, mask):
        projected = (x @ self.projection.T + self.shift).unflatten(-1, (self.heads.count, -1))
        allowed = mask.dense(q.shape[2], k.shape[2], q.device)
        return self.one * fused_softmax(q, k, v, allowed) + self.gain * projected.transpose(1, 2)

    def cost(self, work):
        return Cost(0, 0, 0)
