"""Uniform attention: every query gets the mean of the values it may see. A control."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.products import HALVES, recorded, wide_product, wide_type

CHUNK = 128
"""Tokens that one step of a causal sum adds up: chunks run side by side on a device."""


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

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The same sums without a copy in float32 and, causal, without a loop over all tokens."""
        q, _, v = streams
        if mask.causal:
            sums, seen = running_sums(v, q.shape[2]), _seen(v, q.shape[2], mask.keep)
            if recorded(v):
                return (sums / seen).to(q.dtype)
            return torch.div(sums, seen, out=torch.empty_like(q))
        sums = v.sum(2, keepdim=True, dtype=wide_type(v.dtype))
        if mask.keep is None:
            mean = sums / v.shape[2]
        else:
            mean = sums / mask.keep.sum(1).clamp(min=1)[:, None, None, None]
        return mean.to(q.dtype).expand_as(q).contiguous()

    def cost(self, work: Workload) -> Cost:
        """One addition for each number, causal two more; the running sum and its quotient."""
        outputs = work.rows * work.queries * work.dim
        values = work.rows * work.keys * work.dim
        if not work.causal:
            return Cost(0, values, outputs * work.element_bytes)
        return Cost(0, values + 2 * outputs, 3 * outputs * max(4, work.element_bytes))


def running_sums(
    v: Float[Tensor, "batch heads keys dim"], count: int
) -> Float[Tensor, "batch heads queries dim"]:
    """The sum of the values up to each of the last ``count`` tokens, at least in float32.

    Sums inside a chunk and sums of the chunks before it. Half values meet ones in a product: each
    term is exact, and sums are in float32.
    """
    batch, heads, keys, dim = v.shape
    exact, size = wide_type(v.dtype), min(CHUNK, count)
    old, new = v[:, :, : keys - count], v[:, :, keys - count :]
    chunks = F.pad(new, (0, 0, 0, -count % size)) if count % size else new
    chunks = chunks.reshape(-1, size, dim)
    if v.dtype in HALVES:
        ones = torch.ones(size, size, dtype=v.dtype, device=v.device).tril()
        within = wide_product(ones.expand(chunks.shape[0], -1, -1), chunks)
    else:
        within = chunks.cumsum(1)
    within = within.view(batch, heads, -1, size, dim)
    before = F.pad(within[:, :, :-1, -1].cumsum(2), (0, 0, 1, 0))
    if keys > count:
        before = before + old.sum(2, keepdim=True, dtype=exact)
    before = before.unsqueeze(3)
    sums = within + before if recorded(v) else within.add_(before)
    return sums.flatten(2, 3)[:, :, :count]


def _seen(
    v: Float[Tensor, "batch heads keys dim"], count: int, keep: Bool[Tensor, "batch keys"] | None
) -> Float[Tensor, "samples 1 queries 1"]:
    """How many values each of the last ``count`` tokens sees; 1 for none."""
    keys, exact = v.shape[2], wide_type(v.dtype)
    if keep is None:
        seen = torch.arange(keys - count + 1, keys + 1, dtype=exact, device=v.device)[None]
    else:
        seen = keep.cumsum(1, dtype=exact)[:, keys - count :].clamp(min=1)
    return seen[:, None, :, None]
