"""Attention through features: sums over the keys taken once, instead of a score for each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.execution.fusing import fused
from sparing.core.tracing import is_traced
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._recorded import by_hand, mapped, recorded_attend
from sparing.mechanisms.shared.arithmetic import dots

BLOCK = 64
"""Tokens that causal attention compares pair by pair; earlier ones are summed."""

_CACHED_ELEMENTS = 65536
"""Elements of one stream for one thread at a time: 256 KiB in float32."""

LEAST_EXPONENT = -40.0
"""Features are at least exp(-40) = 4e-18: products of two stay normal in float32."""

_LEAST_HALF_EXPONENT = -9.0
"""The same in float16, which loses digits below exp(-9.7)."""

Rows = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def rows_at_once(tokens: int, dim: int) -> int:
    """How many rows (a head of a sample) fit the cache together, at least one for each thread."""
    threads = torch.get_num_threads()
    return max(threads, threads * _CACHED_ELEMENTS // (tokens * dim))


def in_cache(
    mix_rows: Rows,
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    keep: Bool[Tensor, "batch keys"] | None,
) -> Float[Tensor, "batch heads queries dim"]:
    """``mix_rows(q, k, v, keep)`` for a few heads at a time, in q's type and memory layout.

    Heads do not depend on each other. Temporaries that stay in the cache save most of the time:
    fresh memory costs more than the products. All heads run at once on other devices, where that
    does not hold, where gradients keep the temporaries anyway, and in export.
    """
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
    if is_traced() or recorded or q.device.type != "cpu":
        return fused(mix_rows)(q, k, v, keep).to(q.dtype)
    mixed = torch.empty_like(q)
    mix_rows = fused(mix_rows)
    for samples, heads in _groups(q.shape[0], q.shape[1], max(q.shape[2], k.shape[2]), q.shape[3]):
        part = samples, heads
        own_keep = None if keep is None else keep[samples]
        mixed[part] = mix_rows(q[part], k[part], v[part], own_keep)
    return mixed


def _groups(batch: int, heads: int, tokens: int, dim: int) -> Iterator[tuple[slice, slice]]:
    """Cover all heads of all samples by groups of about ``rows_at_once``."""
    rows = rows_at_once(tokens, dim)
    samples, step = max(1, rows // heads), min(rows, heads)
    for sample in range(0, batch, samples):
        for head in range(0, heads, step):
            yield slice(sample, sample + samples), slice(head, head + step)


def attend(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    weights: Float[Tensor, "batch _ keys"] | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, "batch heads queries dim"]:
    """out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = weights_j (queries_i . keys_j), over j.

    Features must not be negative; ``weights`` (1 unless given) are 0 at pads. Causal, j runs up to
    i; the queries are the last tokens. A query with weights that are all zero gets zeros.
    """
    if not causal and by_hand(queries, keys, v, weights):
        return recorded_attend(queries, keys, v, weights)
    mixed, totals = feature_sums(queries, keys, v, weights, causal=causal)
    totals = _guarded(totals)[..., None]
    if torch.is_grad_enabled() or is_traced():
        return mixed / totals
    return mixed.div_(totals)


def feature_sums(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    weights: Float[Tensor, "batch _ keys"] | None = None,
    *,
    causal: bool = False,
) -> tuple[Float[Tensor, "batch heads queries dim"], Float[Tensor, "batch heads queries"]]:
    """Numerator and denominator of ``attend`` before the division; features may have any sign."""
    if weights is not None:
        keys = keys * weights[..., None]
    if causal:
        return _past_sums(queries, keys, v)
    return queries @ state(keys, v), dots(queries, keys.sum(-2))


def state(
    keys: Float[Tensor, "*batch tokens features"], v: Float[Tensor, "*batch tokens dim"]
) -> Float[Tensor, "*batch features dim"]:
    """keys^T v; with gradients as the transpose of v^T keys, so the keys' gradient is contiguous.

    Computed directly, that gradient is transposed, and every later step reads memory in strides.
    """
    if torch.is_grad_enabled() and keys.requires_grad:
        return (v.transpose(-1, -2) @ keys).transpose(-1, -2)
    return keys.transpose(-1, -2) @ v


def _past_sums(queries: Tensor, keys: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """``feature_sums`` with causality: pairs inside a block, sums of all earlier blocks before it.

    Keys before the first query make one sum. The sums are shifted by a block, never subtracted:
    rounding must not leak the future into the past.
    """
    count = queries.shape[2]
    early = keys.shape[2] - count
    old_sums = keys[:, :, :early].transpose(-1, -2) @ v[:, :, :early]
    old_totals = keys[:, :, :early].sum(-2)
    queries = in_blocks(queries)
    keys, v = in_blocks(keys[:, :, early:]), in_blocks(v[:, :, early:])
    sums = sums_before(old_sums, keys.transpose(-1, -2) @ v)
    totals = sums_before(old_totals, keys.sum(-2))
    scores = (queries @ keys.transpose(-1, -2)).tril()
    mixed = scores @ v + queries @ sums
    totals = scores.sum(-1) + dots(queries, totals)
    return first_tokens(mixed.flatten(2, 3), count), first_tokens(totals.flatten(2, 3), count)


def in_blocks(
    tensor: Float[Tensor, "batch heads tokens features"], fill: float = 0.0
) -> Float[Tensor, "batch heads blocks size features"]:
    """Fold tokens into blocks; the last one is filled up.

    In export there are two blocks or more at any length: export treats a size of one as a constant.
    """
    tokens = tensor.shape[2]
    if is_traced():
        size, blocks = BLOCK, tokens // BLOCK + 2
    else:
        size = min(BLOCK, tokens)
        blocks = -(-tokens // size)
    if is_traced() or blocks * size > tokens:
        tensor = F.pad(tensor, (0, 0, 0, blocks * size - tokens), value=fill)
    return tensor.unfold(2, size, size).transpose(-1, -2)


def first_tokens(tensor: Float[Tensor, "batch heads tokens ..."], count: int) -> Tensor:
    """The tokens before the filling; in export selected by index, since a slice would fix sizes."""
    if is_traced():
        return tensor.index_select(2, torch.arange(count, device=tensor.device))
    return tensor[:, :, :count]


def sums_before(
    old: Float[Tensor, "batch heads ..."], blocks: Float[Tensor, "batch heads blocks ..."]
) -> Float[Tensor, "batch heads blocks ..."]:
    """The sum of everything before each block: ``old`` and the blocks before it."""
    sums = torch.cat([old[:, :, None], blocks], 2)
    if is_traced() or (torch.is_grad_enabled() and sums.requires_grad):
        return sums.cumsum(2)[:, :, :-1]
    # cumsum reads memory in strides; adding whole states one by one is faster.
    sums = sums[:, :, :-1]
    for block in range(1, sums.shape[2]):
        sums[:, :, block] += sums[:, :, block - 1]
    return sums


def positive(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """elu(x) + 1 without cancellation; its slope at 0 is 1, its least value exp(-40)."""
    return mapped(_positive, lambda value: value.clamp(max=1), x)


def _positive(x: Tensor) -> Tensor:
    return x.clamp(least_exponent(x.dtype), 0.0).exp_() + x.relu()


def least_exponent(dtype: torch.dtype) -> float:
    """Features of this type are at least its exponential."""
    return _LEAST_HALF_EXPONENT if dtype == torch.float16 else LEAST_EXPONENT


def _guarded(sums: Tensor) -> Tensor:
    """The denominator, never zero: where no key has weight the numerator is zero too."""
    return sums.clamp_min(torch.finfo(sums.dtype).tiny)


def feature_cost(
    work: Workload,
    *,
    key_copies: int = 1,
    matmul_flops: int = 0,
    other_flops: int = 0,
    params: int = 0,
) -> Cost:
    """The cost of ``attend`` within ``in_cache``, plus the caller's extra cost.

    The peak is the output and the temporaries of one group of rows: key features (``key_copies``
    times), query features, their product and the quotient; causal, also blocks, sums and scores.
    """
    dim, queries, keys = work.dim, work.queries, work.keys
    flops = 2 * dim * (keys * dim + queries * dim + queries)
    held = dim * (3 * queries + key_copies * keys)
    if work.causal:
        size = min(BLOCK, queries)
        blocks = -(-queries // size)
        flops += 2 * dim * (2 * dim + 1) * (blocks * size - queries)  # the last block is whole
        flops += 4 * dim * size * size * blocks
        held += blocks * (2 * dim * dim + size * size + 3 * size * dim)
    rows = min(work.rows, rows_at_once(max(queries, keys), dim))
    output = work.rows * queries * dim * work.element_bytes
    return Cost(
        matmul_flops=work.rows * flops + matmul_flops,
        other_flops=work.rows * (keys + queries) * dim + other_flops,
        peak_bytes=output + rows * held * max(4, work.element_bytes),
        params=params,
    )
