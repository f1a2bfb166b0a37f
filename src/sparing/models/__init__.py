"""One file is one model factory: transformers' own classes with random weights, sized for a task.

Any other name is a folder or a hub name of a pretrained model.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError, nearest
from sparing.core.folder import Folder
from sparing.core.options import hints_of, require_type

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.models.shared.shape import TaskShape

MODELS = Folder("sparing.models", "model")
__all__ = ["MODELS", "build_model", "default_model", "names"]


def names() -> list[str]:
    """The names of all models with random weights, sorted."""
    return MODELS.names()


def default_model(task: TaskShape) -> str:
    """The model for a kind of task: vit for images, bert for tokens."""
    return "vit" if task.kind == "image" else "bert"


def build_model(
    name_or_path: str, task: TaskShape, *, seed: int = 0, **sizes: Any
) -> PreTrainedModel:
    """A classifier for ``task``: random weights by name, or a pretrained one by path or hub name.

    ``sizes`` are the keyword arguments of the model's ``build`` (layers, heads, width, ...);
    pretrained models take none. The same seed always gives the same weights, and the user's global
    generators are restored. Raises ``UsageError`` for unknown names and sizes and for models that
    do not fit the task, ``CheckpointError`` for damaged ones.
    """
    from sparing.models.shared.quiet import quiet
    from sparing.models.shared.shape import seeded

    if name_or_path not in names() and _is_path_or_hub_name(name_or_path):
        from sparing.models._pretrained import pretrained

        if sizes:
            raise UsageError(f"a pretrained model has no sizes to set; got {', '.join(sizes)}")
        with quiet(), seeded(seed):
            return pretrained(name_or_path, task)
    build = MODELS.load(name_or_path).build
    known = [option for option in inspect.signature(build).parameters if option != "task"]
    hints = hints_of(build)
    for option, value in sizes.items():
        if option not in known:
            raise UsageError(f"model {name_or_path} has no size {option!r}{nearest(option, known)}")
        require_type(f"model {name_or_path}", option, value, hints.get(option, Any))
        if option == "dropout" and not 0 <= value < 1:
            raise UsageError(f"model {name_or_path}: dropout must be in [0, 1); got {value}")
    with quiet(), seeded(seed):
        model: PreTrainedModel = build(task, **sizes)
    return model


def _is_path_or_hub_name(name: str) -> bool:
    """Whether this is a local folder or looks like ``owner/name``; plain words are misspellings."""
    return "/" in name or Path(name).is_dir()
