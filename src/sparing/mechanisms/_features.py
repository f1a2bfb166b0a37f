"""Attention through random features, many or signed ones: in chunks of tokens that stay in cache.

Keys may carry weights of any range, given as logarithms. Sums keep the largest weight so far as a
reference and are scaled down when a larger one comes, so nothing overflows. No weight that a query
may see is lost to one that it may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._kernel import BLOCK, first_tokens, in_blocks
from sparing.mechanisms.shared.arithmetic import dots, largest_until

GROUP = 16
"""Blocks that are paired with each other in one product."""

CHUNK = 512
"""Tokens in a chunk of features."""

_CACHED_ELEMENTS = 131072
"""Features of one thread at a time: 512 KiB in float32."""

HIDDEN = -1e30
"""The logarithm of a weight that counts as zero; finite, so that differences stay numbers."""

_NOTHING = 2 * HIDDEN

Features = Callable[[Tensor, slice], Tensor]
WeightedFeatures = Callable[[Tensor, slice], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class FeatureMap:
    """Maps queries and keys of some heads to ``count`` features each.

    ``keys`` also returns the logarithm of each key's weight, or None for a weight of 1. A
    denominator stays at least ``floor`` times the weight of all visible keys away from zero.
    Positive features need no floor.
    """

    count: int
    queries: Features
    keys: WeightedFeatures
    floor: float = 0.0


@dataclass(frozen=True)
class _Sums:
    """Sums over keys: features with values, features, weights, all divided by exp(reference)."""

    values: Tensor
    features: Tensor
    weight: Tensor
    reference: Tensor


def hidden_logs(
    keep: Bool[Tensor, "batch keys"] | None, like: Float[Tensor, "batch heads keys dim"]
) -> Float[Tensor, "batch 1 keys"]:
    """Logarithms of weights that are 1 for real tokens and 0 for pads."""
    if keep is None:
        return torch.zeros_like(like[:, :1, :, 0])
    return torch.zeros_like(keep, dtype=like.dtype).masked_fill(~keep, HIDDEN)[:, None]


def works_in_chunks(*tensors: Tensor) -> bool:
    """Whether temporaries can be freed at once: without gradients or tracing."""
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return not (recorded or is_traced())


def head_groups(heads: int, tokens: int, count: int) -> Iterator[slice]:
    """Groups of heads so small that their ``tokens`` x ``count`` features fit the cache."""
    threads = torch.get_num_threads()
    step = max(threads, threads * _CACHED_ELEMENTS // (tokens * count))
    for head in range(0, heads, step):
        yield slice(head, min(head + step, heads))


def spans(tokens: int, size: int) -> Iterator[slice]:
    """Cut ``tokens`` into chunks of ``size``."""
    for start in range(0, tokens, size):
        yield slice(start, min(start + size, tokens))


def feature_attention(
    maps: FeatureMap,
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    logs: Float[Tensor, "batch _ keys"],
    *,
    causal: bool,
    chunked: bool,
) -> Float[Tensor, "batch heads queries dim"]:
    """out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = exp(logs_j) (queries_i . keys_j), over j.

    Causal, j runs up to i; the queries are the last tokens. ``chunked`` requests the loops that
    keep temporaries small, where ``works_in_chunks`` allows them; otherwise there is no loop.
    """
    if not chunked:
        return _at_once(maps, q, k, v, logs, causal)
    mixed = torch.empty_like(q)
    logs = logs.expand(-1, q.shape[1], -1)
    tokens = min(BLOCK if causal else CHUNK, k.shape[2])
    for sample in range(q.shape[0]):
        for heads in head_groups(q.shape[1], tokens, maps.count):
            part = (sample, heads)
            rows = (q[part], k[part], v[part], logs[part])
            (_mix_past if causal else _mix_all)(maps, heads, rows, mixed[part])
    return mixed


def _mix_all(
    maps: FeatureMap, heads: slice, rows: tuple[Tensor, Tensor, Tensor, Tensor], mixed: Tensor
) -> None:
    """Mix all keys of some heads for all their queries into ``mixed``."""
    q, k, v, logs = rows
    sums = _no_keys(v, logs, maps.count)
    for span in spans(k.shape[1], CHUNK):
        sums = _absorb(sums, *_keys(maps, k[:, span], logs[:, span], heads), v[:, span])
    for span in spans(q.shape[1], CHUNK):
        mixed[:, span] = _read(maps, sums, maps.queries(q[:, span], heads))


def _mix_past(
    maps: FeatureMap, heads: slice, rows: tuple[Tensor, Tensor, Tensor, Tensor], mixed: Tensor
) -> None:
    """Mix the keys up to each query of some heads into ``mixed``."""
    q, k, v, logs = rows
    early = k.shape[1] - q.shape[1]
    sums = _no_keys(v, logs, maps.count)
    for span in spans(early, CHUNK):
        sums = _absorb(sums, *_keys(maps, k[:, span], logs[:, span], heads), v[:, span])
    for span in spans(q.shape[1], BLOCK):
        later = slice(span.start + early, span.stop + early)
        keys, weights = _keys(maps, k[:, later], logs[:, later], heads)
        queries = maps.queries(q[:, span], heads)
        mixed[:, span] = _read_block(maps, sums, queries, keys, weights, v[:, later])
        sums = _absorb(sums, keys, weights, v[:, later])


def _at_once(
    maps: FeatureMap, q: Tensor, k: Tensor, v: Tensor, logs: Tensor, causal: bool
) -> Float[Tensor, "batch heads queries dim"]:
    """The same without a loop; causal, one product gives every block the sums before it."""
    heads, count = slice(None), q.shape[2]
    queries, (keys, logs) = maps.queries(q, heads), _keys(maps, k, logs, heads)
    logs = logs.expand(-1, q.shape[1], -1)
    sums = _no_keys(v, logs, maps.count)
    if not causal:
        return _read(maps, _absorb(sums, keys, logs, v), queries)
    if early := k.shape[2] - count:
        sums = _absorb(sums, keys[:, :, :early], logs[:, :, :early], v[:, :, :early])
    queries, keys, v = (in_blocks(part) for part in (queries, keys[:, :, early:], v[:, :, early:]))
    logs = in_blocks(logs[:, :, early:, None], HIDDEN)[..., 0]
    before = _sums_before(sums, _absorb(_no_keys(v, logs, maps.count), keys, logs, v))
    return first_tokens(_read_block(maps, before, queries, keys, logs, v).flatten(2, 3), count)


def _keys(maps: FeatureMap, k: Tensor, logs: Tensor, heads: slice) -> tuple[Tensor, Tensor]:
    keys, extra = maps.keys(k, heads)
    return keys, logs if extra is None else logs + extra


def _no_keys(v: Tensor, logs: Tensor, count: int) -> _Sums:
    """Empty sums, for values (..., tokens, dim)."""
    zeros = v.new_zeros(*v.shape[:-2], count)
    values = v.new_zeros(*v.shape[:-2], count, v.shape[-1])
    reference = torch.full_like(logs[..., 0], _NOTHING)
    return _Sums(values, zeros, zeros[..., 0], reference)


def _absorb(sums: _Sums, keys: Tensor, logs: Tensor, v: Tensor) -> _Sums:
    """Add keys; the reference rises to their largest weight, which cancels in every quotient."""
    reference = torch.maximum(sums.reference, logs.detach().amax(-1))
    weights = (logs - reference[..., None]).to(keys.dtype).exp()
    scale = (sums.reference - reference).to(keys.dtype).exp()
    values = keys.transpose(-1, -2) @ (v * weights[..., None])
    return _Sums(
        values.add_(sums.values * scale[..., None, None]),
        sums.features * scale[..., None] + dots(keys.transpose(-1, -2), weights),
        sums.weight * scale + weights.sum(-1),
        reference,
    )


def _read(maps: FeatureMap, sums: _Sums, queries: Tensor) -> Float[Tensor, "*rows queries dim"]:
    """The outputs of queries from sums over all their keys."""
    least = maps.floor * sums.weight[..., None]
    return (queries @ sums.values) / _guarded(dots(queries, sums.features), least)[..., None]


def _read_block(
    maps: FeatureMap, before: _Sums, queries: Tensor, keys: Tensor, logs: Tensor, v: Tensor
) -> Float[Tensor, "*rows queries dim"]:
    """The outputs of a block's queries: earlier keys as sums, the block's own keys pair by pair.

    Each query's reference is the largest weight that it may see. So a later key, however heavy,
    does not make earlier ones vanish.
    """
    size, dtype = keys.shape[-2], keys.dtype
    base = torch.maximum(before.reference, logs.detach().amax(-1))[..., None]
    inside, past = (logs - base).to(dtype), (before.reference[..., None] - base).to(dtype)
    reference = torch.maximum(largest_until(inside, -1), past)
    future = torch.ones(size, size, dtype=torch.bool, device=v.device).triu(1)
    weights = inside[..., None, :] - reference[..., None]
    weights = weights.masked_fill(future, HIDDEN).exp()
    carried = (past - reference).exp()
    scores = (queries @ keys.transpose(-1, -2)) * weights
    mixed = scores @ v + (queries @ before.values) * carried[..., None]
    totals = scores.sum(-1) + dots(queries, before.features) * carried
    visible = weights.sum(-1) + before.weight[..., None] * carried
    return mixed / _guarded(totals, maps.floor * visible)[..., None]


def _sums_before(early: _Sums, blocks: _Sums) -> _Sums:
    """Sums of all keys before each block: ``early`` ones and those of the blocks before it.

    Many blocks are grouped, and the groups are summed first: a product over all pairs of blocks
    would be quadratic in the length again.
    """
    count = blocks.reference.shape[2]
    if count <= 2 * GROUP:
        return _all_before(early, blocks)
    grouped = _changed(blocks, _in_groups)
    nothing = _changed(grouped, lambda part: torch.zeros_like(part[:, :, 0]))
    nothing = replace(nothing, reference=torch.full_like(nothing.reference, _NOTHING))
    ends = _changed(grouped, lambda part: torch.cat([part, part[:, :, -1:]], 2))
    totals = _changed(_all_before(nothing, ends), lambda part: part[:, :, -1])
    rows = blocks.reference.shape[1]
    totals = _changed(totals, lambda part: _by_head(part, rows))
    before = _changed(_sums_before(early, totals), lambda part: part.flatten(1, 2))
    grouped_sums = _all_before(before, grouped)
    return _changed(
        grouped_sums, lambda part: _by_head(part, rows).flatten(2, 3).narrow(2, 0, count)
    )


def _in_groups(part: Tensor) -> Tensor:
    """Blocks (batch, heads, blocks, ...) as (batch, heads x groups, GROUP, ...).

    The last block is repeated to fill the last group: nothing comes after it.
    """
    missing = -part.shape[2] % GROUP
    if missing:
        last = part[:, :, -1:].expand(-1, -1, missing, *part.shape[3:])
        part = torch.cat([part, last], 2)
    return part.reshape(len(part), -1, GROUP, *part.shape[3:])


def _by_head(part: Tensor, heads: int) -> Tensor:
    """(batch, heads x groups, ...) as (batch, heads, groups, ...)."""
    return part.reshape(len(part), heads, -1, *part.shape[2:])


def _changed(sums: _Sums, change: Callable[[Tensor], Tensor]) -> _Sums:
    """Apply a function to every part."""
    return _Sums(
        change(sums.values), change(sums.features), change(sums.weight), change(sums.reference)
    )


def _all_before(early: _Sums, blocks: _Sums) -> _Sums:
    """``_sums_before`` for few blocks: one product with every pair of them."""
    parts = [
        torch.cat([first.unsqueeze(2), rest], 2).narrow(2, 0, rest.shape[2])
        for first, rest in (
            (early.values, blocks.values),
            (early.features, blocks.features),
            (early.weight, blocks.weight),
            (early.reference, blocks.reference),
        )
    ]
    values, features, weight, references = parts
    reference = largest_until(references, 2)
    scales = references[:, :, None] - reference[..., None]
    future = torch.ones_like(scales[0, 0], dtype=torch.bool).triu(1)
    scales = scales.masked_fill(future, HIDDEN).to(values.dtype).exp()
    summed = (scales @ values.flatten(3)).view_as(values)
    return _Sums(summed, scales @ features, (scales @ weight[..., None])[..., 0], reference)


def _guarded(totals: Tensor, least: Tensor) -> Tensor:
    """Denominators, moved off zero without changing their sign."""
    least = least.clamp_min(torch.finfo(totals.dtype).tiny)
    return totals.where(totals.abs() >= least, least.where(totals >= 0, -least))


def feature_cost(
    work: Workload, count: int, *, matmul_flops: int = 0, other_flops: int = 0, params: int = 0
) -> Cost:
    """The cost of ``feature_attention`` in chunks, plus the caller's cost of the features.

    The peak is the output, one chunk of features (twice where causal: of queries and keys), and the
    sums of a group of heads before and after a chunk.
    """
    dim, flops, held = work.dim, 2 * count * (work.dim + 1) * (work.queries + work.keys), 0
    chunk = min(BLOCK if work.causal else CHUNK, work.keys)
    if work.causal:
        flops += 2 * (count + dim) * chunk * work.queries
        held = chunk * (count + chunk)
    group = next(head_groups(work.heads, chunk, count))
    held += chunk * (2 * count + 2 * dim) + 3 * count * (dim + 1)
    output = work.rows * work.queries * dim * work.element_bytes
    return Cost(
        matmul_flops=work.rows * flops + matmul_flops,
        other_flops=work.rows * (work.queries + work.keys) * dim + other_flops,
        peak_bytes=output + (group.stop - group.start) * held * max(4, work.element_bytes),
        params=params,
    )
