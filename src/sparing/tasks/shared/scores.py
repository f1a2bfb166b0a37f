"""Metrics by name: the score of a model's outputs, and that of the best constant answer.

Outputs are (count, classes) scores for classes, (count, labels) logits for several labels, (count,
1) values for numbers, and rows of ``Task.read`` for entities. Labels are those of ``Task.truth``.
Every metric is 1 at best. Those of scipy and scikit-learn are used unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from sparing.core.errors import UsageError, nearest, quoted
from sparing.tasks.shared.rankings import MEASURES, mean_by_chance, values_by_query
from sparing.tasks.shared.sets import best_constant_f1, every_label_f1, set_score

Outputs = Float[Tensor, "count outputs"]
Labels = Shaped[Tensor, "count ..."]
MANY = 5
# The mean of numbers that are each example's value of another metric.
MEAN = "mean_value"
ENTITY_SCORES = ("entity_f1", "entity_precision", "entity_recall")


@dataclass(frozen=True)
class Metric:
    """``score`` of outputs against labels, and ``chance``: the best constant answer's score."""

    score: Callable[[Outputs, Labels], float]
    chance: Callable[[Labels], float]


def metric(name: str) -> Metric:
    """The metric of that name; raises ``UsageError`` with the nearest name where there is none."""
    if name not in METRICS:
        raise UsageError(f"unknown metric {quoted(name)}{nearest(name, METRICS)}")
    return METRICS[name]


def scores(names: tuple[str, ...], outputs: Outputs, labels: Labels) -> dict[str, float]:
    """All metrics of that name, in their order."""
    return {name: metric(name).score(outputs, labels) for name in names}


def _accuracy(outputs: Outputs, labels: Labels) -> float:
    return int((outputs.argmax(-1) == labels).sum()) / len(labels)


def _top(outputs: Outputs, labels: Labels) -> float:
    """The share of examples with their class among the five most probable."""
    best = outputs.topk(min(MANY, outputs.shape[-1])).indices
    return int((best == labels[:, None]).any(-1).sum()) / len(labels)


def _f1(outputs: Outputs, labels: Labels) -> float:
    """2 TP / (2 TP + FP + FN) of class 1; 0 where there is neither answer nor label 1."""
    answers = outputs.argmax(-1) == 1
    both = int((answers & (labels == 1)).sum())
    return 2 * both / max(1, int(answers.sum()) + int((labels == 1).sum()))


def _constant(values: Labels) -> bool:
    return bool((values == values[0]).all())


def _matthews(outputs: Outputs, labels: Labels) -> float:
    """0 where all answers or all labels are equal: such answers carry no information."""
    from sklearn.metrics import matthews_corrcoef

    answers = outputs.argmax(-1)
    if _constant(answers) or _constant(labels):
        return 0.0
    return float(matthews_corrcoef(labels.cpu().numpy(), answers.cpu().numpy()))


def _correlation(kind: str) -> Callable[[Outputs, Labels], float]:
    def score(outputs: Outputs, labels: Labels) -> float:
        from scipy import stats

        # beside the relevance of documents there is a column of their queries
        truth = (labels[:, 0] if labels.ndim == 2 else labels).double()
        values = outputs[:, 0].double()
        if _constant(values) or _constant(truth):
            return 0.0
        result = getattr(stats, kind)(values.cpu().numpy(), truth.cpu().numpy())
        return float(result.statistic)

    return score


def _exact(outputs: Outputs, labels: Labels) -> float:
    """The share of values that round to the label."""
    return float(((outputs[:, 0].double() - labels.double()).abs() < 0.5).double().mean())


def _commonest_value(labels: Labels) -> float:
    return float(labels.unique(return_counts=True)[1].max()) / len(labels)  # type: ignore[no-untyped-call]


def _shares(labels: Labels) -> list[float]:
    return sorted((torch.bincount(labels) / len(labels)).tolist(), reverse=True)


def _most_frequent(labels: Labels) -> float:
    return float(torch.bincount(labels).max()) / len(labels)


def _five_most_frequent(labels: Labels) -> float:
    return sum(_shares(labels)[:MANY])


def _always_one(labels: Labels) -> float:
    share = float((labels == 1).double().mean())
    return 2 * share / (1 + share)


def _nothing(labels: Labels) -> float:
    return 0.0


def _cosine(outputs: Outputs, labels: Float[Tensor, "count outputs"]) -> float:
    """The mean cosine of vectors with those that they should be."""
    cosines = torch.cosine_similarity(outputs.double(), labels.double(), dim=-1)
    return float(cosines.mean())


def _mean_direction(labels: Float[Tensor, "count outputs"]) -> float:
    return float(torch.nn.functional.normalize(labels.double(), dim=-1).mean(0).norm())


def _probabilities(outputs: Outputs, labels: Float[Tensor, "count outputs"]) -> float:
    """1 less the mean absolute difference of several labels' probabilities."""
    return float(1 - (outputs.double().sigmoid() - labels.double()).abs().mean())


def _median_probabilities(labels: Float[Tensor, "count outputs"]) -> float:
    middle = labels.double().median(0).values
    return float(1 - (labels.double() - middle).abs().mean())


def _same_rows(outputs: Outputs, labels: Labels) -> float:
    return float((outputs == labels).all(-1).double().mean())


def _commonest_row(labels: Labels) -> float:
    counts = labels.unique(dim=0, return_counts=True)[1]  # type: ignore[no-untyped-call]
    return float(counts.max()) / len(labels)


def _same_labels(outputs: Outputs, labels: Labels) -> float:
    return float(((outputs >= 0) == (labels >= 0.5)).all(-1).double().mean())


def _of_sets(name: str, chance: Callable[[Labels], float]) -> Metric:
    return Metric(lambda outputs, labels: set_score(name, outputs, labels), chance)


def _ranked(name: str) -> Metric:
    """The mean over queries; the chance level is that of a random order."""

    def score(outputs: Outputs, labels: Labels) -> float:
        values = values_by_query(name, outputs[:, 0], labels)
        return sum(values) / max(1, len(values))

    return Metric(score, lambda labels: mean_by_chance(name, labels))


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(_accuracy, _most_frequent),
    # with another model's answers as labels
    "agreement": Metric(_accuracy, _most_frequent),
    "top5": Metric(_top, _five_most_frequent),
    # of vectors, with another model's as labels
    "cosine": Metric(_cosine, _mean_direction),
    # of several labels, with another model's probabilities as labels
    "probability_closeness": Metric(_probabilities, _median_probabilities),
    # of entities and spans, with another model's as labels
    "same_answer": Metric(_same_rows, _commonest_row),
    # of numbers, with another model's as labels
    "correlation": Metric(_correlation("pearsonr"), _nothing),
    "f1": Metric(_f1, _always_one),
    "matthews": Metric(_matthews, _nothing),
    "exact": Metric(_exact, _commonest_value),
    "pearson": Metric(_correlation("pearsonr"), _nothing),
    "spearman": Metric(_correlation("spearmanr"), _nothing),
    # of several labels
    "micro_f1": _of_sets("micro_f1", lambda labels: best_constant_f1(labels >= 0.5)),
    "macro_f1": _of_sets("macro_f1", lambda labels: every_label_f1(labels >= 0.5)),
    "same_labels": Metric(_same_labels, _commonest_row),
    # of entities, by span and type
    **{name: _of_sets(name, _nothing) for name in ENTITY_SCORES},
    **{name: _ranked(name) for name in MEASURES},
    MEAN: Metric(lambda outputs, labels: float(outputs[:, 0].double().mean()), _nothing),
}
