"""Exact attention through PyTorch's fused kernel: the baseline of all comparisons."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.products import Product, Products
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import biased_softmax


class Softmax(Mechanism):
    """Scaled dot-product attention, fused: no square of scores is ever stored.

    The kernel takes either a mask or causality. Where causality comes with pads, or with queries
    that are not the first ones, a square mask is stored, one byte for each pair.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax over j of q_i . k_j / sqrt(dim).

    Symbols: i runs over queries, j over the keys that i may see; ``dropout`` is the share of
    weights dropped while training.

    Cost: 4 dim flops for each visible pair, memory linear in the tokens but for that mask. It is
    the limit itself: every other mechanism is measured against it.

    Source: Vaswani et al., 2017, arXiv 1706.03762, equation 1. What differs: a query that may see
    no key returns zeros, where implementations return zeros or NaN depending on the kernel.
    """

    ignores_pads = True
    takes_bias = True
    traits = Traits(
        paper="Attention Is All You Need, arXiv 1706.03762",
        year=2017,
        family="dense",
        arm=True,
        causal=True,
        cross=True,
        exact=True,
        permutable=True,
    )
    accelerated = ("accelerator",)

    def __init__(self, heads: Heads, *, dropout: float = 0.0) -> None:
        super().__init__(heads)
        self.dropout = dropout

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Exact attention over the keys that the mask allows."""
        queries, keys = q.shape[2], k.shape[2]
        dropout = self.dropout if self.training else 0.0
        if mask.causal and mask.keep is None and queries == keys:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        allowed = mask.opened(queries, keys, q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)

    def mix_biased(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        bias: Float[Tensor, "#batch heads queries keys"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same kernel with the bias as its mask."""
        allowed = mask.opened(q.shape[2], k.shape[2], q.device)
        dropout = self.dropout if self.training else 0.0
        return biased_softmax(q, k, v, bias, allowed, dropout=dropout)

    def products(self, tokens: int) -> Products:
        """Every query with every key, and every weight with its value."""
        steps = (
            Product("Q", "K^T", "scores", "n", "d", "n", "softmax over their columns: P"),
            Product("P", "V", "out", "n", "n", "d"),
        )
        sizes = {"n": tokens, "d": self.heads.dim}
        return Products(steps, sizes, {"n": "tokens", "d": "features of a head"})

    def cost(self, work: Workload) -> Cost:
        """Two products over the visible pairs; the kernel skips what causality hides."""
        pairs = work.rows * work.visible_pairs
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=4 * pairs,
            peak_bytes=work.rows * work.queries * work.dim * work.element_bytes,
        )
