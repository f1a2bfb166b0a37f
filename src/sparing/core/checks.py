"""The allowed values of a setting, declared at its field and checked together.

A field's type carries its conditions, ``rounds: Annotated[int, at_least(1)] = 20``, and
``check_fields(self)`` in ``__post_init__`` checks them. Conditions on a number hold for each entry
where the field is a tuple of numbers; None is always allowed where the type says so.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from sparing.core.errors import UsageError, nearest, quoted, require_choice


@dataclass(frozen=True)
class Condition:
    """A test of a value, and the condition in words.

    ``whole`` is for a condition on a tuple as such; ``known`` are the allowed words, if listed.
    """

    holds: Callable[[Any], bool]
    words: str = ""
    whole: bool = False
    known: tuple[str, ...] = ()


def at_least(least: int | float) -> Condition:
    """Only numbers from this on; NaN fails."""
    return Condition(lambda value: value >= least, f"must be at least {least}")


def above(bound: int | float) -> Condition:
    """Only finite numbers above this."""
    return Condition(lambda value: bound < value < math.inf, f"must be above {bound} and finite")


def within(low: int | float, high: int | float, *, ends: str = "[]") -> Condition:
    """Only numbers between these; ``ends`` shows by brackets which ends are included."""

    def holds(value: float) -> bool:
        from_low = value >= low if ends[0] == "[" else value > low
        return from_low and (value <= high if ends[1] == "]" else value < high)

    return Condition(holds, f"must be in {ends[0]}{low}, {high}{ends[1]}")


def one_of(*known: str) -> Condition:
    """Only these words."""
    return Condition(known.__contains__, known=known)


def _once(values: Iterable[Any]) -> bool:
    listed = list(values)
    return len(set(listed)) == len(listed)


distinct = Condition(_once, "are named twice", whole=True)
some = Condition(lambda values: len(values) > 0, "must name at least one", whole=True)

Count = Annotated[int, at_least(1)]
NotNegative = Annotated[int, at_least(0)]
Positive = Annotated[float, above(0)]


def check_fields(settings: Any, group: str = "") -> None:
    """Raise ``UsageError`` for the first field with a value that its declaration does not allow.

    ``group`` is the name of these settings among others, such as ``"cost"``.
    """
    kind: Any = type(settings)
    for name, conditions in _declared(kind).items():
        value = getattr(settings, name)
        for condition in conditions if value is not None else ():
            _require(group, name, value, condition)


def require_names(owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise ``UsageError`` for an unknown name, with the nearest known one."""
    for name in given:
        if name not in known:
            raise UsageError(f"{owner} has no {quoted(name)}{nearest(name, known)}")


def _require(group: str, name: str, value: Any, condition: Condition) -> None:
    whole = f"{group}.{name}" if group else name
    if condition.whole:
        if not condition.holds(value):
            shown = f": {', '.join(map(str, value))}" if value else ""
            raise UsageError(f"{whole} {condition.words}{shown}")
        return
    for entry in value if isinstance(value, tuple | list) else (value,):
        if condition.known:
            require_choice(group or "the study", name, entry, condition.known)
        elif not _holds(condition, entry):
            raise UsageError(f"{whole} {condition.words}; got {quoted(entry)}")


def _holds(condition: Condition, value: Any) -> bool:
    """Whether a value satisfies the condition; a value that is not a number does not."""
    try:
        return condition.holds(value)
    except TypeError:
        return False


@cache
def _declared(kind: Any) -> dict[str, list[Condition]]:
    """The conditions of a class's fields, including those of entries of tuples."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: conditions for name, hint in hints.items() if (conditions := _conditions(hint))}


def _conditions(hint: Any) -> list[Condition]:
    conditions = [
        condition
        for condition in getattr(hint, "__metadata__", ())
        if isinstance(condition, Condition)
    ]
    parts = typing.get_args(hint)
    if conditions:
        parts = parts[:1]  # the rest of an annotated type is its metadata
    return [*conditions, *(condition for part in parts for condition in _conditions(part))]
