"""Scores of answers that are sets: the labels of an input, the entities of a text."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = Float[Tensor, "count tokens"]


class Counts(NamedTuple):
    """How many members are in both sets, in the answers, and in the labels."""

    both: Int[Tensor, "*groups"]
    answered: Int[Tensor, "*groups"]
    labelled: Int[Tensor, "*groups"]

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


def label_counts(
    answers: Bool[Tensor, "count labels"], truth: Bool[Tensor, "count labels"]
) -> Counts:
    """The counts of each label over all inputs."""
    return Counts((answers & truth).sum(0), answers.sum(0), truth.sum(0))


def total(counts: Counts) -> Counts:
    """The counts of all groups together."""
    return Counts(*(part.sum() for part in counts))


def best_constant_f1(truth: Bool[Tensor, "count labels"]) -> float:
    """The micro F1 of the best constant set of labels: some number of the most frequent ones."""
    frequent = truth.sum(0).sort(descending=True).values.cumsum(0).double()
    sizes = torch.arange(1, truth.shape[1] + 1)
    scores = 2 * frequent / (sizes * len(truth) + frequent[-1]).clamp(min=1)
    return float(scores.max())


def entity_counts(answers: Rows, truth: Rows) -> Counts:
    """The counts of entities in rows of ``tasks.shared.tokens``: one counts by span and type.

    The rows must be of the same words. Source: Tjong Kim Sang and De Meulder, 2003, arXiv
    cs/0306050, section 2.3.
    """
    begun, due = _begins(answers), _begins(truth)
    # an entity goes on over even numbers above 0, and ends before the next word that is another
    same = begun & (answers == truth) & (_ends(answers) == _ends(truth))
    return Counts(same.sum(), begun.sum(), due.sum())


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
