"""Sparse Transformer: near tokens and every ``stride``-th token, in two factorised patterns."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._blocks import Band, band_attention, block_for, plan
from sparing.mechanisms._columns import band_and_columns, column_attention
from sparing.mechanisms._pieces import Row, row_by_row
from sparing.mechanisms._summaries import Fixed, fixed_attention, segments
from sparing.mechanisms.shared.arithmetic import biased_softmax, fused_softmax
from sparing.mechanisms.shared.bands.grids import Grid, near_and_columns
from sparing.mechanisms.shared.bands.grids import column_attention as by_column
from sparing.mechanisms.shared.bands.summaries import fixed_attention as by_summaries
from sparing.mechanisms.shared.bands.windows import Aligned, band

PATTERNS = ("strided", "fixed")

_LINES_AS_SQUARE = 4
"""Rows of up to this many strides are one masked square: windows cover most of it."""
COMBINATIONS = ("merged", "heads", "first", "second")


class Strided(Mechanism):
    """Tokens attend to near ones and to a thin, regular selection of the far ones.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax of q_i . k_j / sqrt(dim) over a set of keys
    j. Strided: the first set is |i - j| < stride, the second j - i a multiple of stride. Fixed: the
    first is the block of ``stride`` tokens that holds i, the second all j with j mod stride >=
    stride - summary. Causal: those of them with j <= i. A query with an empty set sees itself.

    Symbols: positions count from a row's first token; ``combine`` is "merged" (one softmax over the
    union of both sets), "heads" (the first half of the heads has the first set, the rest the
    second), or "first" or "second" (one set for all heads, which lets a plan alternate by layer).
    ``dropout`` is the share of weights dropped while training.

    Cost: strided merged, 4 dim (3 stride + tokens / stride) flops for each query; fixed, 4 dim
    (stride + summary tokens / stride). Least near stride = sqrt(tokens); 64 suits 4,096 tokens and
    fills the tiles of a CPU kernel. Strided merged, a row of up to four strides is computed as one
    masked square: there is little to save. With stride >= tokens the first set equals ``softmax``.

    Source: Child, Gray, Radford and Sutskever, 2019, arXiv 1904.10509, sections 4.2, 4.3 and 5.1.
    What differs: any length; the form that is not causal drops j <= i; a key in both sets counts
    once. The strided first set has ``stride`` tokens, as in the authors' code; their formula also
    has the one ``stride`` away, which is in the second. The fixed second set, causal, is empty for
    the first tokens, hence the rule for empty sets. On accelerators the merged set stores
    its scores, in float32. With a bias all pairs are computed and hidden ones masked.
    """

    traits = Traits(
        paper="Generating Long Sequences with Sparse Transformers, arXiv 1904.10509",
        year=2019,
        family="sparse",
        arm=True,
        causal=True,
    )
    accelerated = ("accelerator",)
    takes_bias = True

    def __init__(
        self,
        heads: Heads,
        *,
        pattern: str = "strided",
        stride: int = 64,
        summary: int = 8,
        combine: str = "merged",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(heads)
        for option, value, known in (
            ("pattern", pattern, PATTERNS),
            ("combine", combine, COMBINATIONS),
        ):
            require_choice("strided", option, value, known)
        if stride < 1:
            raise UsageError(f"strided: stride must be at least 1; got {stride}")
        if pattern == "fixed" and not 1 <= summary <= stride:
            raise UsageError(f"strided: summary must be from 1 to stride = {stride}; got {summary}")
        self.pattern = pattern
        self.stride = stride
        self.summary = summary
        self.combine = combine
        self.dropout = dropout

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Exact attention over the kept keys of each head's set."""
        row = Row(q, k, v, mask.keep)
        border = (q.shape[1] + 1) // 2
        if self.combine != "heads":
            return self._attend(self.combine, row, mask.causal)
        if q.shape[1] == 1:
            return self._attend("first", row, mask.causal)
        first = self._attend("first", row.heads(0, border), mask.causal)
        second = self._attend("second", row.heads(border, q.shape[1]), mask.causal)
        return torch.cat([first, second], 1)

    def mix_biased(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        bias: Float[Tensor, "#batch heads queries keys"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Both sets as one masked square: with a bias nothing is skipped."""
        queries, keys = q.shape[2], k.shape[2]
        places = torch.arange(keys, device=q.device).view(1, 1, 1, keys)
        if mask.keep is not None:
            places = places - mask.first().view(-1, 1, 1, 1)
        rows = places[..., keys - queries :].mT
        border = (q.shape[1] + 1) // 2
        kinds = ["first"] * border + ["second"] * (q.shape[1] - border)
        kinds = kinds if self.combine == "heads" else [self.combine]
        seen = torch.cat([self._pairs_of(kind, rows, places) for kind in kinds], 1)
        allowed = mask.dense(queries, keys, q.device)
        seen = seen if allowed is None else seen & allowed
        seen = seen | ((rows == places) & ~seen.any(-1, keepdim=True))
        dropout = self.dropout if self.training else 0.0
        return biased_softmax(q, k, v, bias, seen, dropout=dropout)

    def _pairs_of(self, kind: str, rows: Tensor, places: Tensor) -> Tensor:
        """The set, or both, of queries at ``rows`` among keys at ``places``."""
        stride = self.stride
        if self.pattern == "strided":
            near, far = (rows - places).abs() < stride, (rows - places) % stride == 0
        else:
            blocks = [torch.div(at, stride, rounding_mode="floor") for at in (rows, places)]
            near, far = blocks[0] == blocks[1], places % stride >= stride - self.summary
            far = far.expand_as(near)
        return {"first": near, "second": far, "merged": near | far}[kind]

    def mix_accelerator(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Near tokens by lines and far ones by columns; fixed blocks beside copied summaries."""
        if self.combine != "heads":
            return self._all_at_once(self.combine, q, k, v, mask)
        border = (q.shape[1] + 1) // 2
        first = self._all_at_once("first", q[:, :border], k[:, :border], v[:, :border], mask)
        if border == q.shape[1]:
            return first
        other = self._all_at_once("second", q[:, border:], k[:, border:], v[:, border:], mask)
        return torch.cat([first, other], 1)

    def _all_at_once(self, kind: str, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """One set, or both merged, for a batch on an accelerator."""
        dropout = self.dropout if self.training else 0.0
        if self.pattern == "fixed":
            rows = Aligned.of(q, k, v, mask.keep)
            return rows.back(by_summaries(rows, self._fixed(kind, mask.causal), dropout))
        if kind == "first" or (kind == "merged" and k.shape[2] <= self.stride):
            before = self.stride - 1
            return band(q, k, v, mask.keep, before, 0 if mask.causal else before, dropout)
        grid = Grid(k.shape[2], q.shape[2], self.stride, mask.causal, mask.keep)
        attend = by_column if kind == "second" else near_and_columns
        return attend(q, k, v, grid, dropout)

    def _attend(self, kind: str, row: Row, causal: bool) -> Tensor:
        """One set, or both merged, for all heads of the row."""
        dropout = self.dropout if self.training else 0.0
        stride = self.stride
        traced = is_traced()
        if self.pattern == "fixed":
            fixed = self._fixed(kind, causal)

            def mix_row(row: Row, out: Tensor | None) -> Tensor:
                return _into(out, fixed_attention(row, fixed, dropout, out))

        elif kind == "first" or (not traced and row.k.shape[2] <= stride and kind == "merged"):
            band = Band(stride - 1, 0 if causal else stride - 1, block_for(row.k))
            return band_attention(row.q, row.k, row.v, row.keep, band, dropout)
        elif kind == "second":

            def mix_row(row: Row, out: Tensor | None) -> Tensor:
                return _into(out, column_attention(row, stride, causal, dropout))

        elif not traced and row.k.shape[2] <= _LINES_AS_SQUARE * stride:

            def mix_row(row: Row, out: Tensor | None) -> Tensor:
                return _into(out, _square(row, stride, causal, dropout))

        else:

            def mix_row(row: Row, out: Tensor | None) -> Tensor:
                return band_and_columns(row, stride, causal, dropout, out)

        return mix_row(row, None) if traced else row_by_row(mix_row, row)

    def _fixed(self, kind: str, causal: bool) -> Fixed:
        return Fixed(self.stride, self.summary, kind != "second", kind != "first", causal)

    def cost(self, work: Workload) -> Cost:
        """Two products over the pairs of each head's set; scores of some lines live meanwhile."""
        kinds = [self.combine] * work.heads
        if self.combine == "heads":
            border = (work.heads + 1) // 2
            kinds = ["first"] * border + ["second"] * (work.heads - border)
        counts = {kind: self._pairs(kind, work) for kind in set(kinds)}
        pairs = work.batch * sum(counts[kind] for kind in kinds)
        output = work.rows * work.queries * work.dim
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=5 * pairs,
            peak_bytes=work.element_bytes * (output + 4 * (work.keys * work.dim + (1 << 18))),
        )

    def _pairs(self, kind: str, work: Workload) -> int:
        """Scores that are computed for one head, those that a mask hides included."""
        queries, keys, stride = work.queries, work.keys, self.stride
        lines, skipped = -(-keys // stride), (keys - queries) // stride
        if self.pattern == "fixed":
            return self._fixed_pairs(self._fixed(kind, work.causal), queries, keys)
        if kind == "first" or (kind == "merged" and keys <= stride):
            band = Band(stride - 1, 0 if work.causal else stride - 1)
            return sum(piece.pairs() for piece in plan(queries, keys, band))
        far = (lines - skipped) * lines * stride
        if kind == "second":
            return far
        if keys <= _LINES_AS_SQUARE * stride:
            return queries * keys
        return far + (lines - skipped) * stride * stride * (2 if work.causal else 3)

    def _fixed_pairs(self, fixed: Fixed, queries: int, keys: int) -> int:
        pairs = 0
        for segment in segments(queries, keys, fixed.size):
            length = (segment.stop - segment.start) // segment.blocks
            whole = min(fixed.size, keys - segment.start // fixed.size * fixed.size)
            inner = whole if fixed.own_block else 0
            if fixed.own_block and fixed.others and not fixed.causal:
                inner = min(whole, fixed.size - fixed.summary)
            seen = fixed.summaries(keys) if fixed.others else 0
            pairs += segment.blocks * length * (inner + seen)
        return pairs


def _square(row: Row, stride: int, causal: bool, dropout: float) -> Tensor:
    """Both sets of a short row under one mask."""
    queries, keys = row.q.shape[2], row.k.shape[2]
    places = torch.arange(keys, device=row.k.device)
    ahead = places - places[keys - queries :, None]
    seen = (ahead.abs() < stride) | (ahead % stride == 0)
    if causal:
        seen &= ahead <= 0
    if row.keep is not None:
        seen = (seen & row.keep) | (ahead == 0)
    return fused_softmax(row.q, row.k, row.v, seen, dropout=dropout)


def _into(out: Tensor | None, mixed: Tensor) -> Tensor:
    """The result, written to ``out`` where that is given."""
    return mixed if out is None or out is mixed else out.copy_(mixed)
