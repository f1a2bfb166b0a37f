"""Sums of 6 to 10 numbers, where a recurrent network can lean to the last of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from sparing.core.record import Labels, Record
from sparing.tasks.arithmetic import SLOTS, as_values
from sparing.tasks.shared.calculation_scores import value_scores
from sparing.tasks.shared.expressions import Expression
from sparing.tasks.shared.published import SMALL, counted
from sparing_papers.calculator.evaluation import LARGEST_SEEN, scores_of, share_closer

if TYPE_CHECKING:
    from sparing.predictors import Predictor

# Networks with a weight for each slot read eight numbers at most.
TO_EIGHT, TO_TEN = "6 to 8", "6 to 10"
SPANS = {TO_EIGHT: range(6, 9), TO_TEN: range(6, 11)}
EACH = 200


@cache
def longer_sums() -> Mapping[int, tuple[Expression, ...]]:
    """Different sums by how many numbers they have, all numbers of the training range."""
    return {
        count: counted(tuple(SMALL), "longer", range(count, count + 1), EACH)
        for count in SPANS[TO_TEN]
    }


def longer_records(model: Predictor, labels: Labels) -> list[Record]:
    """Errors on longer sums, and how answers follow the first and the last number.

    Only sums that the network can read.
    """
    records: list[Record] = []
    moves = {count: influence(model, longer_sums()[count]) for count in _readable(model)}
    for span, counts in SPANS.items():
        if not moves.keys() >= {*counts}:
            continue
        of_span: Labels = {**labels, "set": span}
        sums = [one for count in counts for one in longer_sums()[count]]
        given = model.predict(sums)
        records += [*_answers(sums, given, of_span)]
        for n, count in enumerate(counts):
            part = slice(n * EACH, (n + 1) * EACH)
            records += _answers(sums[part], given[part], {**of_span, "operands": count})
        gaps = [moves[count][-1] - moves[count][0] for count in counts]
        records.append(
            Record("influence_gap", fmean(gaps), "", "measured", of_span, count=len(sums))
        )
    for count, by_place in moves.items():
        for position, move in enumerate(by_place, 1):
            at: Labels = {**labels, "operands": count, "place": position}
            records.append(Record("influence", move, "", "measured", at, count=EACH))
    return records


def _readable(model: Predictor) -> Iterator[int]:
    """How many numbers the sums have that this network can read."""
    every = bool(getattr(model.network, "any_length", False))
    return (count for count in SPANS[TO_TEN] if every or 2 * count - 1 <= SLOTS)


def _answers(
    sums: Sequence[Expression], given: Sequence[float], labels: Labels
) -> Iterator[Record]:
    """Exact match, errors, and how often an answer is nearer to the last number."""
    yield from scores_of(value_scores(sums, given), labels)
    truth = share_closer(sums, [float(one.value) for one in sums])
    share, with_truth = share_closer(sums, given), {**labels, "truth": truth}
    yield Record("nearer_to_last", share, "share", "measured", with_truth, count=len(sums))


def influence(model: Predictor, sums: Sequence[Expression]) -> list[float]:
    """By place, how far an answer moves, up or down, where that number of a sum grows by one.

    All sums have as many numbers. Only numbers that stay in the range of training grow.
    """
    count = len(sums[0].operands)
    values = as_values(sums, max(SLOTS, 2 * count - 1))
    moves = []
    with torch.inference_mode():
        before = model(values).logits[:, 0]
        for index in range(count):
            grown = values.clone()
            grown[:, 2 * index] += 1
            change = (model(grown).logits[:, 0] - before).abs()
            moves.append(float(change[values[:, 2 * index] < LARGEST_SEEN].mean()))
    return moves
