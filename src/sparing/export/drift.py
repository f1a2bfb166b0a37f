"""How far one form's answers are from another's on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

Answers = Literal["class", "labels", "entities", "span", "vector", "none"]
Run = Callable[[Mapping[str, Any]], tuple[Any, Any]]


@dataclass(frozen=True)
class Drift:
    """The difference of a candidate's outputs from the reference's on ``count`` inputs.

    ``mean`` is the mean absolute difference over the standard deviation of the reference's outputs,
    and ``largest`` the largest difference of one of them. ``changed`` counts the inputs with
    another answer; None for models of numbers or vectors. ``cosine`` is the mean cosine of both
    vectors and ``least_cosine`` the smallest one; None for models of anything else.
    """

    count: int
    mean: float
    largest: float
    changed: int | None
    cosine: float | None = None
    least_cosine: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        words = (
            f"outputs differ by {100 * self.mean:.2g} % of their spread "
            f"(at most {self.largest:.2g})"
        )
        if self.cosine is not None:
            words += f"; the cosine is {self.cosine:.4f} on average, at least "
            words += f"{self.least_cosine:.4f}"
        if self.changed is None:
            return words
        return f"{words}; {self.changed:,} of {self.count:,} answers changed"


def measure_drift(
    reference: Run, candidate: Run, inputs: Iterable[Mapping[str, Tensor]], answers: Answers
) -> Drift:
    """Compare two chains on inputs, one at a time; there must be at least one.

    ``answers`` is the kind of their answers by its name in ``answers.kinds``, "none" for others.
    """
    changed, largest = 0, 0.0
    differences, values, cosines = [], [], []
    for given in inputs:
        ours, theirs = candidate(given)[0].double(), reference(given)[0].double()
        difference = (ours - theirs).abs()
        largest = max(largest, float(difference.max()))
        differences.append(float(difference.mean()))
        values.append(theirs.flatten())
        if answers == "vector":
            cosines.append(float(cosine_similarity(ours, theirs).clamp(-1, 1)))
        elif answers != "none":
            changed += int(not torch.equal(_answer(ours, answers), _answer(theirs, answers)))
    spread = float(torch.cat(values).std(correction=0))
    count = len(differences)
    mean = sum(differences) / count / max(spread, 1e-12)
    if answers == "vector":
        return Drift(count, mean, largest, None, sum(cosines) / count, min(cosines))
    return Drift(count, mean, largest, None if answers == "none" else changed)


def _answer(outputs: Tensor, answers: Answers) -> Tensor:
    """The answer to one input; labels are those with a probability above one half."""
    if answers == "labels":
        return outputs > 0
    return outputs.argmax(1 if answers == "span" else -1)
