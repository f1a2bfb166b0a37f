"""Sums over keys through features, all or up to each query, in products without a loop.

Keys may carry weights of any range, given as logarithms. Each sum is divided by the largest weight
that it has seen, so nothing overflows. No weight is lost to one that a query may not see.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.mechanisms.shared.products import exp_in, in_parts, recorded, wide_product, wide_type

CHUNK = 128
"""Tokens that are compared pair by pair; earlier ones are summed."""

GROUP = 32
"""Chunks, at most, that are summed in one product; groups are summed first."""

HIDDEN = -1e30
"""The logarithm of a weight that counts as zero; finite, so that differences stay numbers."""

_NOTHING = 2 * HIDDEN


@dataclass(frozen=True)
class Weights:
    """Weights of keys: as logarithms, or else whether they count; without both, all are one.

    ``floor`` times the weight of all visible keys is how near a denominator may come to zero.
    """

    logs: Float[Tensor, "batch _ keys"] | None = None
    keep: Bool[Tensor, "batch keys"] | None = None
    floor: float = 0.0


Past = Callable[[Tensor, Tensor, Tensor, Weights], Tensor]
"""What sums as ``mix_past`` does: of queries, keys, values and weights."""


def mix_all(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    weights: Weights,
    *,
    exact: bool = False,
) -> Float[Tensor, "batch heads queries dim"]:
    """out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = weight_j (queries_i . keys_j), over all j.

    Features may have any sign. Sums are means, so that float16 holds them. ``exact`` reads them
    without rounding them to half precision: for few features that nearly cancel.
    """
    dtype = v.dtype
    sums, totals = _means(keys, v.to(keys.dtype), weights)
    if exact:
        both = in_parts(torch.cat([sums, totals[..., None]], -1), queries.dtype, 2)
        mixed = wide_product(torch.cat([queries] * len(both), -1), torch.cat(both, -2))
        mixed, read = mixed[..., :-1], mixed[..., -1:]
        return quotient(mixed, guarded(read, weights.floor), dtype)
    product = torch.matmul if weights.logs is None else wide_product
    mixed = product(queries, sums.to(queries.dtype))
    read = wide_product(queries, totals.to(queries.dtype)[..., None])
    return quotient(mixed, guarded(read, weights.floor), dtype)


def _means(
    keys: Tensor, v: Tensor, weights: Weights
) -> tuple[Float[Tensor, "batch heads features dim"], Float[Tensor, "batch heads features"]]:
    """Sums over the keys, of their features with values and of features alone, by all weight."""
    wide, keep = wide_type(v.dtype), weights.keep
    if weights.logs is None and keep is None:
        count = v.shape[2]
        return wide_product(keys.mT, v) / count, keys.sum(-2, dtype=wide) / count
    if weights.logs is None and keep is not None:
        row = keep[:, None].to(v.dtype)
        counts = keep.sum(-1).clamp_min(1).to(wide)[:, None, None]
        scale = 1 / counts
    else:
        assert weights.logs is not None
        row, scale = weights.logs.softmax(-1).to(v.dtype), v.new_ones((1, 1, 1), dtype=wide)
    sums = wide_product(keys.mT, v * row[..., None]) * scale[..., None]
    return sums, wide_product(row.to(keys.dtype)[..., None, :], keys)[..., 0, :] * scale


def quotient(
    mixed: Float[Tensor, "*rows dim"], totals: Float[Tensor, "*rows 1"], dtype: torch.dtype
) -> Float[Tensor, "*rows dim"]:
    """mixed / totals, rounded once to a type; in place where nothing is recorded."""
    if recorded(mixed, totals):
        return (mixed / totals).to(dtype)
    if mixed.dtype == dtype:
        return mixed.div_(totals)
    return torch.div(mixed, totals, out=torch.empty_like(mixed, dtype=dtype))


def guarded(totals: Float[Tensor, "*rows"], least: Tensor | float) -> Float[Tensor, "*rows"]:
    """Denominators, moved off zero without changing their sign."""
    tiny = torch.finfo(totals.dtype).tiny
    if isinstance(least, float) and not least:  # none is negative
        return totals.clamp_min(tiny)
    if isinstance(least, Tensor):
        return torch.copysign(torch.maximum(totals.abs(), least.clamp_min(tiny)), totals)
    return torch.copysign(totals.abs().clamp_min(max(least, tiny)), totals)


def mix_past(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    weights: Weights,
) -> Float[Tensor, "batch heads queries dim"]:
    """``mix_all`` over the keys up to each query; the queries are the last tokens.

    float16 has no range for sums of many tokens, so there all is float32.
    """
    dtype, dim, count = v.dtype, v.shape[3], queries.shape[2]
    if torch.float16 in (dtype, queries.dtype):
        queries, keys, v = queries.float(), keys.float(), v.float()
    v = F.pad(v.to(keys.dtype), (0, 8 - dim % 8), value=1)  # further columns sum the weights
    if weights.logs is None and weights.keep is not None:
        v = v * weights.keep[:, None, :, None]
    early = keys.shape[2] - count
    times = None if weights.logs is None else _Times.of(weights.logs, early, count, keys)
    first = None
    if early:
        counted = v[:, :, :early]
        if times is not None:
            counted = counted * times.of_first[..., None].to(v.dtype)
        first = keys[:, :, :early].mT @ counted
    queries, keys, v = (_folded(part[:, :, -count:], count) for part in (queries, keys, v))
    mixed = _mixed(queries, keys, v, first, times)
    totals = mixed[..., dim : dim + 1]
    if weights.floor:
        reference = None if times is None else times.reference
        seen = visible(weights, reference, early, queries, totals.dtype)
        least = _folded(seen[..., None], count) * weights.floor
        totals = guarded(totals, least)
    else:
        totals = guarded(totals, 0.0)
    mixed = quotient(mixed[..., :dim], totals, dtype)
    return mixed.flatten(2, 4)[:, :, :count]


@dataclass(frozen=True)
class _Times:
    """Logarithms of weights, each relative to the largest weight up to the end of its chunk.

    ``inside`` are those of the keys and ``largest`` those of the largest weight up to each token.
    ``ends`` are the largest weights up to the end of each chunk, ``starts`` those before it,
    ``of_first`` the weights of keys before the first query.
    """

    inside: Tensor
    largest: Tensor
    ends: Tensor
    starts: Tensor
    of_first: Tensor
    before_all: Tensor
    reference: Tensor

    @classmethod
    def of(cls, logs: Tensor, early: int, count: int, like: Tensor) -> _Times:
        """Those of ``early`` keys and of ``count`` more, the queries' own."""
        wide = wide_type(like.dtype)
        old, logs = logs[..., :early], _filled(logs[..., early:], count)
        reference = logs.detach().cummax(-1).values
        before_all = torch.full_like(reference[..., 0], _NOTHING)
        if early:
            before_all = old.detach().amax(-1)
            reference = reference.maximum(before_all[..., None])
            old = (old - before_all[..., None]).exp().to(wide)
        folded = reference.view(*reference.shape[:2], *_shape(count))
        ends = folded[..., -1]
        starts = torch.cat([before_all[..., None], ends.flatten(-2)[..., :-1]], -1)
        inside, largest = (
            (part - ends[..., None]).to(wide) for part in (logs.view(folded.shape), folded)
        )
        starts = starts.view_as(ends)
        return cls(inside, largest, ends, starts, old, before_all, reference[..., :count])


def visible(
    weights: Weights,
    reference: Float[Tensor, "batch _ queries"] | None,
    early: int,
    queries: Tensor,
    dtype: torch.dtype,
) -> Float[Tensor, "_ _ tokens"]:
    """The weight of all keys that each query may see, over exp(reference) where they have logs."""
    if weights.logs is not None and reference is not None:
        seen = weights.logs.logcumsumexp(-1)[..., early:]
        return (seen - reference).exp().to(dtype)
    if weights.keep is not None:
        return weights.keep[:, None].to(dtype).cumsum(-1)[..., early:]
    count = math.prod(queries.shape[2:-1])
    seen = torch.arange(early + 1, early + count + 1, device=queries.device, dtype=dtype)
    return seen[None, None]


def _mixed(
    queries: Tensor, keys: Tensor, v: Tensor, first: Tensor | None, times: _Times | None
) -> Float[Tensor, "batch heads groups chunks tokens wide"]:
    """Sums over a chunk's own keys, pair by pair, and over all earlier ones."""
    scores = queries @ keys.mT
    if times is None:
        before = _plain_before(keys.mT @ v, first)
        inside, earlier = wide_product(scores.tril_(), v), wide_product(queries, before)
        return inside + earlier if recorded(inside, earlier) else inside.add_(earlier)
    relative = times.inside[..., None, :] - times.largest[..., None]
    if recorded(relative, scores):  # later keys may overflow, and infinity has no gradient
        scores = (scores * exp_in(relative.clamp(max=0), scores.dtype)).tril_()
    else:
        scores = scores.mul_(exp_in(relative, scores.dtype)).tril_()
    counted = v * exp_in(times.inside, v.dtype)[..., None]
    before = _sums_before(keys.mT @ counted, first, times)
    carried = ((times.starts - times.ends).to(times.largest.dtype)[..., None] - times.largest).exp()
    earlier = wide_product(queries, before)
    return torch.addcmul(wide_product(scores, v), earlier, carried[..., None])


def _plain_before(
    sums: Float[Tensor, "batch heads groups chunks features wide"],
    first: Float[Tensor, "batch heads features wide"] | None,
) -> Float[Tensor, "batch heads groups chunks features wide"]:
    """``_sums_before`` where all weights are one."""
    flat = sums.flatten(4)
    groups, chunks = flat.shape[2:4]
    summed = sums.new_ones(chunks + 1, chunks).tril_(-1) @ flat
    totals = summed[..., -1, :]  # of each group
    if first is not None:
        totals = torch.cat([first.flatten(2)[:, :, None], totals], 2)
    early = totals.shape[2] - groups
    carried = sums.new_ones(groups, groups + early).tril_(early - 1) @ totals
    return (summed[..., :-1, :] + carried[..., None, :]).view_as(sums)


def _sums_before(
    sums: Float[Tensor, "batch heads groups chunks features wide"],
    first: Float[Tensor, "batch heads features wide"] | None,
    times: _Times,
) -> Float[Tensor, "batch heads groups chunks features wide"]:
    """The sums of all keys before each chunk: in its group, and of the groups before it."""
    flat, dtype = sums.flatten(4), sums.dtype
    ends, opening = times.ends, times.starts[..., 0]
    steps = _steps(ends, torch.cat([times.starts, ends[..., -1:]], -1), dtype)
    summed = steps @ flat  # the last sum is that of the group
    totals, steps = summed[..., -1, :], _steps(ends[..., -1], opening, dtype)
    if first is not None:
        totals = torch.cat([first.flatten(2)[:, :, None], totals], 2)
        left = exp_in(times.before_all[..., None] - opening, dtype)
        steps = torch.cat([left[..., None], steps], -1)
    carried = steps @ totals
    scales = exp_in(opening[..., None] - times.starts, dtype)
    before = torch.addcmul(summed[..., :-1, :], scales[..., None], carried[..., None, :])
    return before.view_as(sums)


def _steps(
    ends: Float[Tensor, "*rows count"], starts: Float[Tensor, "*rows more"], dtype: torch.dtype
) -> Float[Tensor, "*rows more count"]:
    """How much of sum j is left at the start of sum i: exp(ends_j - starts_i) for j before i."""
    return exp_in(ends[..., None, :] - starts[..., None], dtype).tril_(-1)


def _shape(count: int) -> tuple[int, int, int]:
    """Groups, chunks of a group and tokens of a chunk that hold ``count`` tokens."""
    size = min(CHUNK, count)
    chunks = -(-count // size)
    groups = -(-chunks // GROUP)
    return groups, -(-chunks // groups), size


def _filled(logs: Float[Tensor, "batch _ tokens"], count: int) -> Float[Tensor, "batch _ filled"]:
    missing = math.prod(_shape(count)) - count
    return F.pad(logs, (0, missing), value=HIDDEN) if missing else logs


def _folded(
    x: Float[Tensor, "batch _ tokens features"], count: int
) -> Float[Tensor, "batch _ groups chunks size features"]:
    """Tokens in chunks in groups; the last ones are filled with zeros."""
    missing = math.prod(_shape(count)) - x.shape[2]
    if missing > 0:
        x = F.pad(x, (0, 0, 0, missing))
    return x.view(*x.shape[:2], *_shape(count), x.shape[3])
