"""Kinds of answers: when two agree, how different they are, and the loss that teaches them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.slim.search.divergence import divergence
from sparing.train.elastic import ElasticLoss, VectorLoss

Answers = Float[Tensor, "texts outputs"]


class Answer(ABC):
    """One kind of answer. ``exits`` says whether inputs may exit before the last layer."""

    exits: ClassVar[bool] = False
    loss: ClassVar[type[ElasticLoss]]

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
        return answers.argmax(-1) != reference.argmax(-1)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean KL divergence from the reference."""
        return divergence(answers, reference)


@dataclass(frozen=True)
class Vector(Answer):
    """An embedding: two agree from a cosine of ``least_cosine`` on; the distance is 1 less it."""

    least_cosine: float
    loss = VectorLoss

    def differs(self, answers: Answers, reference: Answers) -> Bool[Tensor, " texts"]:
        """Whether the cosine is too small; a vector that is not finite differs."""
        return ~(cosines(answers, reference) >= self.least_cosine)

    def distance(self, answers: Answers, reference: Answers) -> float:
        """The mean of 1 - cosine."""
        return float(1 - cosines(answers, reference).mean())


CLASS = OneClass()


def cosines(answers: Answers, reference: Answers) -> Float[Tensor, " texts"]:
    """The cosine of both vectors of each text, in float64."""
    return torch.cosine_similarity(answers.double(), reference.double(), dim=-1)


def answer_of(task: Any, least_cosine: float) -> Answer:
    """The kind of a task's answer."""
    return Vector(least_cosine) if task.answer == "vector" else OneClass()
