"""Load a named task, with the options that a model was trained with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import UsageError, nearest
from sparing.core.paths import expanded
from sparing.core.reading import parse_json, read_plain

if TYPE_CHECKING:
    from sparing.tasks import Examples, Task


CHANGED = (
    "the data has changed since this model was trained: its test examples may be among its "
    "training examples"
)


def load_for(
    name: str, options: Mapping[str, Any], model: str, data: Path | None
) -> tuple[Task, dict[str, Any]]:
    """The task for a model, and the options it was loaded with.

    Options that are not given come from the training that made the model, where it was on the same
    task: patches of another size would be another task. A task that can be read with a pretrained
    tokenizer takes that of the model.
    """
    from sparing.experiment.inputs.order import in_models_order
    from sparing.tasks import load_task, options_of
    from sparing.tasks.shared.text import BYTES

    remembered = _remembered(name, model)
    if remembered.get("tokenizer") != BYTES and _has_tokenizer(model, in_folder=True):
        remembered.pop("tokenizer", None)  # the one it was trained with is in its folder
    chosen = {**remembered, **options}
    takes_tokenizer = bool(model) and "tokenizer" in options_of(name, data)
    if takes_tokenizer and "tokenizer" not in chosen and _has_tokenizer(model):
        chosen["tokenizer"] = str(expanded(model)) if model.startswith("~") else model
    return in_models_order(load_task(name, data=data, **chosen), model), chosen


def drawn_order(count: int) -> list[int]:
    """The order in which examples of a split are sampled, the same in every run."""
    import torch

    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    return order


def drawn(examples: Examples, most: int) -> Examples:
    """A random sample of at most ``most`` examples, in their original order."""
    return examples.subset(sorted(drawn_order(len(examples))[:most]))


def limited(
    task: Task, sizes: Mapping[str, int], draw: Callable[[Examples, int], Examples], way: str
) -> Task:
    """The task with splits of so many examples at most (0: all), and a note on each that was cut.

    ``draw`` takes that many examples of a split; ``way`` says how, for the note.
    """
    for split, most in sizes.items():
        whole = task.split(split)
        if 0 < most < len(whole):
            note = f"{split}: {most:,} of {len(whole):,} examples, {way}"
            parts: dict[str, Any] = {split: draw(whole, most)}
            if split in task.more_tests:
                parts = {"more_tests": {**task.more_tests, **parts}}
            task = replace(task, **parts, notes=(*task.notes, note))
    return task


def require_tasks(setting: str, given: Iterable[str], paths: Iterable[str]) -> None:
    """Raise ``UsageError`` for a setting of an unknown task; ``paths`` are known ones too."""
    from sparing.tasks import names

    known = [*names(), *paths]
    for task in given:
        if task not in known:
            raise UsageError(f"{setting}.{task}: unknown task {task!r}{nearest(task, known)}")


def _has_tokenizer(model: str, *, in_folder: bool = False) -> bool:
    """Whether a model has a tokenizer; a model on a hub counts unless ``in_folder``."""
    from sparing.models import names
    from sparing.tasks.shared.text import has_vocabulary

    if not model or model in names():
        return False
    folder = expanded(model)
    return has_vocabulary(folder) if folder.is_dir() else not in_folder


def task_of(model: str) -> str:
    """The task that the model in a folder was trained on; "" where it is unknown."""
    return next((task for task, *_ in _trainings(model)), "")


def with_warning(task: Task, name: str, options: Mapping[str, Any], model: str) -> Task:
    """The task, with a note where its data is not what this model was trained on."""
    for named, trained_on, digests in _trainings(model):
        # the tokenizer is at another path now, in the model's folder
        if named == name and {**trained_on, "tokenizer": 0} == {**options, "tokenizer": 0}:
            if digests.get(task.name, task.digest) != task.digest:
                return replace(task, notes=(*task.notes, CHANGED))
            break
    return task


def _remembered(task: str, model: str) -> dict[str, Any]:
    """The task's options in the training that left this model's folder; empty where none did."""
    return next((dict(options) for named, options, _ in _trainings(model) if named == task), {})


def _trainings(model: str) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """The tasks, options and digests of data of the trainings in a model's folder and around it."""
    from sparing.models import names
    from sparing.tasks import is_safe

    if not model or model in names():
        return
    folder = expanded(model)
    for path in (folder / "training", folder.parent / "training"):
        try:
            config = parse_json(read_plain(path / "config.json"))
            task, options = config["identity"]["task"], config["identity"]["task_options"]
            digests = dict(config.get("data") or {})
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(task, str) and isinstance(options, dict) and is_safe(task):
            yield task, options, digests
