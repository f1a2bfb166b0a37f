"""Longformer: a sliding window, and a few tokens that see all and are seen by all."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.execution.path import Call, Path
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._blocks import AT_ONCE, Band, Columns, band_attention, block_for, plan
from sparing.mechanisms.shared.arithmetic import fused_softmax
from sparing.mechanisms.shared.bands import flex
from sparing.mechanisms.shared.bands.windows import Globals, band, few_rows, numbers, picked, placed


class Longformer(Mechanism):
    """Tokens attend to a window and to the global tokens; a global token attends to all.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax of q_i . k_j / sqrt(dim) over the keys j
    with |i - j| <= radius or j global; for a global token i over all keys, with
    q_i = Q x_i + a, k_j = K x_j and v_j = V x_j + b from projections of its own. Causal: only over
    the j <= i of these.

    Symbols: x is the layer's input; Q, K, V are (heads dim, width), a and b biases. They start as
    the layer's own projections where those are known, and are sampled with ``seed`` otherwise;
    ``own_projections=False`` does without them and reads no x. ``global_tokens`` counts from each
    row's own first token, or, if negative, from behind its last: (0, -1) are the first and the
    last. A global token is left out where the row is too short or it is a pad. Causal, those
    counted from behind are left out too: they depend on the future. ``dropout`` is the share of
    weights dropped while training.

    Cost: 4 dim (2 radius + 1 + globals) flops for each query and 4 width for each token, head and
    global token; linear in the tokens. Without global tokens it equals ``window``; with radius >=
    tokens and without own projections, ``softmax``.

    Source: Beltagy, Peters and Cohan, 2020, arXiv 2004.05150, section 3.1 (one-sided window of
    ``radius``, half of their w; no dilation). What differs: any length, and a window that is exact
    there. K has no bias: it would add the same number to all scores of a token, which cancels in a
    softmax. Keys and values of the global projections are never built: scores are taken between K^T
    q_i and x_j, and V is applied to the mixed x_j. That costs globals / dim of the cost of
    projecting every token. Global tokens are fixed by position: a choice per input would need a
    stream that layers do not provide. On CUDA devices FlexAttention does all but the global rows.
    """

    global_q: Tensor
    global_k: Tensor
    global_v: Tensor
    global_q_bias: Tensor
    global_v_bias: Tensor
    streams = ("q", "k", "v", "x")
    traits = Traits(
        paper="Longformer: The Long-Document Transformer, arXiv 2004.05150",
        year=2020,
        family="sparse",
        arm=True,
        causal=True,
        random=True,
    )
    accelerated = ("flex", "accelerator")

    def __init__(
        self,
        heads: Heads,
        *,
        radius: int = 128,
        global_tokens: Sequence[int] = (0,),
        own_projections: bool = True,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        _check_options(radius, global_tokens)
        self.radius = radius
        self.global_tokens = tuple(global_tokens)
        self.own_projections = own_projections
        self.dropout = dropout
        self.seed = seed
        projects = own_projections and len(self.global_tokens) > 0
        self.traits = dataclasses.replace(type(self).traits, random=projects)
        if projects:
            self._create_projections()

    def init_from(self, weights: dict[str, Tensor]) -> None:
        """Start the global projections as copies of the layer's own."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                source = name.removeprefix("global_")
                if source in weights:
                    parameter.copy_(weights[source])

    def mix(  # type: ignore[override]  # takes the layer's input as well
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        x: Float[Tensor, "batch tokens width"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The window with the global keys beside it; then the global tokens' own rows."""
        dropout = self.dropout if self.training else 0.0
        offset = k.shape[2] - q.shape[2]
        cut = Band(self.radius, 0 if mask.causal else self.radius, block_for(q))
        if not self._chosen(mask.causal):
            return band_attention(q, k, v, mask.keep, cut, dropout)
        places, real = self._places(k, mask)
        columns = _columns(q, k, v, self.radius, places, real, mask.causal)
        mixed = band_attention(q, k, v, mask.keep, cut, dropout, columns)
        rows = self._global_rows(q, k, v, x, places, mask, fused_softmax)
        return _placed(mixed, rows, places - offset, real)

    def limits(self, path: Path, call: Call) -> str:
        """FlexAttention has no dropout, and is for long rows."""
        return flex.limit(call, self.dropout if self.training else 0.0) if path == "flex" else ""

    def mix_accelerator(  # type: ignore[override]  # takes the layer's input as well
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        x: Float[Tensor, "batch tokens width"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The global keys in front of each window's, in one call; then the global rows."""
        dropout = self.dropout if self.training else 0.0
        after = 0 if mask.causal else self.radius
        marked = self._marked(k, mask)
        mixed = band(q, k, v, mask.keep, self.radius, after, dropout, marked)
        return self._with_global_rows(mixed, q, k, v, x, marked, mask)

    def mix_flex(
        self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, *, mask: Mask
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Window and global keys by FlexAttention; the global rows as on the other path."""
        marked = self._marked(k, mask)
        mixed = flex.attend_in_band(q, k, v, mask, self.radius, marked, self.global_tokens)
        return self._with_global_rows(mixed, q, k, v, x, marked, mask)

    def _with_global_rows(
        self,
        mixed: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        marked: Globals | None,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The result of the windows with the rows of the global tokens among the queries."""
        if marked is None:
            return mixed
        rows = self._global_rows(q, k, v, x, marked.places, mask, few_rows)
        # A global token before the first query has a negative position there: it is not placed.
        return placed(mixed, rows, marked.places - (k.shape[2] - q.shape[2]), marked.real)

    def cost(self, work: Workload) -> Cost:
        """The window's pairs and those with global keys; the globals' scores with all x_j."""
        cut = Band(self.radius, 0 if work.causal else self.radius)
        count, width = len(self._chosen(work.causal)), self.heads.width or 0
        pieces = plan(work.queries, work.keys, cut)
        pairs = work.rows * (sum(piece.pairs() for piece in pieces) + work.queries * count)
        rows = work.rows * count
        if self.own_projections:
            flops = rows * (4 * work.keys * width + 6 * work.dim * width)
        else:
            flops = rows * 4 * work.keys * work.dim
        held = 0 if len(pieces) == 1 else work.heads * min(work.queries, AT_ONCE)
        numbers = (work.rows * work.queries + held) * work.dim + rows * 2 * width
        return Cost(
            matmul_flops=4 * pairs * work.dim + flops,
            other_flops=5 * (pairs + rows * work.keys),
            peak_bytes=numbers * work.element_bytes,
            params=sum(parameter.numel() for parameter in self.parameters()),
        )

    def _create_projections(self) -> None:
        """Initialised as PyTorch initialises linear layers, but with biases of zero."""
        inner, width = self.heads.count * self.heads.dim, self.heads.width or 0
        generator = torch.Generator().manual_seed(self.seed)
        for name in ("q", "k", "v"):
            drawn = torch.rand((inner, width), generator=generator, device="cpu") * 2 - 1
            self.register_parameter(f"global_{name}", nn.Parameter(drawn / math.sqrt(width)))
        for name in ("q", "v"):
            self.register_parameter(f"global_{name}_bias", nn.Parameter(torch.zeros(inner)))

    def _chosen(self, causal: bool) -> tuple[int, ...]:
        """The global tokens; a causal row cannot know where its end will be."""
        return tuple(g for g in self.global_tokens if g >= 0 or not causal)

    def _places(
        self, k: Tensor, mask: Mask
    ) -> tuple[Int[Tensor, "batch globals"], Bool[Tensor, "batch globals"]]:
        """The positions of each row's global tokens, and whether they exist, each counted once."""
        batch, keys = k.shape[0], k.shape[2]
        chosen = self._chosen(mask.causal)
        tokens = torch.tensor(chosen, device=k.device)
        span = torch.full((batch,), keys, device=k.device) if mask.keep is None else mask.span()
        counted = torch.where(tokens >= 0, tokens, tokens + span.unsqueeze(1))
        real = (counted >= 0) & (counted < span.unsqueeze(1))
        self._warn_if_unused(chosen, real, span)
        if mask.keep is None:
            places = counted.clamp(0, keys - 1)
        else:
            places = (counted + mask.first().unsqueeze(1)).clamp(0, keys - 1)
            real = real & mask.keep.gather(1, places)
        earlier = places.unsqueeze(2) == places.unsqueeze(1)
        return places, real & ~(earlier & real.unsqueeze(1)).tril(-1).any(2)

    def _marked(self, k: Tensor, mask: Mask) -> Globals | None:
        """The global tokens for accelerators: without pads they are known without the tensors."""
        keys = k.shape[2]
        if mask.keep is not None and self._chosen(mask.causal):
            return Globals(*self._places(k, mask))
        counted = {g if g >= 0 else keys + g for g in self._chosen(mask.causal)}
        places = sorted(counted & set(range(keys)))
        return Globals(numbers(places, k.device)[None], None) if places else None

    def _warn_if_unused(
        self,
        chosen: Sequence[int],
        real: Bool[Tensor, "batch globals"],
        span: Int[Tensor, " batch"],
    ) -> None:
        """On CPU only: elsewhere the check would stall the device."""
        if is_traced() or real.device.type != "cpu" or bool(real.any(0).all()):
            return
        longest = int(span.max())
        lost = [g for g, any_row in zip(chosen, real.any(0), strict=True) if not any_row]
        if longest:
            warnings.warn(
                f"longformer: no row has the global token(s) {lost}: the longest has {longest} "
                "tokens",
                stacklevel=4,
            )

    def _global_rows(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        places: Int[Tensor, "#batch globals"],
        mask: Mask,
        attend: Callable[..., Tensor],
    ) -> Float[Tensor, "batch heads globals dim"]:
        """What the global tokens see: all keys, causal the past ones."""
        dropout = self.dropout if self.training else 0.0
        allowed = _visible(k.shape[2], places, mask)
        if self.own_projections:
            return self._attend_globally(x, places, allowed, dropout, attend)
        queries = picked(q, (places - (k.shape[2] - q.shape[2])).clamp(min=0))
        return attend(queries, k, v, allowed, dropout=dropout)

    def _attend_globally(
        self,
        x: Float[Tensor, "batch keys width"],
        places: Int[Tensor, "#batch globals"],
        allowed: Bool[Tensor, "#batch 1 #globals keys"] | None,
        dropout: float,
        attend: Callable[..., Tensor],
    ) -> Float[Tensor, "batch heads globals dim"]:
        """Rows of the global tokens through their own projections, applied to sums of x only.

        q . (K x_j) = (K^T q) . x_j, and sum_j w_j (V x_j + b) = V (sum_j w_j x_j) + b.
        """
        heads, dim, width = self.heads.count, self.heads.dim, x.shape[2]
        inputs = x.gather(1, places.unsqueeze(2).expand(x.shape[0], -1, width))
        weights = {
            name: parameter.to(x.dtype) for name, parameter in self.named_parameters()
        }  # autocast
        q = F.linear(inputs, weights["global_q"], weights["global_q_bias"])
        q = q.view(*inputs.shape[:2], heads, dim)
        sought = torch.einsum("bghd,hdw->bghw", q, weights["global_k"].view(heads, dim, width))
        sought = sought.flatten(1, 2).unsqueeze(1) * math.sqrt(width / dim)
        if allowed is not None and allowed.shape[2] > 1:
            allowed = allowed.repeat_interleave(heads, 2)
        tokens = x.unsqueeze(1)
        seen = attend(sought, tokens, tokens, allowed, dropout=dropout)
        seen = seen.view(*inputs.shape[:2], heads, width)
        mixed = torch.einsum("bghw,hdw->bhgd", seen, weights["global_v"].view(heads, dim, width))
        return mixed + weights["global_v_bias"].view(heads, 1, dim)


def _check_options(radius: int, global_tokens: Sequence[int]) -> None:
    if radius < 0:
        raise UsageError(f"longformer: radius must not be negative; got {radius}")
    whole = all(isinstance(token, int) for token in global_tokens)
    if not whole or len(set(global_tokens)) < len(global_tokens):
        raise UsageError(
            "longformer: global_tokens must be different whole numbers, counted from a row's first "
            f"token or, if negative, from behind its last; got {global_tokens!r}"
        )


def _visible(
    keys: int, places: Int[Tensor, "#batch globals"], mask: Mask
) -> Bool[Tensor, "#batch 1 #globals keys"] | None:
    """Which keys a global token sees; None for all."""
    allowed = None if mask.keep is None else mask.keep[:, None, None]
    if mask.causal:
        past = torch.arange(keys, device=places.device) <= places[:, None, :, None]
        allowed = past if allowed is None else allowed & past
    return allowed


def _columns(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    radius: int,
    places: Int[Tensor, "#batch globals"],
    real: Bool[Tensor, "batch globals"],
    causal: bool,
) -> Columns:
    """The global keys, for the queries that do not have them in their window."""
    offset = k.shape[2] - q.shape[2]
    positions = torch.arange(q.shape[2], device=q.device).unsqueeze(1) + offset
    ahead = places.unsqueeze(1) - positions
    outside = ahead < -radius if causal else ahead.abs() > radius
    seen = outside & real.unsqueeze(1)
    return Columns(picked(k, places), picked(v, places), seen.unsqueeze(1))


def _placed(
    mixed: Float[Tensor, "batch heads queries dim"],
    rows: Float[Tensor, "batch heads globals dim"],
    places: Int[Tensor, "#batch globals"],
    real: Bool[Tensor, "batch globals"],
) -> Float[Tensor, "batch heads queries dim"]:
    """Write the global tokens' rows to their positions among the queries."""
    real = real & (places >= 0)
    recorded = mixed.requires_grad or rows.requires_grad
    if not (is_traced() or recorded or mixed.device.type != "cpu"):
        sample, token = real.nonzero().unbind(1)
        mixed[sample, :, places[sample, token]] = rows[sample, :, token]
        return mixed
    return placed(mixed, rows, places, real)
