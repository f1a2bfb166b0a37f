"""Softmax over scores without a fused kernel, in pieces of bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.mask import Mask
from sparing.core.tracing import is_traced
from sparing.core.workload import Workload

_HELD = 1 << 18
"""Numbers that one piece may store for its scores: 1 MiB in float32."""

Scores = Callable[[Tensor, Tensor, slice], Tensor]


def attend_by_scores(
    scores: Scores,
    q: Float[Tensor, "batch heads queries features"],
    k: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
    mask: Mask,
    numbers_per_pair: int = 1,
) -> Float[Tensor, "batch heads queries dim"]:
    """out_i = sum_j w_ij v_j with w_ij = softmax of ``scores`` over the j that i may see.

    ``scores`` takes queries and keys of some samples and heads, and the slice of these heads. It
    returns (samples, heads, queries, keys) and stores ``numbers_per_pair`` numbers for each pair
    meanwhile. Samples, heads and queries are split into pieces that keep this memory small. With
    gradients the weights of all pieces are kept; an exported program has one piece.
    """
    queries, keys = q.shape[2], k.shape[2]
    if is_traced():
        return _weighted(scores(q, k, slice(None)), v, mask.opened(queries, keys, q.device))
    samples, heads, rows = _sizes(q.shape[0], q.shape[1], queries, keys * numbers_per_pair)

    def piece(sample: int, head: int, start: int) -> Tensor:
        these, some = slice(sample, sample + samples), slice(head, head + heads)
        stop = min(start + rows, queries)
        seen = keys - queries + stop if mask.causal else keys
        part = k[these, some, :seen]
        allowed = _allowed(mask, these, stop - start, seen, q.device)
        products = scores(q[these, some, start:stop], part, some)
        return _weighted(products, v[these, some, :seen], allowed)

    mixed = [
        torch.cat(
            [
                torch.cat([piece(sample, head, start) for start in range(0, queries, rows)], 2)
                for head in range(0, q.shape[1], heads)
            ],
            1,
        )
        for sample in range(0, q.shape[0], samples)
    ]
    return torch.cat(mixed)


def held_bytes(work: Workload, numbers_per_pair: int = 1) -> int:
    """Bytes of one piece: temporaries of its scores, the scores and the weights."""
    samples, heads, rows = _sizes(
        work.batch, work.heads, work.queries, work.keys * numbers_per_pair
    )
    pairs = samples * heads * rows * work.keys
    return pairs * (numbers_per_pair + 2) * max(4, work.element_bytes)


def _sizes(batch: int, heads: int, queries: int, numbers_per_query: int) -> tuple[int, int, int]:
    """How many samples, heads and queries make a piece of about ``_HELD`` numbers."""
    rows = min(queries, max(1, _HELD // numbers_per_query))
    some_heads = min(heads, max(1, _HELD // (rows * numbers_per_query)))
    samples = min(batch, max(1, _HELD // (some_heads * rows * numbers_per_query)))
    return samples, some_heads, rows


def _weighted(scores: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1) @ v


def _allowed(
    mask: Mask, samples: slice, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "samples_or_1 1 queries_or_1 keys"] | None:
    """The keys, of the first ``keys``, that a piece's queries see; a query without any sees all.

    Causal, the last query is at the position of the last of these keys.
    """
    keep = None if mask.keep is None else mask.keep[samples, :keys]
    return Mask(keep, mask.causal).opened(queries if mask.causal else 1, keys, device)
