"""Uniform attention: every query gets the mean of the values it may see. A control."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import wide


class Uniform(Mechanism):
    """The mean of all visible values: a model in which tokens mix but cannot choose.

    Formula: out_i = sum_j v_j / sum_j 1.

    Symbols: j runs over the keys that query i may see: all of them or, causal, those up to i.
    Queries and keys are accepted, since every layer has them, and not used.

    Cost: one sum over the values, causal or not. It equals ``softmax`` for queries of zero.

    Source: a control of this library; its causal form is the average layer of Zhang, Xiong and Su,
    2018, arXiv 1805.00631, equation 1. What differs: no feed-forward and no gate follow the mean,
    which belong to the layer; sums run in float32 at least, so that long rows keep their digits.
    """

    traits = Traits(
        paper="Accelerating Neural Transformer via an Average Attention Network, arXiv 1805.00631",
        year=2018,
        family="control",
        arm=True,
        causal=True,
        cross=True,
        permutable=True,
    )
    accelerated = ("accelerator",)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """A mean for all queries, or a running one for each; pads are zero and not counted."""
        values = wide(v)
        keep = values.new_ones(1, v.shape[2]) if mask.keep is None else mask.keep
        counts = keep.to(values.dtype)
        if not mask.causal:
            total = counts.sum(1).clamp_min(1)[:, None, None, None]
            mean = (values.sum(2, keepdim=True) / total).to(q.dtype)
            return mean.expand_as(q).contiguous()
        early = v.shape[2] - q.shape[2]
        sums = values[:, :, early:].cumsum(2) + values[:, :, :early].sum(2, keepdim=True)
        seen = counts.cumsum(1)[:, early:].clamp_min(1)[:, None, :, None]
        return (sums / seen).to(q.dtype)

    def cost(self, work: Workload) -> Cost:
        """One addition for each number, causal two more; the running sum and its quotient."""
        outputs = work.rows * work.queries * work.dim
        values = work.rows * work.keys * work.dim
        if not work.causal:
            return Cost(0, values, outputs * work.element_bytes)
        return Cost(0, values + 2 * outputs, 3 * outputs * max(4, work.element_bytes))
