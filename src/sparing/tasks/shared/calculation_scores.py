"""Scores of predicted values: exact after rounding, mean and relative error, the largest one.

Source: Mukin, A Predictive Calculator (2025), for everything called published here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparing.core.errors import UsageError
from sparing.tasks.shared.expressions import Expression

SUM_OUT, LONG_OPERANDS = 22, 4


@dataclass(frozen=True)
class ValueScores:
    """``exact`` is the share of predictions that round to the value; ``worst`` the largest error.

    ``relative`` is the mean of |error| / max(|value|, 1). A prediction that is not finite is never
    exact and counts in ``missing``; the errors are then those of the others (None where there are
    none).
    """

    count: int
    exact: float
    mean: float | None
    relative: float | None
    worst: float | None
    missing: int


def value_scores(
    expressions: Sequence[Expression], predictions: Sequence[float | None]
) -> ValueScores:
    """Predictions against exact values; raises ``UsageError`` for unequal or empty lists."""
    if len(expressions) != len(predictions) or not expressions:
        raise UsageError(f"{len(predictions)} predictions for {len(expressions)} expressions")
    truth = [one.value for one in expressions]
    given = [p if p is not None and math.isfinite(p) else None for p in predictions]
    pairs = [(p, t) for p, t in zip(given, truth, strict=True) if p is not None]
    errors = [abs(p - t) for p, t in pairs]
    relative = [error / max(abs(t), 1) for error, (_, t) in zip(errors, pairs, strict=True)]
    exact = sum(_rounds_to(p, t) for p, t in pairs)
    return ValueScores(
        count=len(truth),
        exact=exact / len(truth),
        mean=sum(errors) / len(errors) if errors else None,
        relative=sum(relative) / len(relative) if errors else None,
        worst=max(errors) if errors else None,
        missing=len(truth) - len(pairs),
    )


def _rounds_to(prediction: float, value: int) -> bool:
    """Nearer to the value than to any other whole number: a half rounds to neither."""
    return abs(prediction - value) < 0.5


def by_operands(
    expressions: Sequence[Expression], predictions: Sequence[float | None]
) -> dict[int, ValueScores]:
    """The scores for each number of operands, fewest first."""
    scores = {}
    for operands in sorted({len(one.operands) for one in expressions}):
        places = [n for n, one in enumerate(expressions) if len(one.operands) == operands]
        scores[operands] = value_scores(
            [expressions[n] for n in places], [predictions[n] for n in places]
        )
    return scores


def bounded_score(errors: Mapping[str, float], baseline: Mapping[str, float]) -> float:
    """From 0 to 100, 50 at the baseline's errors, 100 where every set is exact.

    Formula: 100 times the geometric mean over sets of b / (b + e).

    Symbols: e is the mean absolute error on a set, b the baseline's. Raises ``UsageError`` for sets
    that the baseline lacks, and for no sets.
    """
    unknown = sorted(errors.keys() - baseline.keys())
    if not errors or unknown:
        raise UsageError(f"the baseline has no error on {', '.join(unknown) or 'any set'}")
    logs = [math.log(baseline[name] / (baseline[name] + error)) for name, error in errors.items()]
    return 100 * math.exp(sum(logs) / len(logs))


def legacy_score(
    sets: Mapping[str, Sequence[Expression]],
    predictions: Mapping[str, Sequence[float]],
    baseline: Mapping[str, float],
) -> float:
    """The published benchmark against given baseline errors; infinite for an exact model.

    Formula: (1/4) (B_in^2 / MAE_in^2 + B_out^2 / MAE_22^2 + B_long^2 / MAE_4^2 + B_rel^2 / MRE^2).

    Symbols: MAE_22 is over expressions out of range, their operands' sizes adding to 22, MAE_4 over
    the long ones of four operands, MRE the relative error out of range. ``baseline`` holds the same
    four errors, by the names in, out, long and relative, of one network (15, 30, 30 and 1). What
    differs: the published code trains that network again, without a seed, for every model, so its
    scores do not compare. Here its errors are constants.
    """
    return legacy_score_of(legacy_errors(sets, predictions), baseline)


def legacy_errors(
    sets: Mapping[str, Sequence[Expression]], predictions: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """The four errors of the published benchmark, by the names in, out, long and relative.

    Raises ``UsageError`` where a prediction is not finite.
    """
    chosen = {
        "in": list(range(len(sets["in"]))),
        "out": [n for n, one in enumerate(sets["out"]) if _size(one) == SUM_OUT],
        "long": [n for n, one in enumerate(sets["long"]) if len(one.operands) == LONG_OPERANDS],
    }
    for name, given in predictions.items():
        if not all(map(math.isfinite, given)):
            raise UsageError(f"predictions of {name} are not all finite: such a model has no score")
    errors: dict[str, float] = {}
    for name, places in chosen.items():
        scores = value_scores(
            [sets[name][n] for n in places], [predictions[name][n] for n in places]
        )
        errors[name] = scores.mean or 0.0
    errors["relative"] = value_scores(sets["out"], predictions["out"]).relative or 0.0
    return errors


def legacy_score_of(errors: Mapping[str, float], baseline: Mapping[str, float]) -> float:
    """The published benchmark score of these four errors."""
    parts = [
        math.inf if error == 0 else (baseline[name] / error) ** 2 for name, error in errors.items()
    ]
    return sum(parts) / len(parts)


def _size(expression: Expression) -> int:
    """The sum of the sizes of its operands."""
    return sum(abs(operand) for operand in expression.operands)
