"""Scores of documents that are ranked for each query, and their values of a random order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import comb
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

CUT = 10
Relevance = list[float]
Truth = Float[Tensor, "documents 2"]


class Measure(NamedTuple):
    """The ``score`` of the relevance of documents in order, and the mean over random orders."""

    score: Callable[[Relevance], float]
    by_chance: Callable[[Relevance], float]


def query_numbers(texts: Sequence[Sequence[str]]) -> list[int]:
    """The number of each row's query: rows with the same first text, but for spaces, have one."""
    numbers: dict[str, int] = {}
    keys = [" ".join(row[0].split()) for row in texts]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def average_precision(relevance: Relevance) -> float:
    """The mean over relevant documents of the share of relevant ones up to there."""
    hits, total = 0, 0.0
    for rank, value in enumerate(relevance, start=1):
        if value > 0:
            hits += 1
            total += hits / rank
    return total / hits


def reciprocal_rank(relevance: Relevance) -> float:
    """1 over the rank of the first relevant document."""
    return 1 / next(rank for rank, value in enumerate(relevance, start=1) if value > 0)


def ndcg(relevance: Relevance) -> float:
    """The gain of the first ten over that of the best order; the gain is the relevance.

    Source: Järvelin and Kekäläinen, 2002, doi 10.1145/582415.582418, with discounts 1 / log2(1 + r)
    at rank r.
    """
    return _gain(relevance) / _gain(sorted(relevance, reverse=True))


def _gain(relevance: Relevance) -> float:
    first = enumerate(relevance[:CUT], start=1)
    return sum(max(0.0, value) / math.log2(1 + rank) for rank, value in first)


def _mean_average_precision(relevance: Relevance) -> float:
    """Source: Bestgen, 2015, doi 10.1007/s10579-014-9284-z; n documents, of which r are relevant.

    (r - 1) / (n - 1) (1 - H / n) + H / n with H the n-th harmonic number.
    """
    count, relevant = len(relevance), sum(value > 0 for value in relevance)
    share = sum(1 / rank for rank in range(1, count + 1)) / count
    return (relevant - 1) / max(1, count - 1) * (1 - share) + share


def _mean_reciprocal_rank(relevance: Relevance) -> float:
    count, relevant = len(relevance), sum(value > 0 for value in relevance)
    ways = comb(count, relevant)
    ranks = range(1, count - relevant + 2)
    return sum(comb(count - rank, relevant - 1) / ways / rank for rank in ranks)


def _mean_ndcg(relevance: Relevance) -> float:
    mean = sum(relevance) / len(relevance)
    return _gain([mean] * len(relevance)) / _gain(sorted(relevance, reverse=True))


MEASURES: Mapping[str, Measure] = {
    "map": Measure(average_precision, _mean_average_precision),
    "mrr": Measure(reciprocal_rank, _mean_reciprocal_rank),
    "ndcg@10": Measure(ndcg, _mean_ndcg),
}


def values_by_query(name: str, scores: Float[Tensor, " documents"], truth: Truth) -> list[float]:
    """The value of each query that counts: one with relevant documents and others.

    ``truth`` has the relevance and the query of each document. Of documents with the same score the
    least relevant come first, so that a model gains nothing by scores that are equal.
    """
    score = MEASURES[name].score
    return [
        score([relevance for _, relevance in sorted(rows, key=lambda row: (-row[0], row[1]))])
        for rows in _counted(scores, truth)
    ]


def _counted(
    scores: Float[Tensor, " documents"], truth: Truth
) -> Iterator[list[tuple[float, float]]]:
    """Score and relevance of the documents of each query that counts."""
    groups: dict[float, list[tuple[float, float]]] = {}
    for score, (relevance, query) in zip(scores.tolist(), truth.tolist(), strict=True):
        groups.setdefault(query, []).append((score, relevance))
    for rows in groups.values():
        if 0 < sum(relevance > 0 for _, relevance in rows) < len(rows):
            yield rows


def mean_by_chance(name: str, truth: Truth) -> float:
    """The mean over queries for documents in random order."""
    rows = _counted(truth[:, 0], truth)
    values = [MEASURES[name].by_chance([relevance for _, relevance in one]) for one in rows]
    return sum(values) / max(1, len(values))


def any_counts(truth: Truth) -> bool:
    """Whether there is a query that counts."""
    return any(True for _ in _counted(truth[:, 0], truth))


def query_note(truth: Truth) -> str:
    """How many queries there are, and how many count."""
    counted = sum(1 for _ in _counted(truth[:, 0], truth))
    queries = len({*truth[:, 1].tolist()})
    return f"{counted} of {queries} queries have relevant documents and others"
