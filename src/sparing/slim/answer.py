"""Kinds of answers: when two agree, how different they are, and the loss that teaches them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.answers.base import Answers as Agreeing
from sparing.answers.base import Settings
from sparing.answers.classes import Classes
from sparing.answers.kinds import KINDS, THRESHOLD, require_settings
from sparing.answers.numbers import Numbers
from sparing.answers.vectors import Vectors
from sparing.core.errors import UsageError
from sparing.slim.search.divergence import divergence
from sparing.tasks import Task
from sparing.tasks.shared.tokens import types_of
from sparing.train.distillation import labels_divergence
from sparing.train.elastic import (
    ElasticLoss,
    EntityLoss,
    LabelsLoss,
    NumberLoss,
    SpanLoss,
    VectorLoss,
)

Answers = Float[Tensor, "texts outputs"]
LEAST_COSINE = 0.95


class Answer(ABC):
    """One kind of answer. ``exits`` says whether inputs may exit before the last layer.

    ``metric`` is the score where the dense model's answers take the place of labels.
    """

    exits: ClassVar[bool] = False
    metric: ClassVar[str]
    loss: ClassVar[type[ElasticLoss]]

    @abstractmethod
    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Which texts have another answer than the dense model's."""

    @abstractmethod
    def distance(self, answers: Answers, reference: Answers) -> float:
        """How far answers are from the dense model's on average."""

    @abstractmethod
    def as_labels(self, answers: Answers) -> Tensor:
        """The dense model's answers in the form of labels."""

    @abstractmethod
    def sampled(self, answers: Answers, generator: torch.Generator) -> Tensor:
        """Labels as the dense model might give them, to rank heads and neurons by.

        The loss against its own answers has no gradient, as they are its minimum.
        """

    @property
    def agrees_by(self) -> dict[str, float]:
        """The number that decides when two agree, by its name; empty where none does."""
        return dict(vars(self))

    def objective(self, task: Task, *args: Any) -> ElasticLoss:
        """The loss that teaches it; ``task`` has the dense model's answers as labels."""
        return self.loss(*args)

    def changed(self, answers: Answers, reference: Answers) -> float:
        """The share of texts with another answer."""
        return float(self.differs(answers, reference).double().mean())

    def shares(self, answers: Answers, names: tuple[str, ...]) -> dict[str, float]:
        """The share of texts with each class or label; empty for other kinds."""
        return {}

    def fault(self, answers: Answers) -> tuple[int, str] | None:
        """The number of the first text whose answer cannot be used, and why; None without one."""
        return None


class RowAnswer(Answer):
    """An answer that is read off a text's outputs alone, as ``sparing agree`` does."""

    @abstractmethod
    def read(self, answers: Answers, names: tuple[str, ...] = ()) -> Agreeing:
        """A model's outputs as answers that can be compared; ``names`` are those of classes."""

    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Which texts have another answer than the dense model's."""
        return torch.from_numpy(~self.read(answers).same(self.read(reference)))


@dataclass(frozen=True)
class OneClass(RowAnswer):
    """The class of the largest logit; the distance is the KL divergence in nats."""

    exits = True
    metric = "agreement"
    loss = ElasticLoss

    def read(self, answers: Answers, names: tuple[str, ...] = ()) -> Classes:
        """The classes."""
        return Classes(answers.double().numpy(), names, several=False)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean KL divergence from the reference."""
        return divergence(answers, reference)

    def as_labels(self, answers: Answers) -> Tensor:
        """The classes."""
        return answers.argmax(-1)

    def sampled(self, answers: Answers, generator: torch.Generator) -> Tensor:
        """Classes sampled from the probabilities."""
        return torch.multinomial(answers.double().softmax(-1), 1, generator=generator)[:, 0]

    def shares(self, answers: Answers, names: tuple[str, ...]) -> dict[str, float]:
        """The share of texts with each class."""
        counts = torch.bincount(answers.argmax(-1), minlength=len(names)).double()
        return dict(zip(names, (counts / counts.sum()).tolist(), strict=True))


@dataclass(frozen=True)
class SeveralLabels(RowAnswer):
    """Labels from a probability of ``label_threshold`` on; two agree if all labels are the same.

    The distance is the sum over labels of the KL divergence of each, in nats.
    """

    label_threshold: float
    metric = "probability_closeness"
    loss = LabelsLoss

    def read(self, answers: Answers, names: tuple[str, ...] = ()) -> Classes:
        """The sets of labels."""
        return Classes(answers.double().numpy(), names, True, self.label_threshold)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean divergence from the reference."""
        return float(labels_divergence(answers.double(), reference.double()).sum(-1).mean())

    def as_labels(self, answers: Answers) -> Tensor:
        """The probabilities."""
        return answers.sigmoid()

    def sampled(self, answers: Answers, generator: torch.Generator) -> Tensor:
        """Every label sampled from its probability."""
        return torch.bernoulli(answers.sigmoid(), generator=generator)

    def shares(self, answers: Answers, names: tuple[str, ...]) -> dict[str, float]:
        """The share of texts with each label."""
        given = torch.from_numpy(self.read(answers).chosen).double().mean(0)
        return dict(zip(names, given.tolist(), strict=True))


@dataclass(frozen=True)
class Number(RowAnswer):
    """One number; two agree if they differ by at most ``most_difference``.

    The distance is the mean absolute difference.
    """

    most_difference: float
    metric = "correlation"
    loss = NumberLoss

    def read(self, answers: Answers, names: tuple[str, ...] = ()) -> Numbers:
        """The numbers."""
        return Numbers(answers[:, 0].double().numpy(), self.most_difference)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean absolute difference."""
        return float((answers.double() - reference.double()).abs().mean())

    def objective(self, task: Task, *args: Any) -> NumberLoss:
        """The loss in units of the deviation of the dense model's numbers."""
        made = NumberLoss(*args)
        made.scale = deviation(task.validation.labels)
        return made

    def as_labels(self, answers: Answers) -> Tensor:
        """The numbers."""
        return answers[:, 0]

    def sampled(self, answers: Answers, generator: torch.Generator) -> Tensor:
        """The numbers with noise of their own deviation: the loss is then a Gaussian's."""
        noise = torch.randn(len(answers), generator=generator)
        return answers[:, 0] + deviation(answers[:, 0]) * noise


@dataclass(frozen=True)
class Vector(RowAnswer):
    """An embedding: two agree from a cosine of ``least_cosine`` on; the distance is 1 less it."""

    least_cosine: float
    metric = "cosine"
    loss = VectorLoss

    def read(self, answers: Answers, names: tuple[str, ...] = ()) -> Vectors:
        """The vectors; comparing one of zeros raises ``DataError``."""
        return Vectors(answers.double().numpy(), (), self.least_cosine)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean of 1 - cosine."""
        return float(1 - cosines(answers, reference).mean())

    def as_labels(self, answers: Answers) -> Tensor:
        """The vectors."""
        return answers

    def sampled(self, answers: Answers, generator: torch.Generator) -> Tensor:
        """The vectors: importance draws a direction for each of them."""
        return answers

    def fault(self, answers: Answers) -> tuple[int, str] | None:
        """A vector of zeros."""
        empty = (answers == 0).all(1).nonzero()
        return (int(empty[0]), "has the length 0: it has no cosine") if len(empty) else None


@dataclass(frozen=True)
class Entities(Answer):
    """The entities of a text, as rows of ``tasks.shared.tokens``; all must be the same.

    The distance is the mean share of words with another label.
    """

    metric = "same_answer"
    loss: ClassVar[type[ElasticLoss]] = EntityLoss

    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Which texts have an entity that the dense model does not give, or lack one."""
        return (answers != reference).any(1)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean over texts; one without words has no distance."""
        words = (reference >= 0).sum(1).clamp(min=1)
        return float(((answers != reference).sum(1) / words).double().mean())

    def as_labels(self, answers: Answers) -> Tensor:
        """The rows."""
        return answers

    def sampled(self, answers: Answers, generator: torch.Generator) -> Tensor:
        """The rows: importance samples labels of tokens itself."""
        return answers

    def shares(self, answers: Answers, names: tuple[str, ...]) -> dict[str, float]:
        """The share of texts with an entity of each type."""
        begins = {kind: 2 * number + 1 for number, kind in enumerate(types_of(names))}
        return {
            kind: float((answers == code).any(1).double().mean()) for kind, code in begins.items()
        }


class Span(Entities):
    """A segment of a passage by its first and last token; both must be the same.

    The distance is 1 less the mean overlap: twice the tokens that both have, over those of either.
    """

    loss = SpanLoss

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean over texts."""
        both = torch.minimum(answers[:, 1], reference[:, 1]) + 1
        shared = (both - torch.maximum(answers[:, 0], reference[:, 0])).clamp(min=0)
        sizes = sum(rows[:, 1] - rows[:, 0] + 1 for rows in (answers, reference))
        return float(1 - (2 * shared / sizes).double().mean())

    def shares(self, answers: Answers, names: tuple[str, ...]) -> dict[str, float]:
        """None: every text has an answer."""
        return {}


CLASS = OneClass()
BY_TOKEN: Mapping[str, Answer] = {"entities": Entities(), "span": Span()}


def cosines(answers: Answers, reference: Answers) -> Float[Tensor, " texts"]:
    """The cosine of both vectors of each text; ``DataError`` for a vector of zeros."""
    one, two = (Vector(1.0).read(vectors) for vectors in (answers, reference))
    return torch.from_numpy(one.cosines(two))


def deviation(values: Float[Tensor, " texts"]) -> float:
    """The standard deviation of numbers; 1 where they are all the same."""
    return float(values.double().std(correction=0)) or 1.0


def answer_of(kind: str, settings: Settings) -> Answer:
    """A kind of answer by its name in ``sparing.answers``, with what decides when two agree.

    Raises ``UsageError`` for a setting of another kind, and for a number without one.
    """
    require_settings(KINDS[kind], settings)
    if kind == "vector":
        least = settings.least_cosine
        return Vector(LEAST_COSINE if least is None else least)
    if kind in BY_TOKEN:
        return BY_TOKEN[kind]
    if kind == "labels":
        return SeveralLabels(settings.threshold or THRESHOLD)
    if kind != "number":
        return CLASS
    if settings.most_difference is None:
        raise UsageError(
            "the model answers with a number: give --most-difference, how much two numbers may "
            "differ that count as the same"
        )
    return Number(settings.most_difference)
