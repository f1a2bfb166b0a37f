"""Kinds of answers: when two agree, how different they are, and the loss that teaches them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.answers.base import Answers as Agreeing
from sparing.answers.classes import Classes
from sparing.answers.vectors import Vectors
from sparing.slim.search.divergence import divergence
from sparing.train.elastic import ElasticLoss, VectorLoss

Answers = Float[Tensor, "texts outputs"]


class Answer(ABC):
    """One kind of answer. ``exits`` says whether inputs may exit before the last layer."""

    exits: ClassVar[bool] = False
    loss: ClassVar[type[ElasticLoss]]
    least_cosine: float | None = None

    @abstractmethod
    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Which texts have another answer than the dense model's."""

    @abstractmethod
    def distance(self, answers: Answers, reference: Answers) -> float:
        """How far answers are from the dense model's on average."""

    def changed(self, answers: Answers, reference: Answers) -> float:
        """The share of texts with another answer."""
        return float(self.differs(answers, reference).double().mean())


@dataclass(frozen=True)
class OneClass(Answer):
    """The class of the largest logit; the distance is the KL divergence in nats."""

    exits = True
    loss = ElasticLoss

    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Whether the classes differ."""
        return _differs(_classes(answers), _classes(reference))

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean KL divergence from the reference."""
        return divergence(answers, reference)


@dataclass(frozen=True)
class Vector(Answer):
    """An embedding: two agree from a cosine of ``least_cosine`` on; the distance is 1 less it."""

    least_cosine: float
    loss = VectorLoss

    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Whether the cosine is too small; ``DataError`` for a vector of zeros."""
        pair = (_vectors(one, self.least_cosine) for one in (answers, reference))
        return _differs(*pair)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean of 1 - cosine."""
        return float(1 - cosines(answers, reference).mean())


CLASS = OneClass()


def cosines(answers: Answers, reference: Answers) -> Float[Tensor, " texts"]:
    """The cosine of both vectors of each text; ``DataError`` for a vector of zeros."""
    return torch.from_numpy(_vectors(answers).cosines(_vectors(reference)))


def _classes(logits: Answers) -> Classes:
    return Classes(logits.double().numpy(), (), several=False)


def _vectors(values: Answers, least_cosine: float = 1.0) -> Vectors:
    return Vectors(values.double().numpy(), (), least_cosine)


def _differs(answers: Agreeing, reference: Agreeing) -> Bool[Tensor, " texts"]:
    return torch.from_numpy(~answers.same(reference))


def answer_of(task: Any, least_cosine: float) -> Answer:
    """The kind of a task's answer."""
    return Vector(least_cosine) if task.answer == "vector" else CLASS
