"""Efficient attention: softmax of each query over its features, of each key feature over tokens."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import require_choice
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
    first_tokens,
    in_blocks,
    in_cache,
    rows_at_once,
    state,
    sums_before,
)
from sparing.mechanisms.shared.arithmetic import dots, fused_softmax, largest_until, wide
from sparing.mechanisms.shared.sums.feature_sums import (
    divided,
    over_all,
    over_past,
    over_sums,
    past_keys,
    widest,
)
from sparing.mechanisms.shared.sums.fla_sums import fla_limits, past_by_fla

NORMALISATIONS = ("softmax", "scaling")

# Keys are taken relative to the largest so far. This lifts them, so float32 has as much range below
# the largest as above: a spread of 135 within a block instead of 75.
_HEADROOM = 60.0
# Logarithms that sums may not fall below, so that gradients (inverses times others) are finite.
# They are of a sum over keys, and of one block's reference over the last one's (in float64).
_LEAST_TOTAL = {torch.float32: -75.0, torch.float64: -300.0}
_LEAST_SCALE = -400.0
# Shares of a feature in a query that rounding hides.
_LEAST_SHARE = 1e-8

_State = tuple[Tensor, Tensor, Tensor]
"""For each feature its largest key so far, the sum of exp(key - largest), and that of values."""


class Efficient(Mechanism):
    """Attention to ``dim`` global summaries of the values, one for each key feature.

    Formula: out_i = sum_c softmax(q_i)_c g_c with g_c = sum_j v_j exp(k_jc) / sum_j exp(k_jc).
    normalisation="scaling": out_i = (1 / n) sum_j (q_i . k_j) v_j, n the number of such j.

    Symbols: i runs over queries, j over the keys that i may see, c over the features of a head;
    the softmax of q_i is over its features.

    Cost: 4 dim^2 flops for each token and no square; causal, 4 dim^2 + 4 dim x 64. There is no
    setting in which it equals softmax; it equals its own square form, and ``kerformer`` with
    se="none", axis="token" and query_map="softmax". At the last token the causal form equals the
    bidirectional one.

    Source: Shen et al., 2021, arXiv 1812.01243, section 3 (both normalisations; no 1/sqrt(dim)).
    What differs: the causal form, which the paper does not have and its authors call impossible.
    Each feature has its own denominator, summed up to i, so g_c becomes g_ic. (Dividing once by q_i
    . sum_j exp(k_j), as packages do, is another mechanism.) It works in blocks of 64 tokens, keys
    relative to the largest so far in their feature. If a key is more than about 130 above the
    largest one before it, float32 cannot hold both. Sums then go token by token on CPU; in graphs
    the queries in between become NaN. So they do on accelerators, where keys are relative to the
    largest of the whole row, however far ahead.
    """

    traits = Traits(
        paper="Efficient Attention: Attention with Linear Complexities, arXiv 1812.01243",
        year=2021,
        family="kernel",
        arm=True,
        causal=True,
        cross=True,
        permutable=True,
    )
    spreads_nan = True
    gains_by_compiling = "training"
    accelerated = ("fla", "accelerator")

    def __init__(self, heads: Heads, *, normalisation: str = "softmax") -> None:
        super().__init__(heads)
        require_choice("efficient", "normalisation", normalisation, NORMALISATIONS)
        self.normalisation = normalisation

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Summaries of the values, then their mean for each query."""

        def mix_rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            q, k, v = wide(q), wide(k), wide(v)
            if self.normalisation == "scaling":
                return _scaled(q, k, v, keep, mask.causal)
            if keep is not None:
                k = k.masked_fill(~keep[:, None, :, None], torch.finfo(k.dtype).min)
            if mask.causal:
                return _past(q, k, v)
            return q.softmax(-1) @ state(k.softmax(-2), v)

        return in_cache(mix_rows, q, k, v, mask.keep)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Summaries by fused attention; causal, one reference for each feature of a head."""
        q, k, v = streams

        def rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            if self.normalisation == "scaling":
                q, k, v = wide(q), wide(k), wide(v)  # sums of both signs cancel
                shares = q / _counts(k, keep, q.shape[2], causal=mask.causal)
                return (over_past if mask.causal else over_all)(shares, k, v)
            if mask.causal:
                shares, keys = _shares_and_keys(q, k, keep)
                return over_past(shares, keys, v.to(keys.dtype))
            return over_sums(q.softmax(-1), _summaries(k, v, keep))

        return fused(rows)(q, k, v, mask.keep).to(q.dtype)

    def mix_fla(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Causal sums by flash-linear-attention."""
        q, k, v = streams
        shares, keys = fused(_shares_and_keys)(q, k, mask.keep)
        return past_by_fla(shares, keys, v)

    def limits(self, path: Path, call: Call) -> str:
        """What flash-linear-attention cannot do."""
        if path != "fla":
            return ""
        if self.normalisation == "scaling":
            return "features of both signs are summed in float32"
        if call.dtype == torch.float16:
            return "float16 cannot hold the causal exponentials"
        return fla_limits(call, call.dim)

    def cost(self, work: Workload) -> Cost:
        """Two products with a dim x dim state, and an exponential for each number in q and k."""
        dim, queries, keys = work.dim, work.queries, work.keys
        flops = 2 * dim * dim * (queries + keys)
        other = 4 * dim * (queries + keys)
        held = dim * max(keys, 2 * queries)
        if work.causal:
            size = min(BLOCK, queries)
            blocks = -(-queries // size)
            flops += 4 * dim * dim * (blocks * size - queries)  # the last block is computed whole
            if self.normalisation == "scaling":
                flops += 2 * dim * blocks * size
            flops += 4 * dim * size * size * blocks
            other += dim * (4 * queries + 6 * dim * blocks)
            held = dim * (2 * keys + 8 * queries) + blocks * (7 * dim * dim + size * size)
        rows = min(work.rows, rows_at_once(max(queries, keys), dim))
        output = work.rows * queries * dim * work.element_bytes
        return Cost(
            matmul_flops=work.rows * flops,
            other_flops=work.rows * other,
            peak_bytes=output + rows * held * max(4, work.element_bytes),
        )


def _scaled(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
    """Dot products as weights, divided by the number of keys; pads are zero already."""
    if causal:
        mixed, _ = feature_sums(q, k, v, causal=True)
    else:
        mixed = q @ state(k, v)
    return mixed / _counts(k, keep, q.shape[2], causal=causal)


def _counts(
    k: Tensor, keep: Tensor | None, queries: int, *, causal: bool
) -> Int[Tensor, "rows 1 queries_or_1 1"]:
    """How many keys each query sees, at least 1."""
    if keep is None:
        keep = torch.ones_like(k[:1, 0, :, 0], dtype=torch.bool)
    counts = keep.sum(1, keepdim=True)
    if causal:
        counts = keep.int().cumsum(1)[:, k.shape[2] - queries :]
    return counts.clamp(min=1)[:, None, :, None]


def _summaries(
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
) -> Float[Tensor, "batch heads dim dim"]:
    """g_c for each feature: attention of one query, a unit vector, to the keys as they are."""
    dim = k.shape[3]
    units = torch.eye(dim, dtype=k.dtype, device=k.device) * math.sqrt(dim)
    allowed = None if keep is None else keep[:, None, None]
    return fused_softmax(units.expand(*k.shape[:2], -1, -1), k, v, allowed)


def _shares_and_keys(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
) -> tuple[Float[Tensor, "batch heads queries dim"], Float[Tensor, "batch heads keys dim"]]:
    """softmax(q_i)_c / z_ic, and e_jc = exp(k_jc - r_c) with r_c one reference for all tokens.

    Where a z_ic vanishes beside a later key, the query becomes NaN. float16 is widened to float32.
    """
    exact, count = widest(k.dtype), q.shape[2]
    dtype = exact if k.dtype == torch.float16 else k.dtype
    if keep is not None:
        k = k.masked_fill(~keep[:, None, :, None], torch.finfo(k.dtype).min)
    lowest = torch.finfo(k.dtype).min / 2
    reference = k.detach().amax(2, keepdim=True).to(exact).clamp_min(lowest) - _HEADROOM
    keys = (k - reference).exp_().to(dtype)
    totals = past_keys(keys, count)
    totals = F.threshold(totals, math.exp(_LEAST_TOTAL[exact]), math.nan)
    if keep is not None:  # before the first real key there is nothing to lose
        started = Mask(keep, causal=True).sees_any(count)
        assert started is not None
        totals = totals.where(started[:, None, :, None], 1)
    return divided(q.to(dtype).softmax(-1), totals), keys


def _past(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
) -> Float[Tensor, "batch heads queries dim"]:
    """The causal form: weights inside a block written out, earlier blocks as a state.

    Let e_jc = exp(k_jc - r_c), with r_c one reference for the block. The weight of j for i is sum_c
    (q_ic / z_ic) e_jc, with z_ic the sum of e_jc up to i. Hidden keys are the least number there
    is, which gives e = 0.
    """
    count, least = q.shape[2], torch.finfo(k.dtype).min
    early = k.shape[2] - count
    old_k, old_v = k[:, :, :early], v[:, :, :early]
    k, v = in_blocks(k[:, :, early:], fill=least), in_blocks(v[:, :, early:])
    references = _references(old_k, k)
    keys = (k - references[:, :, 1:, None]).exp()
    old_keys = (old_k - references[:, :, :1]).exp()
    sums, totals = _states(references, old_keys, old_v, keys, v)
    totals = keys.cumsum(3).add_(totals[:, :, :, None])
    q, smallest = in_blocks(q), math.exp(_LEAST_TOTAL[totals.dtype])
    lost = _lost(totals, smallest, k, references)
    if lost is not None and not is_traced() and q.device.type == "cpu":
        mixed = _token_by_token(q.softmax(-1), k, v, (old_k, old_v))
        return first_tokens(mixed.flatten(2, 3), count)
    queries = _shares(q, totals.clamp_min(smallest))
    if lost is not None:  # a share too small to matter may have any denominator
        queries = queries.masked_fill(lost & (q.softmax(-1) > _LEAST_SHARE), torch.nan)
    # Weights of the future may be infinite: they are selected away, not multiplied.
    weights = (queries @ keys.transpose(-1, -2)).tril()
    return first_tokens((weights @ v).add_(queries @ sums).flatten(2, 3), count)


def _lost(
    totals: Float[Tensor, "batch heads blocks size dim"],
    smallest: float,
    k: Float[Tensor, "batch heads blocks size dim"],
    references: Float[Tensor, "batch heads groups dim"],
) -> Bool[Tensor, "batch heads blocks size dim"] | None:
    """Features with keys so far that vanish beside a later one of their block; None without any.

    They are looked for on CPU only, and not while tracing. Before the first real key nothing can
    vanish.
    """
    looks = totals.device.type == "cpu" and not is_traced()
    last = references[:, :, -1:]
    if looks and bool(
        (totals.detach().amin() >= smallest) & ((last - references).amax() < -_LEAST_SCALE)
    ):
        return None
    real = torch.finfo(k.dtype).min / 4
    started = (k[..., :1] > real).int().cumsum(3) > 0
    started = started | (references[:, :, :-1, None, :1] > real)
    far = (references[:, :, :-1] > real) & (last - references[:, :, :-1] >= -_LEAST_SCALE)
    lost = started & ((totals.detach() < smallest) | far[:, :, :, None])
    return lost if not looks or bool(lost.any()) else None


def _token_by_token(
    shares: Float[Tensor, "batch heads blocks size dim"],
    k: Float[Tensor, "batch heads blocks size dim"],
    v: Float[Tensor, "batch heads blocks size dim"],
    old: tuple[Float[Tensor, "batch heads early dim"], Float[Tensor, "batch heads early dim"]],
) -> Float[Tensor, "batch heads blocks size dim"]:
    """The causal form for keys of any spread: sums relative to the largest key so far.

    The sums before each block come from one loop over the blocks, those inside from one loop over
    the positions in a block. This is far slower than one reference for a block, and always exact.
    """
    before = [_absorbed(_nothing(k[:, :, 0, 0], v[:, :, 0, 0]), *old)]
    for block in range(k.shape[2] - 1):
        before.append(_absorbed(before[-1], k[:, :, block], v[:, :, block]))
    reference, total, values = (torch.stack(parts, 2) for parts in zip(*before, strict=True))
    state, mixed = (reference, total, values), []
    for position in range(k.shape[3]):
        token = slice(position, position + 1)
        state = _absorbed(state, k[:, :, :, token], v[:, :, :, token])
        quotients = shares[:, :, :, position] / state[1].masked_fill(state[1] == 0, 1)
        mixed.append(dots(state[2].mT, quotients))
    return torch.stack(mixed, 3)


def _nothing(k: Float[Tensor, "*rows dim"], v: Float[Tensor, "*rows dim"]) -> _State:
    """The state before any key."""
    reference = torch.full_like(k, torch.finfo(k.dtype).min)
    return reference, torch.zeros_like(k), k.new_zeros(*k.shape, v.shape[-1])


def _absorbed(
    state: _State, k: Float[Tensor, "*rows tokens dim"], v: Float[Tensor, "*rows tokens dim"]
) -> _State:
    """The state with more keys; hidden ones, the least number there is, change nothing."""
    if not k.shape[-2]:
        return state
    before, total, values = state
    reference = torch.maximum(before, k.detach().amax(-2))
    scale = (before - reference).exp()
    weights = (k - reference[..., None, :]).exp()
    weights = weights.masked_fill(k <= torch.finfo(k.dtype).min / 4, 0)
    values = values * scale[..., None] + weights.mT @ v
    return reference, total * scale + weights.sum(-2), values


def _shares(q: Tensor, totals: Tensor) -> Tensor:
    """softmax(q) / totals; where gradients are recorded, as a difference of logarithms.

    The gradient of a quotient holds the square of its denominator, which would leave the range.
    """
    if torch.is_grad_enabled() and (q.requires_grad or totals.requires_grad):
        return (q.log_softmax(-1) - totals.log()).exp()
    return q.softmax(-1) / totals


def _references(old: Tensor, blocks: Tensor) -> Float[Tensor, "batch heads groups dim"]:
    """The largest key so far in each feature, for the old keys and each block, less the headroom.

    The result does not depend on them, so no gradient runs through them.
    """
    old, blocks = old.detach(), blocks.detach()
    least = torch.finfo(old.dtype).min
    first = torch.full_like(blocks[:, :, 0, 0], least) if old.shape[2] == 0 else old.amax(2)
    largest = largest_until(torch.cat([first[:, :, None], blocks.amax(3)], 2), 2)
    return largest.clamp_min(least / 2) - _HEADROOM


def _states(
    references: Tensor, old_keys: Tensor, old_v: Tensor, keys: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums of keys times values and of keys before each block, relative to its own reference.

    Between blocks they are summed relative to the last reference: float64 has the range for that.
    """
    scales = references.double()
    scales = (scales - scales[:, :, -1:]).clamp_min(_LEAST_SCALE).exp()
    first, rest = scales[:, :, 0], scales[:, :, 1:]
    sums = sums_before(
        (old_keys.transpose(-1, -2) @ old_v) * first[..., None],
        (keys.transpose(-1, -2) @ v) * rest[..., None],
    )
    totals = sums_before(old_keys.sum(2) * first, keys.sum(3) * rest)
    return (sums / rest[..., None]).to(keys.dtype), (totals / rest).to(keys.dtype)
