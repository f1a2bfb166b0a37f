"""Scores of answers that are sets: the labels of an input, the entities of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

Rows = Float[Tensor, "count tokens"]


class Counts(NamedTuple):
    """How many members are in both sets, in the answers, and in the labels."""

    both: Shaped[Tensor, "*groups"]
    answered: Shaped[Tensor, "*groups"]
    labelled: Shaped[Tensor, "*groups"]

    @property
    def f1(self) -> Float[Tensor, "*groups"]:
        """2 both / (answered + labelled); 0 where there is neither."""
        return _ratio(2 * self.both, self.answered + self.labelled)

    @property
    def precision(self) -> Float[Tensor, "*groups"]:
        """The share of answers that are right; 0 without an answer."""
        return _ratio(self.both, self.answered)

    @property
    def recall(self) -> Float[Tensor, "*groups"]:
        """The share of labels that were answered; 0 without a label."""
        return _ratio(self.both, self.labelled)


def _ratio(part: Tensor, whole: Tensor) -> Float[Tensor, "*groups"]:
    return part.double() / whole.double().clamp(min=1)


def summed(counts: Counts, dimension: int = 0) -> Counts:
    """The counts of several rows, or of several labels, together."""
    return Counts(*(part.sum(dimension) for part in counts))


def label_counts(
    answers: Bool[Tensor, "count labels"], truth: Bool[Tensor, "count labels"]
) -> Counts:
    """The counts of each label in each row."""
    return Counts((answers & truth).long(), answers.long(), truth.long())


def entity_counts(answers: Rows, truth: Rows) -> Counts:
    """The counts of entities in rows of ``tasks.shared.tokens``: one counts by span and type.

    The rows must be of the same words. Source: Tjong Kim Sang and De Meulder, 2003, arXiv
    cs/0306050, section 2.3.
    """
    begun, due = _begins(answers), _begins(truth)
    # an entity goes on over even numbers above 0, and ends before the next word that is another
    same = begun & (answers == truth) & (_ends(answers) == _ends(truth))
    return Counts(same.sum(1), begun.sum(1), due.sum(1))


def _given(outputs: Tensor, labels: Tensor) -> Counts:
    """A label is given from a probability of 0.5 on."""
    return label_counts(outputs >= 0, labels >= 0.5)


class SetScore(NamedTuple):
    """A score of all rows together: ``value`` of the sums of their ``counts``."""

    counts: Callable[[Tensor, Tensor], Counts]
    value: Callable[[Counts], Tensor]


SCORES: Mapping[str, SetScore] = {
    "micro_f1": SetScore(_given, lambda sums: summed(sums, -1).f1),
    "macro_f1": SetScore(_given, lambda sums: sums.f1.mean(-1)),
    "entity_f1": SetScore(entity_counts, lambda sums: sums.f1),
    "entity_precision": SetScore(entity_counts, lambda sums: sums.precision),
    "entity_recall": SetScore(entity_counts, lambda sums: sums.recall),
}


def set_score(name: str, outputs: Tensor, labels: Tensor) -> float:
    """One of ``SCORES`` of all rows."""
    score = SCORES[name]
    return float(score.value(summed(score.counts(outputs, labels))))


def resampled(
    name: str, outputs: Tensor, labels: Tensor, draws: Int[Tensor, "samples count"]
) -> Float[Tensor, " samples"]:
    """One of ``SCORES`` for each sample of rows; rows are counted once, not once a sample."""
    score = SCORES[name]
    ones = torch.ones_like(draws, dtype=torch.float64)
    often = torch.zeros(len(draws), len(labels), dtype=torch.float64).scatter_add(1, draws, ones)
    counts = score.counts(outputs, labels)
    return score.value(Counts(*(often @ part.double() for part in counts)))


def best_constant_f1(truth: Bool[Tensor, "count labels"]) -> float:
    """The micro F1 of the best constant set of labels: some number of the most frequent ones."""
    frequent = truth.sum(0).sort(descending=True).values.cumsum(0).double()
    sizes = torch.arange(1, truth.shape[1] + 1)
    scores = 2 * frequent / (sizes * len(truth) + frequent[-1]).clamp(min=1)
    return float(scores.max())


def every_label_f1(truth: Bool[Tensor, "count labels"]) -> float:
    """The macro F1 of all labels at once, the best constant set."""
    return float(summed(label_counts(torch.ones_like(truth), truth)).f1.mean())


def _begins(rows: Rows) -> Bool[Tensor, "count tokens"]:
    """Where an entity begins; tokens that begin no word have a number below 0."""
    return (rows > 0) & (rows % 2 == 1)


def _ends(rows: Rows) -> Int[Tensor, "count tokens"]:
    """For each token, the next token of a word that begins an entity or is in none."""
    length = rows.shape[1]
    stops = (rows == 0) | _begins(rows)
    positions = torch.where(stops, torch.arange(length), length)
    following = positions.flip(1).cummin(1).values.flip(1)
    return torch.cat((following[:, 1:], following.new_full((len(rows), 1), length)), 1)
