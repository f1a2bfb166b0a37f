"""What a classifier of transformers answers with: one class, several labels, or a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

SEVERAL, NUMBER = "multi_label_classification", "regression"
RowAnswer = Literal["class", "labels", "number"]


def answer_kind(config: Any) -> RowAnswer:
    """The answer of a ...ForSequenceClassification, by its configuration or the mapping of a file.

    Files may leave ``num_labels`` out and name the classes.
    """
    stated = config if isinstance(config, Mapping) else vars(config) | _counted(config)
    problem = stated.get("problem_type")
    if problem == SEVERAL:
        return "labels"
    outputs = stated.get("num_labels") or len(stated.get("id2label") or "ab")
    return "number" if problem == NUMBER or outputs == 1 else "class"


def _counted(config: Any) -> dict[str, Any]:
    """``num_labels`` is a property of transformers' configurations."""
    return {"num_labels": getattr(config, "num_labels", None)}
