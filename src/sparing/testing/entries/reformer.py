"""Test configurations of reformer, and their references."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import real_tokens
from sparing.testing.subjects import Entry


def slow_reformer(made: Any, q: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Each row without its pads, each query separately, over lists of the keys that it meets."""
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        real = real_tokens(mask, sample, q.shape[2]).nonzero()[:, 0]
        for head in range(q.shape[1] if len(real) else 0):
            own_q, own_v = q[sample, head, real], v[sample, head, real]
            buckets = _bucket_lists(made, own_q, made.rotations[head].to(q))
            met = [_met(made, codes) for codes in buckets]
            for i in range(len(real)):
                out[sample, head, real[i]] = _mixed(
                    made, own_q, own_v, i, [codes[i] for codes in met]
                )
    return out


def _bucket_lists(made: Any, q: Tensor, rotations: Tensor) -> list[list[int]]:
    """The bucket of each token, for each round; as many buckets as chunks, rounded up to even."""
    chunks = math.ceil(len(q) / made.chunk)
    buckets = 1 if chunks == 1 else min(made.buckets, chunks + chunks % 2)
    if buckets == 1:
        return [[0] * len(q)] * made.rounds
    rounds = []
    for number in range(made.rounds):
        turned = q @ rotations[:, number, : buckets // 2]
        rounds.append(torch.cat([turned, -turned], -1).argmax(-1).tolist())
    return rounds


def _met(made: Any, buckets: list[int]) -> list[list[int]]:
    """The keys that each token meets in one round: those of its chunk and of the one before."""
    order = sorted(range(len(buckets)), key=lambda token: (buckets[token], token))
    chunks = [order[start : start + made.chunk] for start in range(0, len(order), made.chunk)]
    met: list[list[int]] = [[] for _ in buckets]
    for number, chunk in enumerate(chunks):
        seen = chunk if len(chunks) == 1 else chunk + chunks[number - 1]
        for i in chunk:
            met[i] = [j for j in seen if not made.same_bucket or buckets[i] == buckets[j]]
    return met


def _mixed(made: Any, q: Tensor, v: Tensor, i: int, met: list[list[int]]) -> Tensor:
    """One query: the keys of all rounds, counted each time or once, but not itself."""
    others = [j for keys in met for j in keys if j != i]
    if made.count_once:
        others = sorted(set(others))
    if not others:
        return v[i]
    scores = torch.stack([q[i] @ q[j] / q[j].norm() for j in others])
    return scores.softmax(0) @ v[others]


def dense_shared(made: Any, q: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Softmax over q_i . q_j / |q_j| with all other tokens: no hashes, no chunks."""
    del made
    tokens = q.shape[2]
    scores = q @ torch.nn.functional.normalize(q, dim=-1).transpose(-1, -2)
    scores = scores.masked_fill(torch.eye(tokens, dtype=torch.bool), -math.inf)
    allowed = mask.dense(tokens, tokens)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores.softmax(-1) @ v


REFERENCE = slow_reformer
ENTRIES = (
    Entry(
        (
            {"chunk": 4, "buckets": 8},
            {"chunk": 5, "buckets": 4, "rounds": 3, "same_bucket": True},
            {"chunk": 4, "rounds": 3, "count_once": True},
            {"chunk": 3, "buckets": 4, "rounds": 2, "same_bucket": True, "count_once": True},
        ),
        (Matches(slow_reformer),),
    ),
    Entry(({"chunk": 64, "buckets": 1},), (Matches(dense_shared), Matches(slow_reformer))),
)
