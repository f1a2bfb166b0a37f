"""One file is one task: its data, splits, metrics, chance level, licence and source.

Listing the names imports nothing; torch and the data libraries are imported with the first task. A
path, or a hub name with a slash, is a user's own task: a folder of pictures, or texts.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError, nearest, quoted
from sparing.core.folder import Folder
from sparing.core.options import hints_of, require_type
from sparing.core.paths import expanded
from sparing.tasks._endings import (
    CONLL,
    PICTURES,
    TABLES,
    ends_with,
    files_with,
    holds_classes,
)

if TYPE_CHECKING:
    from sparing.tasks._facts import Facts as Facts
    from sparing.tasks._pictures import decoded as decoded
    from sparing.tasks._pictures import fitted as fitted
    from sparing.tasks.shared.task import Examples as Examples
    from sparing.tasks.shared.task import Task as Task

TASKS = Folder("sparing.tasks", "task")
LOGGER = logging.getLogger(__name__)
_HOMES = {
    "Examples": "shared.task",
    "Facts": "_facts",
    "Task": "shared.task",
    "decoded": "_pictures",
    "fitted": "_pictures",
}
__all__ = [
    "PICTURES",
    "TASKS",
    "Examples",
    "Facts",
    "Task",
    "decoded",
    "ends_with",
    "facts",
    "fitted",
    "load_task",
    "names",
    "options_of",
]


def names() -> list[str]:
    """The public names of all tasks, sorted; a file's underscores are hyphens here."""
    return [name.replace("_", "-") for name in TASKS.names()]


def load_task(name: str, *, data: Path | None = None, **options: Any) -> Task:
    """Load a task by name, by a path to your own data, or by the dotted path of a module.

    A folder with folders in its ``train``, or with folders of pictures, is the task
    ``image-folder``. A folder with a file such as ``train.conll``, or such a file, is the task
    ``entities``. Any other path, and ``owner/name`` for a data set of the hub, is the task
    ``text``. The columns and files used of your own data are logged, see ``Task.source_note``. A
    module has a ``load`` function.

    ``data`` is the folder of the task's files, for tasks that need one (otherwise the environment
    variable ``SPARING_DATA``). ``options`` are the keyword arguments of the task's ``load``. Raises
    ``UsageError`` for an unknown name or option or a ``data`` that is not a folder, and
    ``DataError`` for files that are missing, cut short, broken or of another format.
    """
    if data is not None and not expanded(data).is_dir():
        raise UsageError(f"the data folder {data} does not exist")
    module, given = _home(name, data)
    known, hints = options_of(name, data), hints_of(module.load)
    for option, value in options.items():
        if option not in known:
            raise UsageError(f"task {name} has no option {quoted(option)}{nearest(option, known)}")
        hint = hints.get(option, Any)
        if hint is str and type(value) is int:
            value = str(value)  # a column named by its number
        require_type(f"task {name}", option, value, hint)
        given[option] = value
    task: Task = module.load(data=data, **given)
    if task.source_note:
        LOGGER.info("%s: %s", name, task.source_note)
    return task


def options_of(name: str, data: Path | None = None) -> list[str]:
    """The options that a task takes, for any name that ``load_task`` accepts."""
    load = _home(name, data)[0].load
    return [option for option in inspect.signature(load).parameters if option != "data"]


def facts(name: str) -> Facts:
    """The facts of a task that are known before its data is read."""
    known: Facts = _home(name)[0].FACTS
    return known


def is_safe(name: str) -> bool:
    """Whether a task named in a file is built in, a path, or a module that is already imported.

    ``load_task`` imports any module that the user names.
    """
    try:
        _home(name, typed=False)
    except UsageError:
        return False
    return True


def _home(
    name: str, data: Path | None = None, *, typed: bool = True
) -> tuple[ModuleType, dict[str, Any]]:
    """The module of a task, and the options that its name implies."""
    if name.replace("-", "_") in TASKS.names():
        return TASKS.load(name.replace("-", "_")), {}
    path = expanded(name)
    below = None if data is None else expanded(data) / name
    if below is not None and below.exists() and not path.exists():
        path = below
    if "/" in name or path.exists() or ends_with(name, (*TABLES, *CONLL)):
        return TASKS.load(_reader_of(path)), {"source": name}
    if "." not in name:
        raise UsageError(f"unknown task {quoted(name)}{nearest(name, names())}")
    return TASKS.load(name, allowed=(name,) if typed else ()), {}


def _reader_of(path: Path) -> str:
    """The task that reads your own files at a path."""
    if ends_with(path.name, CONLL) or (path.is_dir() and files_with(path, "train.", CONLL)):
        return "entities"
    return "image_folder" if _has_pictures(path) else "text"


def _has_pictures(path: Path) -> bool:
    """Whether a folder is in ImageNet's layout, or has a folder of pictures for each class."""
    if not path.is_dir():
        return False
    inside = path / "train"
    if inside.is_dir() and any(entry.is_dir() for entry in inside.iterdir()):
        return True
    return not files_with(path, "train", TABLES) and holds_classes(path)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"sparing.tasks.{_HOMES[name]}"), name)
