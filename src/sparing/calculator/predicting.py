"""Predictors with the interface of a calculator: text in, an answer and its reasons out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.recording import record
from sparing.tasks.arithmetic import SLOTS, as_values
from sparing.tasks.shared.expressions import Expression, parse

if TYPE_CHECKING:
    from sparing.predictors import Predictor


@runtime_checkable
class SomeAnswer(Protocol):
    """A network's answer to a sum."""

    @property
    def text(self) -> str:
        """The text to show."""

    @property
    def confidence(self) -> float | None:
        """From 0 to 1, where the network has one."""

    def is_value(self, exact: str) -> bool:
        """Whether this is right."""

    def explained(self) -> Iterator[str]:
        """Lines that explain the answer."""


@runtime_checkable
class Answering(Protocol):
    """A calculator, or a predictor with its interface."""

    def answer(self, texts: Sequence[str]) -> Sequence[SomeAnswer]:
        """An answer to each sum."""


@dataclass(frozen=True)
class PredictorAnswer:
    """A predicted value; ``moves`` is its change if each number grows by one.

    ``weights`` are those of attention on each slot, averaged over layers, heads and queries; None
    if the network has no attention that writes weights out.
    """

    expression: Expression
    value: float
    moves: tuple[float, ...]
    weights: tuple[float, ...] | None
    confidence: float | None = None

    @property
    def text(self) -> str:
        """To three decimals: it is not a whole number."""
        return f"{self.value:.3f}"

    def is_value(self, exact: str) -> bool:
        """Whether it rounds to the exact value."""
        return abs(self.value - int(exact)) < 0.5

    def explained(self) -> Iterator[str]:
        """Each number with its effect, and with the attention on it and on its operator."""
        yield "change of the answer if a number grows by one, and attention on its slots:"
        signs = ("", *self.expression.operators)
        for index, (sign, number) in enumerate(zip(signs, self.expression.operands, strict=True)):
            line = f"  {sign or ' '} {number:>5}  {self.moves[index]:+.3f}"
            if self.weights is not None:
                weight = self.weights[2 * index]
                before = f", operator {self.weights[2 * index - 1]:.3f}" if index else ""
                line += f"  attention {weight:.3f}{before}"
            yield line


class PredictorAnswers:
    """A predictor that answers sums as text."""

    def __init__(self, model: Predictor) -> None:
        self.model = model.eval()

    def answer(self, texts: Sequence[str]) -> list[PredictorAnswer]:
        """An answer to each sum; raises ``UsageError`` for one with more numbers than slots."""
        return [self._one(parse(text)) for text in texts]

    @torch.inference_mode()
    def _one(self, expression: Expression) -> PredictorAnswer:
        values = as_values([expression])
        with record(self.model) as log:
            value = float(self.model(values).logits)
        numbers = len(expression.operands)
        grown = values.repeat(numbers, 1)
        grown[torch.arange(numbers), 2 * torch.arange(numbers)] += 1
        moves = (self.model(grown).logits[:, 0] - value).tolist()
        weights = slot_attention(log)
        seen = None if weights is None else tuple(weights[0].tolist())
        return PredictorAnswer(expression, value, tuple(moves), seen)


def slot_attention(log: Mapping[str, Sequence[Tensor]]) -> Float[Tensor, "batch slots"] | None:
    """The reports of layers named ``attention``, averaged over layers, heads and queries.

    A token that some networks read comes before the slots, and is left out.
    """
    weights = [
        value if value.ndim == 2 else value.mean((1, 2))
        for name, values in log.items()
        if name.rpartition("/")[2] == "attention"
        for value in values
    ]
    return torch.stack(weights).mean(0)[:, -SLOTS:] if weights else None
