"""A third party's mechanism that reads no values: keys serve as values too."""

from __future__ import annotations

from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost
from sparing.mechanisms.shared.arithmetic import fused_softmax


class Valueless(Mechanism):
    """Softmax attention that mixes keys."""

    traits = Traits(paper="none", year=2026)
    streams = ("q", "k")

    def mix(self, q, k, *, mask):
        return fused_softmax(q, k, k, mask.dense(q.shape[2], k.shape[2], q.device))

    def cost(self, work):
        return Cost(0, 0, 0)
