"""cosFormer: linear attention with weights that fall off with distance, as a cosine."""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.execution.fusing import fused
from sparing.core.execution.path import Call, Path
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._kernel import (
    BLOCK,
    feature_sums,
    in_cache,
    positive,
    rows_at_once,
    state,
)
from sparing.mechanisms.shared.arithmetic import dots, wide
from sparing.mechanisms.shared.sums.feature_sums import (
    all_keys,
    nonzero,
    over_all,
    over_past,
    past_keys,
    scaled,
    weighed,
    widest,
)
from sparing.mechanisms.shared.sums.fla_sums import fla_limits, past_by_fla

_CHOICES = {"activation": ("relu", "elu"), "length": ("own", "fixed")}


class Cosformer(Mechanism):
    """Linear attention with weights that shrink with the distance between query and key.

    Formula: out_i = sum_j s_ij v_j / sum_j s_ij with
    s_ij = (phi(q_i) . phi(k_j)) cos(pi / 2 (i - j) / L) and phi(x) = max(x, 0).

    Symbols: i runs over queries, j over the keys that i may see; both are positions in the row, so
    that pads between tokens keep their distances. L is the row's own length from its first to its
    last real token; causal, and with length="fixed", it is ``Heads.tokens``. ``activation="elu"``
    takes phi(x) = elu(x) + 1. A query with only zero weights gets zeros.

    Cost: 8 dim^2 flops for each token and no square, causal or not. There is no setting in which
    it equals softmax; it equals its own square form, and for L far above the row's length linear
    attention with the same phi.

    Source: Qin et al., 2022, arXiv 2202.08791, equations 9 to 13: cos(a - b) = cos a cos b + sin a
    sin b makes two sums over the keys. What differs: the authors' code takes the padded length of
    the batch for L, so a row's output changes with its neighbours; here L is the row's own. Causal,
    a row's own length would leak its future, and cached keys would change with every token. There L
    is fixed, and rows longer than L are refused, since their weights would be negative.
    Denominators are not clamped at 1e-6, which would bend rows of small features. On accelerators
    cosine and sine double the features of queries and keys in every form.
    """

    traits = Traits(
        paper="cosFormer: Rethinking Softmax in Attention, arXiv 2202.08791",
        year=2022,
        family="kernel",
        arm=True,
        causal=True,
    )
    spreads_nan = True
    accelerated = ("fla", "accelerator")

    def __init__(self, heads: Heads, *, activation: str = "relu", length: str = "own") -> None:
        super().__init__(heads)
        self.activation = activation
        self.length = length
        for name, known in _CHOICES.items():
            require_choice("cosformer", name, getattr(self, name), known)
        if length == "fixed" and heads.tokens is None:
            raise UsageError("cosformer: length='fixed' needs Heads(tokens=...), the longest row")
        self.traits = dataclasses.replace(type(self).traits, any_length=length == "own")

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Features of queries and keys, then two sums over the keys."""
        length = self._common_length(k.shape[2], mask)
        features = torch.relu if self.activation == "relu" else positive
        turns = None if mask.keep is not None else _turns(k, None, length, wide(k).dtype)

        def mix_rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            queries, keys, v = features(wide(q)), features(wide(k)), wide(v)
            cos, sin = turns or _turns(keys, keep, length, keys.dtype)
            by_cos = _weighted(keys, cos, keep)
            by_sin = _weighted(keys, sin, keep)
            start = k.shape[2] - q.shape[2]
            cos, sin = cos[:, None, start:], sin[:, None, start:]
            if mask.causal:
                return _past(queries, by_cos, by_sin, v, cos, sin)
            return _whole(queries, by_cos, by_sin, v, cos, sin)

        return in_cache(mix_rows, q, k, v, mask.keep)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Twice as many features, for cosines and sines, then a few products for all heads."""
        q, k, v = streams
        length = self._common_length(k.shape[2], mask)

        def rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            shares, keys = self._shares(q, k, keep, length, causal=mask.causal)
            return (over_past if mask.causal else over_all)(shares, keys, v)

        return fused(rows)(q, k, v, mask.keep)

    def mix_fla(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Causal sums by flash-linear-attention."""
        q, k, v = streams
        length = self._common_length(k.shape[2], mask)

        def rows(q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
            return self._shares(q, k, keep, length, causal=True)

        shares, keys = fused(rows)(q, k, mask.keep)
        return past_by_fla(shares, keys, v)

    def limits(self, path: Path, call: Call) -> str:
        """What flash-linear-attention cannot do."""
        return fla_limits(call, 2 * call.dim) if path == "fla" else ""

    def _shares(
        self, q: Tensor, k: Tensor, keep: Tensor | None, length: int | None, *, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """Features of queries over their denominators, and of keys: all times cosine and sine."""
        features = torch.relu if self.activation == "relu" else positive
        queries, keys = features(q), features(k)
        turns = torch.stack(_turns(keys, keep, length, widest(keys.dtype)), -1)[:, None]
        falloffs = turns[:, :, k.shape[2] - q.shape[2] :, :, None]
        seen = turns if keep is None else turns * keep[:, None, :, None]
        keys = weighed(keys[..., None, :], seen)[0].flatten(-2)
        sums = past_keys(keys, q.shape[2]) if causal else all_keys(keys)
        both = queries[..., None, :] * torch.unflatten(sums, -1, (2, -1))
        totals = (both.sum(-1, keepdim=True, dtype=turns.dtype) * falloffs).sum(-2, keepdim=True)
        return scaled(queries[..., None, :], falloffs / nonzero(totals)).flatten(-2), keys

    def cost(self, work: Workload) -> Cost:
        """Two products with each of two dim x dim states; the features and their weights."""
        dim, queries, keys = work.dim, work.queries, work.keys
        flops = 4 * dim * (keys * dim + queries * dim + queries)
        other = dim * (5 * keys + 5 * queries)
        held = dim * (3 * keys + 4 * queries)
        if work.causal:
            size = min(BLOCK, queries)
            blocks = -(-queries // size)
            flops += 4 * dim * (2 * dim + 1) * (blocks * size - queries)  # the last block is whole
            flops += 6 * dim * size * size * blocks
            other += 4 * dim * dim * blocks
            held = dim * (5 * keys + 6 * queries) + blocks * (4 * dim * dim + size * size)
        rows = min(work.rows, rows_at_once(max(queries, keys), dim))
        output = work.rows * queries * dim * work.element_bytes
        return Cost(
            matmul_flops=work.rows * flops,
            other_flops=work.rows * other,
            peak_bytes=output + rows * held * max(4, work.element_bytes),
        )

    def _common_length(self, keys: int, mask: Mask) -> int | None:
        """L where it is the same for all rows; None where each row has its own."""
        if self.length == "own" and not mask.causal:
            return None
        tokens = self.heads.tokens
        if tokens is None:
            raise UsageError(
                "cosformer: causal needs Heads(tokens=...): weights depend on the longest row"
            )
        if is_traced() or keys <= tokens:
            return tokens
        longest = keys if mask.keep is None else int(mask.span().max())
        if longest > tokens:
            raise Unsupported(
                f"cosformer: built for rows of up to {tokens} tokens; got {longest}; weights would "
                "be negative beyond: build it with more Heads.tokens"
            )
        return tokens


def _turns(
    keys: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
    length: int | None,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "rows keys"], Float[Tensor, "rows keys"]]:
    """Cosine and sine of pi / 2 position / L for each key: neither is negative in a real token."""
    tokens = keys.shape[2]
    shares = torch.arange(tokens, device=keys.device, dtype=dtype)[None]
    if keep is None:
        shares = shares / (length or tokens)
    else:
        span = Mask(keep).span().clamp(min=1)[:, None]
        shares = (shares - Mask(keep).first()[:, None]) / (length or span)
    angles = shares.clamp(0, 1) * (math.pi / 2)
    return angles.cos(), angles.sin()


def _weighted(
    keys: Float[Tensor, "batch heads keys dim"],
    weights: Float[Tensor, "rows keys"],
    keep: Bool[Tensor, "batch keys"] | None,
) -> Float[Tensor, "batch heads keys dim"]:
    """Keys times their weights, zero at pads."""
    if keep is not None:
        weights = weights * keep
    return keys * weights[:, None, :, None]


def _whole(
    queries: Float[Tensor, "batch heads queries dim"],
    by_cos: Float[Tensor, "batch heads keys dim"],
    by_sin: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    cos: Float[Tensor, "rows 1 queries"],
    sin: Float[Tensor, "rows 1 queries"],
) -> Float[Tensor, "batch heads queries dim"]:
    """Both sums of the keys times the queries; the queries' angles weigh what comes out."""
    totals = dots(queries, by_cos.sum(-2)) * cos + dots(queries, by_sin.sum(-2)) * sin
    shares = 1 / _guarded(totals)
    mixed = (queries @ state(by_cos, v)) * (cos * shares)[..., None]
    across = queries @ state(by_sin, v)
    return torch.addcmul(mixed, across, (sin * shares)[..., None])


def _past(
    queries: Tensor, by_cos: Tensor, by_sin: Tensor, v: Tensor, cos: Tensor, sin: Tensor
) -> Float[Tensor, "batch heads queries dim"]:
    """Twice as many features, in blocks."""
    both = torch.cat([queries * cos[..., None], queries * sin[..., None]], -1)
    mixed, totals = feature_sums(both, torch.cat([by_cos, by_sin], -1), v, causal=True)
    return mixed / _guarded(totals)[..., None]


def _guarded(totals: Tensor) -> Tensor:
    """Denominators; 1 where no weight is above zero, so that the gradient is finite there."""
    return totals.where(totals > 0, 1)
