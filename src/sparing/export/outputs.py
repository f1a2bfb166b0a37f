"""The outputs of exported files by name, as optimum names them, and the answer that they make."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from sparing.answers.kinds import ENDS, KINDS, LOGITS, joined, kind_of_model
from sparing.core.errors import UsageError, listed

VECTOR, HIDDEN = KINDS["vector"].outputs, ("last_hidden_state",)
ANSWERS = (LOGITS, ENDS, VECTOR, HIDDEN)


def outputs_of(model: Any, later: Sequence[Any] = ()) -> tuple[str, ...]:
    """The names of the outputs of a transformers model that are exported: its answer.

    ``later`` are the modules behind it that make a vector of its hidden states. The hidden states
    are an output too then, as sentence-transformers pools them itself.
    """
    if later:
        return VECTOR + HIDDEN
    kind = kind_of_model(type(model).__name__, getattr(model, "config", None))
    if kind is not None:
        return kind.outputs
    has_head = getattr(model, "base_model", None) is not model
    return LOGITS if has_head else HIDDEN


def answer_of(names: Collection[str], source: object) -> tuple[str, ...]:
    """Those of a model's or file's outputs that hold its answer; ``UsageError`` if none do."""
    for answer in ANSWERS:
        if set(answer) <= set(names):
            return answer
    known = ", ".join(" with ".join(answer) for answer in ANSWERS)
    raise UsageError(f"{source} gives {listed(names)}; an answer is one of {known}")


def joined_answer(made: Mapping[str, NDArray[Any]], names: Sequence[str]) -> NDArray[Any]:
    """The outputs of an answer as one array: several along a new last axis."""
    array: NDArray[Any] = joined([made[name] for name in names])
    return array
