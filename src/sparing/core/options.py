"""A mechanism's options: their names, and the types of their values."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Literal, Union

from sparing.core.errors import UsageError, nearest, quoted


def option_defaults(mechanism: type) -> dict[str, object]:
    """The keyword options of a mechanism's constructor with their defaults."""
    parameters = inspect.signature(mechanism.__init__).parameters.values()  # type: ignore[misc]
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def require_options(name: str, mechanism: type, options: Mapping[str, object]) -> None:
    """Raise ``UsageError`` for an unknown option, or a value of another type."""
    known, hints = option_defaults(mechanism), _hints(mechanism)
    for option, value in options.items():
        if option not in known:
            raise UsageError(f"{name} has no option {quoted(option)}{nearest(option, known)}")
        require_type(name, option, value, hints.get(option, Any))


def require_type(name: str, option: str, value: object, hint: Any) -> None:
    """Raise ``UsageError`` for a value that is not of the declared type."""
    if not _fits(value, hint):
        raise UsageError(f"{name}: {option} must be {_in_words(hint)}; got {quoted(value)}")


def _hints(mechanism: type) -> dict[str, Any]:
    return hints_of(mechanism.__init__)  # type: ignore[misc]


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The declared types of a function; none where a third party's names cannot be resolved."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a declared type; other declarations accept every value."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin in (Sequence, list, tuple):
        kinds = Sequence if origin is Sequence else (list, tuple)  # JSON has only lists
        if not isinstance(value, kinds) or isinstance(value, str):
            return False
        return not parts or all(_fits(entry, parts[0]) for entry in value)
    if hint in (int, float):
        kind = Integral if hint is int else Real
        return isinstance(value, kind) and not isinstance(value, bool)
    if hint is None or hint is type(None):
        return value is None
    if hint is str:
        return isinstance(value, str | PurePath)
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def _in_words(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(part) for part in parts)
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin in (Sequence, list, tuple):
        return f"a list, each {_in_words(parts[0])}" if parts else "a list"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    if hint in words:
        return words[hint]
    return "none" if hint in (None, type(None)) else str(getattr(hint, "__name__", hint))
