"""Data sets from the hub, through ``datasets``; every failure says what else can be done."""

from __future__ import annotations

from typing import Any

from sparing.core.errors import DataError


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


def columns_of(task: str, found: Any, split: str, names: tuple[str, ...]) -> list[Any]:
    """The columns of one split; raises ``DataError`` naming the split or column that is missing."""
    if split not in found:
        raise DataError(f"task {task}: the hub's data set has no split {split!r}")
    for name in names:
        try:
            found[split][name]
        except (KeyError, ValueError) as error:
            raise DataError(
                f"task {task}: the hub's split {split} has no column {name!r}"
            ) from error
    return [found[split][name] for name in names]
