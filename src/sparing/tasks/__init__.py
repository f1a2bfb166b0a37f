"""One file is one task: its data, splits, metric, chance level, licence and source.

Listing the names imports nothing; torch and the data libraries come with the first task loaded.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError, nearest
from sparing.core.folder import Folder

if TYPE_CHECKING:
    from sparing.tasks._task import Examples as Examples
    from sparing.tasks._task import Task as Task

TASKS = Folder("sparing.tasks", "task")
__all__ = ["TASKS", "Examples", "Task", "load_task", "names"]


def names() -> list[str]:
    """The public names of all tasks, sorted; a file's underscores are hyphens here."""
    return [name.replace("_", "-") for name in TASKS.names()]


def load_task(name: str, *, data: Path | None = None, **options: Any) -> Task:
    """Load a task by name, or by the dotted path of a module with a ``load`` function.

    ``data`` is the folder of the task's files, for those that need one (otherwise the environment
    variable ``SPARING_DATA``); ``options`` are the keyword arguments of the task's ``load``.
    Raises ``UsageError`` for an unknown name or option and ``DataError`` for files that are
    missing, cut short or of another format.
    """
    if "." not in name:
        if name not in names() and name not in TASKS.names():
            raise UsageError(f"unknown task {name!r}{nearest(name, names())}")
        name = name.replace("-", "_")
    load = TASKS.load(name).load
    known = [option for option in inspect.signature(load).parameters if option != "data"]
    for option in options:
        if option not in known:
            raise UsageError(f"task {name} has no option {option!r}{nearest(option, known)}")
    task: Task = load(data=data, **options)
    return task


def __getattr__(name: str) -> Any:
    if name in ("Examples", "Task"):
        return getattr(importlib.import_module("sparing.tasks._task"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
