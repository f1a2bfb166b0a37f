"""Intervals of the difference of two models' scores on the same examples."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.measure.statistics import Difference, with_unseen
from sparing.slim.answer import cosines
from sparing.tasks.shared.rankings import MEASURES, values_by_query
from sparing.tasks.shared.scores import MEAN, metric
from sparing.tasks.shared.sets import SCORES, resampled

RESAMPLES = 2_000
# Two-sided, so that its upper end is one standard error above the difference.
ONE_ERROR = 0.6827


def score_difference(
    name: str,
    candidate: Float[Tensor, "examples outputs"],
    baseline: Float[Tensor, "examples outputs"],
    labels: Shaped[Tensor, "examples ..."],
    *,
    confidence: float = 0.90,
    seed: int = 0,
) -> Difference:
    """The difference of a metric, candidate less baseline, with its bootstrap interval.

    Examples are sampled with both models' answers. The interval's lower end at a confidence of 0.90
    is the one-sided 95 % bound. It covers other examples, not other trainings.
    Raises ``UsageError`` for unequal counts or none.
    """
    if not len(labels) or len(candidate) != len(labels) or len(baseline) != len(labels):
        raise UsageError(f"{len(candidate)} and {len(baseline)} answers to {len(labels)} examples")
    score = metric(name).score
    value = score(candidate, labels) - score(baseline, labels)
    generator = torch.Generator().manual_seed(seed)
    first, second = (_by_example(name, answers, labels) for answers in (candidate, baseline))
    count = len(labels) if first is None else len(first)
    draws = torch.randint(count, (RESAMPLES, count), generator=generator)
    if first is not None and second is not None:
        spread = (first - second)[draws].mean(1)
    elif name in SCORES:
        one, two = (resampled(name, answers, labels, draws) for answers in (candidate, baseline))
        spread = one - two
    else:
        differences = [
            score(candidate[d], labels[d]) - score(baseline[d], labels[d]) for d in draws
        ]
        spread = torch.tensor(differences, dtype=torch.float64)
    ends = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    low, high = spread.double().quantile(ends).tolist()
    return Difference(value, with_unseen((low, high), count, confidence), count)


def _by_example(name: str, answers: Tensor, labels: Tensor) -> Tensor | None:
    """Each example's value of a metric that is a mean of such values; None for others.

    Rankings have one for each query.
    """
    if name in ("accuracy", "agreement"):
        return (answers.argmax(-1) == labels).double()
    if name == MEAN:
        return answers[:, 0].double()
    if name == "same_answer":
        return (answers == labels).all(-1).double()
    if name in MEASURES:
        values = values_by_query(name, answers[:, 0], labels)
        return torch.tensor(values, dtype=torch.float64)
    return cosines(answers, labels) if name == "cosine" else None


def good_enough(
    name: str, logits: Tensor, reference: Tensor, labels: Tensor, floor: float
) -> tuple[float, float, bool]:
    """The reference's score, the score of ``logits``, and whether the latter keeps the floor.

    200 examples cannot show a loss of half a point. So a loss may exceed the floor by one standard
    error of the paired difference over examples.
    """
    reference_score, score = (
        metric(name).score(answers, labels) for answers in (reference, logits)
    )
    gap = score_difference(name, logits, reference, labels, confidence=ONE_ERROR)
    highest = gap.value if gap.interval is None else max(gap.interval[1], gap.value)
    return reference_score, score, highest >= -(1 - floor) * reference_score
