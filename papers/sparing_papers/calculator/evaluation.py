"""How accurate a predictor of sums is, where it errs, and what its answers depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING

import torch
from scipy.stats import spearmanr

from sparing.calculator.predicting import slot_attention
from sparing.core.record import Labels, Record, measured
from sparing.core.recording import record
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.calculation_scores import (
    ValueScores,
    by_operands,
    legacy_errors,
    value_scores,
)
from sparing.tasks.shared.expressions import Expression
from sparing.tasks.shared.published import corrected, published

if TYPE_CHECKING:
    from sparing.predictors import Predictor

Predict = Callable[[Sequence[Expression]], Sequence[float | None]]
LONG_SETS = ("published long", "out+long")
OUT_SETS = ("out",)
PROBED_OPERANDS, LARGEST_SEEN = (3, 8), 4


@cache
def test_sets() -> Mapping[str, tuple[Expression, ...]]:
    """Both kinds of sets by name: those that are as published say so."""
    old, new = published(), corrected()
    return {
        "train": old["train"],
        "in": old["in"],
        "published out": old["out"],
        "published long": old["long"],
        **{name: new[name] for name in ("out", "long", "out+long")},
    }


def score_records(predict: Predict, labels: Labels) -> list[Record]:
    """Exact match and errors of every set, by number and size of operands."""
    sets = test_sets()
    given = {name: predict(expressions) for name, expressions in sets.items()}
    records: list[Record] = []
    for name, expressions in sets.items():
        set_labels: Labels = {**labels, "set": name}
        records += scores_of(value_scores(expressions, given[name]), set_labels)
        if name in LONG_SETS:
            for count, scores in by_operands(expressions, given[name]).items():
                records += scores_of(scores, {**set_labels, "operands": count})
        if name in OUT_SETS:
            for largest, scores in _by_largest(expressions, given[name]):
                records += scores_of(scores, {**set_labels, "largest": largest})
    return [*records, *_legacy(given, labels), _closer(given["in"], labels)]


def scores_of(scores: ValueScores, labels: Labels) -> Iterator[Record]:
    """Exact match and errors of one set as records."""
    errors = {"mean_error": scores.mean, "relative_error": scores.relative}
    yield from measured(labels, "share", scores.count, exact=scores.exact)
    yield from measured(labels, "", scores.count, **errors, worst_error=scores.worst)
    if scores.missing:
        yield from measured(labels, "", scores.count, missing=scores.missing)


def _by_largest(
    expressions: Sequence[Expression], given: Sequence[float | None]
) -> Iterator[tuple[int, ValueScores]]:
    """Scores by the size of the largest operand: how far from those of training."""
    sizes = [max(map(abs, expression.operands)) for expression in expressions]
    for largest in sorted(set(sizes)):
        places = [n for n, size in enumerate(sizes) if size == largest]
        yield largest, value_scores([expressions[n] for n in places], [given[n] for n in places])


def _legacy(given: Mapping[str, Sequence[float | None]], labels: Labels) -> Iterator[Record]:
    """The four errors of the published score; none where something is no number."""
    old = published()
    names = {"in": "in", "out": "published out", "long": "published long"}
    chosen = {name: given[set_name] for name, set_name in names.items()}
    whole: dict[str, list[float]] = {}
    for name, values in chosen.items():
        whole[name] = [value for value in values if value is not None]
        if len(whole[name]) < len(values):
            return
    for part, error in legacy_errors(old, whole).items():
        yield Record("legacy_error", error, "", "measured", {**labels, "part": part})
    pooled = value_scores((*old["in"], *old["out"]), [*whole["in"], *whole["out"]]).relative
    yield Record("legacy_error", pooled, "", "measured", {**labels, "part": "pooled"})


def _closer(given: Sequence[float | None], labels: Labels) -> Record:
    """How often an answer is nearer to the last number than to the first; the same of the truth."""
    sums = test_sets()["in"]
    truth = [float(expression.value) for expression in sums]
    shares = [share_closer(sums, answers) for answers in (given, truth)]
    with_truth: Labels = {**labels, "truth": shares[1]}
    return Record("closer_to_last", shares[0], "share", "measured", with_truth, count=len(sums))


def share_closer(sums: Sequence[Expression], answers: Sequence[float | None]) -> float:
    """Of the answers that are nearer to one of the two."""
    nearer = [
        abs(answer - expression.operands[-1]) - abs(answer - expression.operands[0])
        for expression, answer in zip(sums, answers, strict=True)
        if answer is not None
    ]
    decided = [gap for gap in nearer if gap]
    return sum(gap < 0 for gap in decided) / max(1, len(decided))


def probe_records(model: Predictor, labels: Labels) -> list[Record]:
    """How much an answer follows each operand, by position and size; what attention looks at."""
    records = [row for operands in PROBED_OPERANDS for row in _sensitivity(model, operands, labels)]
    return [*records, *_attention(model, labels)]


def _sensitivity(model: Predictor, operands: int, labels: Labels) -> Iterator[Record]:
    """The answer's change where an operand grows by one, with the true sign: 1 is right.

    Only operands that stay in the range of training grow.
    """
    name = "in" if operands == PROBED_OPERANDS[0] else "published long"
    sums = [expression for expression in test_sets()[name] if len(expression.operands) == operands]
    values = as_values(sums)
    with torch.inference_mode():
        before = model(values).logits[:, 0]
        sizes: dict[int, list[float]] = {}
        for index in range(operands):
            grown = values.clone()
            grown[:, 2 * index] += 1
            change = model(grown).logits[:, 0] - before
            if index:
                change = change * (2 * values[:, 2 * index - 1] - 1)
            seen = values[:, 2 * index] < LARGEST_SEEN
            seen_changes = change[seen].tolist()
            of_operand: Labels = {**labels, "operands": operands, "place": index + 1}
            yield Record(
                "sensitivity",
                fmean(seen_changes),
                "",
                "measured",
                of_operand,
                count=len(seen_changes),
            )
            for size, value in zip(
                values[seen, 2 * index].abs().tolist(), seen_changes, strict=True
            ):
                sizes.setdefault(int(size), []).append(value)
    for size, changes in sorted(sizes.items()):
        of_size: Labels = {**labels, "operands": operands, "size": size}
        yield Record("sensitivity", fmean(changes), "", "measured", of_size, count=len(changes))


def _attention(model: Predictor, labels: Labels) -> Iterator[Record]:
    """The rank correlation of the weight on a number with its size, in sums in range.

    Weights of several layers, heads and queries are averaged. Nothing where a network has none.
    """
    sums = test_sets()["in"]
    with torch.inference_mode(), record(model) as log:
        model(as_values(sums))
    weights = slot_attention(log)
    if weights is None:
        return
    on_numbers = weights[:, 0:5:2]
    sizes = torch.tensor([[abs(x) for x in expression.operands] for expression in sums])
    correlation = spearmanr(on_numbers.flatten().numpy(), sizes.flatten().numpy()).statistic
    yield Record(
        "attention_size", float(correlation), "", "measured", dict(labels), count=len(sums)
    )
