"""Any pretrained model of transformers, with a head for the task."""

from __future__ import annotations

from typing import Any

from safetensors import SafetensorError
from transformers import (
    AutoModelForImageClassification,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from sparing.core.errors import CheckpointError, UsageError, option
from sparing.foreign.pretrained import open_config, open_weights
from sparing.models.shared.shape import TaskShape, image_config, label_names

BY_ANSWER: dict[str, Any] = {
    "entities": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
}
NOT_OF = {"entities": "gives no label for each token", "span": "gives no first and last tokens"}


def pretrained(path: str, task: TaskShape) -> PreTrainedModel:
    """The model of a folder or hub name; its head is new where it has none for this task.

    Raises ``UsageError`` where there is no such model or it does not fit the task, and
    ``CheckpointError`` where its files are damaged.
    """
    try:
        config = open_config(path)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"no model at {path!r}: {_first_line(error)}") from error
    _check_fits(path, config, task)
    if task.kind == "image":
        family = AutoModelForImageClassification
    else:
        family = BY_ANSWER.get(task.answer, AutoModelForSequenceClassification)
        if config.pad_token_id is None:
            config.pad_token_id = task.pad_id
    for name, value in label_names(task).items():
        setattr(config, name, value)
    try:
        # Only the head depends on the changed configuration, so only the head can mismatch.
        model: PreTrainedModel = open_weights(
            family, path, config=config, ignore_mismatched_sizes=True
        )
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"the model at {path!r} is damaged: {_first_line(error)}") from error
    except (ValueError, RuntimeError) as error:
        problem = NOT_OF.get(task.answer, "is no classifier")
        kind = getattr(config, "model_type", "") or "an unknown type"
        raise UsageError(
            f"{path!r} {problem}: transformers has none of type {kind} for {task.kind}s"
        ) from error
    return model


def _check_fits(path: str, config: Any, task: TaskShape) -> None:
    """Raise ``UsageError`` unless vocabulary, positions and image sizes are the task's."""
    if getattr(config, "sparing", None):
        raise UsageError(f"{path!r} holds a swapped model: open it with sparing.load")
    if task.kind == "image":
        sizes = image_config(config)
        for name in ("image_size", "patch_size", "num_channels"):
            expected = task.channels if name == "num_channels" else getattr(task, name)
            if (actual := getattr(sizes, name, expected)) != expected:
                raise UsageError(
                    f"{path!r} has {name} {actual}, but task {task.name} has {expected}"
                )
        return
    vocabulary = getattr(config, "vocab_size", None)
    positions = getattr(config, "max_position_embeddings", None)
    if vocabulary is None:
        raise UsageError(f"{path!r} does not read tokens, but task {task.name} gives tokens")
    fits = vocabulary >= task.vocabulary if task.tokenizer else vocabulary == task.vocabulary
    if not fits:
        hint = "" if task.tokenizer else f"; load the task with {option('tokenizer', path)}"
        raise UsageError(
            f"{path!r} has {vocabulary} tokens, but task {task.name} has {task.vocabulary}{hint}"
        )
    if positions is not None and positions < task.tokens:
        raise UsageError(
            f"{path!r} reads at most {positions} tokens, but task {task.name} has up to "
            f"{task.tokens}"
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
