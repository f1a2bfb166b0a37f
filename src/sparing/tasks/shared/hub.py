"""Data sets from the hub, through ``datasets``; every error names an alternative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from sparing.core.errors import DataError, quoted
from sparing.tasks._pictures import decoded


def from_hub(task: str, *name: str, instead: str) -> Any:
    """The data set of that name (and configuration), fetched or from the hub's own cache.

    ``instead`` says what to do where the hub cannot be reached. Raises ``DataError``.
    """
    import datasets

    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(*name)
    # The hub's client, its transport and the file systems below raise errors of many kinds.
    except Exception as error:
        raise DataError(
            f"task {task}: the hub could not be reached ({type(error).__name__}); {instead}"
        ) from error
    finally:
        if not hidden:
            datasets.enable_progress_bars()


def looks_like_hub(source: str) -> bool:
    """Whether a name may be one of the hub, ``owner/name``, and not a path."""
    owner, slash, rest = source.partition("/")
    return bool(owner and slash and rest) and "/" not in rest and not owner.startswith((".", "~"))


def columns_of(task: str, data_set: Any, split: str, names: tuple[str, ...]) -> list[Any]:
    """The columns of one split; raises ``DataError`` naming a missing split or column."""
    if split not in data_set:
        raise DataError(f"task {task}: the hub's data set has no split {split!r}")
    for name in names:
        try:
            data_set[split][name]
        except (KeyError, ValueError) as error:
            raise DataError(
                f"task {task}: the hub's split {split} has no column {name!r}"
            ) from error
    return [data_set[split][name] for name in names]


def pictures_of(task: str, data_set: Any, split: str, column: str) -> list[UInt8[Tensor, "3 h w"]]:
    """The pixels of a column of pictures; raises ``DataError`` naming the first broken one.

    The stored bytes are decoded here, in the formats and sizes of all other pictures: ``datasets``
    would decode anything. A path instead of bytes is not followed.
    """
    import datasets

    columns_of(task, data_set, split, ())
    plain = data_set[split]
    if column in plain.column_names:
        plain = plain.cast_column(column, datasets.Image(decode=False))
    pictures = []
    for number, stored in enumerate(columns_of(task, {split: plain}, split, (column,))[0]):
        name = f"task {task}: picture {number} of the hub's split {split}"
        content = stored.get("bytes") if isinstance(stored, dict) else None
        if not isinstance(content, bytes):
            raise DataError(f"{name} is missing")
        pictures.append(decoded(content, name))
    return pictures


def class_numbers(where: str, labels: Sequence[Any], classes: int) -> list[int]:
    """The labels of a data set; raises ``DataError`` for one that is not a class number."""
    for label in labels:
        if type(label) is not int or not 0 <= label < classes:
            raise DataError(f"{where} has the label {quoted(label)}; labels are 0 to {classes - 1}")
    return list(labels)
