"""Whether a classifier's classes are in the task's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparing.core.errors import UsageError


def require_order(named: Mapping[Any, str] | None, labels: Sequence[str], name: str) -> None:
    """Raise ``UsageError`` where the same class names are in another order.

    ``named`` are a configuration's classes by number. Names that the task does not have, such as
    LABEL_0, are ignored.
    """
    names = [str(named[key]) for key in sorted(named, key=int)] if named else []
    plain, expected = ([label.strip().lower() for label in group] for group in (names, labels))
    if plain != expected and sorted(plain) == sorted(expected):
        raise UsageError(
            f"{name} has the labels {', '.join(names)}, the task {', '.join(labels)}: "
            "put the rows of its last layer, and id2label, in the task's order"
        )
