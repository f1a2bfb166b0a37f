"""How far one form's answers are from another's on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Answers = Literal["class", "labels", "none"]
Run = Callable[[Mapping[str, Any]], tuple[Any, Any]]


@dataclass(frozen=True)
class Drift:
    """The difference of a candidate's outputs from the reference's on ``count`` inputs.

    ``mean`` is the mean absolute difference over the standard deviation of the reference's outputs,
    and ``largest`` the largest difference of one of them. ``changed`` counts the inputs with
    another class or set of labels; None for models that give neither.
    """

    count: int
    mean: float
    largest: float
    changed: int | None

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        words = (
            f"outputs differ by {100 * self.mean:.2g} % of their spread "
            f"(at most {self.largest:.2g})"
        )
        if self.changed is None:
            return words
        return f"{words}; {self.changed:,} of {self.count:,} answers changed"


def measure_drift(
    reference: Run, candidate: Run, inputs: Iterable[Mapping[str, Tensor]], answers: Answers
) -> Drift:
    """Compare two chains on inputs, one at a time; there must be at least one.

    ``answers`` is "class" for the largest logit, "labels" for all logits above 0, "none" for
    outputs without an answer, such as vectors or one number.
    """
    count, changed, largest = 0, 0, 0.0
    differences, values = [], []
    for given in inputs:
        ours, theirs = candidate(given)[0].double(), reference(given)[0].double()
        difference = (ours - theirs).abs()
        count += 1
        largest = max(largest, float(difference.max()))
        differences.append(float(difference.mean()))
        values.append(theirs.flatten())
        if answers != "none":
            changed += int(not torch.equal(_answer(ours, answers), _answer(theirs, answers)))
    spread = float(torch.cat(values).std(correction=0))
    mean = sum(differences) / count / max(spread, 1e-12)
    return Drift(count, mean, largest, None if answers == "none" else changed)


def _answer(logits: Tensor, answers: Answers) -> Tensor:
    return logits.argmax(-1) if answers == "class" else logits > 0
