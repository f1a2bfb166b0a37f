"""What a model of transformers answers with, by its class and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

SEVERAL, NUMBER = "multi_label_classification", "regression"
RowAnswer = Literal["class", "labels", "number"]
ByToken = Literal["entities", "span"]
# Models that answer for each token, by the ends of their classes' names.
BY_TOKEN: Mapping[str, ByToken] = {
    "ForTokenClassification": "entities",
    "ForQuestionAnswering": "span",
}


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


def by_token(name: str) -> ByToken | None:
    """The answer of a class of models that answer for each token; None for other classes."""
    return next((answer for end, answer in BY_TOKEN.items() if name.endswith(end)), None)


def stated_class(config: Any) -> str:
    """The class of the model that a configuration was written with; empty where it says none."""
    names = getattr(config, "architectures", None) or [""]
    return str(names[0])


def _counted(config: Any) -> dict[str, Any]:
    """``num_labels`` is a property of transformers' configurations."""
    return {"num_labels": getattr(config, "num_labels", None)}
