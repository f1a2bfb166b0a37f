"""Sliding-window attention: exact softmax over the keys within a radius."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.core.execution.path import Call, Path
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._blocks import AT_ONCE, Band, band_attention, block_for, plan
from sparing.mechanisms._pieces import inside
from sparing.mechanisms.shared.arithmetic import biased_softmax
from sparing.mechanisms.shared.bands import flex
from sparing.mechanisms.shared.bands.windows import band


class Window(Mechanism):
    """Every token attends to those at most ``radius`` away, itself included, and to no other.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax of q_i . k_j / sqrt(dim) over the keys j
    with |i - j| <= radius; causal: i - radius <= j <= i.

    Symbols: i and j are positions in the row, so pads between tokens keep their distances;
    ``dropout`` is the share of weights dropped while training.

    Cost: 4 dim (2 radius + 1) flops for each query and some tenths more for the corners of the
    blocks; linear in the tokens. With radius >= tokens it equals ``softmax``. Below about three
    times the radius the window is computed as one masked square, which costs no more.

    Source: Beltagy, Peters and Cohan, 2020, arXiv 2004.05150, section 3.1 (one sided window of
    ``radius``, half of their w; no global tokens, no dilation). What differs: the window is exact
    at any length, where implementations in blocks of w look up to w further or need multiples of w.
    Blocks are overlapping views of keys and values, not copies. On CUDA devices FlexAttention skips
    what is outside the band.
    """

    traits = Traits(
        paper="Longformer: The Long-Document Transformer, arXiv 2004.05150",
        year=2020,
        family="sparse",
        arm=True,
        causal=True,
    )
    accelerated = ("flex", "accelerator")
    takes_bias = True
    bounded_by = "radius"

    def __init__(self, heads: Heads, *, radius: int = 128, dropout: float = 0.0) -> None:
        super().__init__(heads)
        if radius < 0:
            raise UsageError(f"window: radius must not be negative; got {radius}")
        self.radius = radius
        self.dropout = dropout

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Exact attention over the kept keys in the band."""
        dropout = self.dropout if self.training else 0.0
        band = Band(self.radius, 0 if mask.causal else self.radius, block_for(k))
        return band_attention(q, k, v, mask.keep, band, dropout)

    def mix_biased(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        bias: Float[Tensor, "#batch heads queries keys"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same band, of the bias too; a graph that is recorded has one masked square."""
        dropout = self.dropout if self.training else 0.0
        queries, keys = q.shape[2], k.shape[2]
        cut = Band(self.radius, 0 if mask.causal else self.radius, block_for(k))
        if not is_traced():
            return band_attention(q, k, v, mask.keep, cut, dropout, bias=bias)
        near = inside(cut, queries, keys, queries - keys, q.device)
        allowed = near if mask.keep is None else near & mask.keep[:, None, None]
        return biased_softmax(q, k, v, bias, allowed.view(-1, 1, queries, keys), dropout=dropout)

    def limits(self, path: Path, call: Call) -> str:
        """FlexAttention has no dropout, and is for long rows."""
        return flex.limit(call, self.dropout if self.training else 0.0) if path == "flex" else ""

    def mix_accelerator(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The band as one call over all blocks of queries, their windows being views of a copy."""
        dropout = self.dropout if self.training else 0.0
        after = 0 if mask.causal else self.radius
        return band(q, k, v, mask.keep, self.radius, after, dropout)

    def mix_flex(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same by FlexAttention, which skips the blocks outside the band."""
        return flex.attend_in_band(q, k, v, mask, self.radius, None)

    def cost(self, work: Workload) -> Cost:
        """Two products over the pairs in the blocks; one small piece is stored with the result."""
        band = Band(self.radius, 0 if work.causal else self.radius)
        pieces = plan(work.queries, work.keys, band)
        pairs = work.rows * sum(piece.pairs() for piece in pieces)
        held = 0 if len(pieces) == 1 else work.heads * min(work.queries, AT_ONCE)
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=5 * pairs,
            peak_bytes=(work.rows * work.queries + held) * work.dim * work.element_bytes,
        )
