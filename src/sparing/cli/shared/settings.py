"""``--set path=value``: change one field of a frozen configuration, typed by the dataclass."""

from __future__ import annotations

import ast
import csv
import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union

from sparing.core.errors import UsageError, nearest

T = TypeVar("T")


def apply(config: T, settings: Sequence[str]) -> T:
    """The configuration with every ``path=value`` set.

    Raises ``UsageError`` for an unknown path, with the nearest name, and for a value that is not of
    the field's type. A mapping takes any name and value; its reader checks them.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes path=value; got {setting!r}")
        config = _set(config, path.strip().split("."), text.strip(), path)
    return config


def _set(config: Any, path: Sequence[str], text: str, whole: str) -> Any:
    name, *rest = path
    if isinstance(config, Mapping):
        if not name:
            raise UsageError(f"--set {whole}: a name is missing")
        inner = _set(config.get(name, {}), rest, text, whole) if rest else _parse(text)
        return {**config, name: inner}
    if not dataclasses.is_dataclass(config):
        raise UsageError(f"--set {whole}: there is no {name!r}, since the value above has no parts")
    names = [field.name for field in dataclasses.fields(config) if field.repr]
    if name not in names:
        raise UsageError(f"--set {whole}: no setting {name!r}{nearest(name, names)}")
    before = getattr(config, name)
    after = _set(before, rest, text, whole) if rest else _typed(config, name, text, whole)
    return dataclasses.replace(config, **{name: after})  # type: ignore[type-var]


def _parse(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _typed(config: Any, name: str, text: str, whole: str) -> Any:
    hint = typing.get_type_hints(type(config))[name]
    try:
        return _read(hint, text)
    except ValueError:
        before = getattr(config, name)
        if isinstance(before, Mapping) or dataclasses.is_dataclass(before):
            raise UsageError(f"--set {whole}: set one of its parts, {whole}.NAME=value") from None
        raise UsageError(f"--set {whole}: takes a value like {before!r}; got {text!r}") from None


def _read(hint: Any, text: str) -> Any:
    """The text as a value of the type; raises ``ValueError`` for text of another type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _first_that_reads(inner, text)
    if origin is Literal:
        if text in inner:
            return text
    elif origin is tuple:
        # a name with a comma is written in quotation marks
        rows = csv.reader([text.strip("()[]")], skipinitialspace=True)
        parts = [part.strip() for row in rows for part in row]
        return tuple(_read(inner[0], part) for part in parts if part)
    elif hint is str:
        return text
    else:
        value = _parse(text)
        if hint is type(None) and value is None:
            return None
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if hint in (bool, int, float) and type(value) is hint:
            return value
    raise ValueError(text)


def _first_that_reads(hints: Sequence[Any], text: str) -> Any:
    for hint in hints:
        try:
            return _read(hint, text)
        except ValueError:
            continue
    raise ValueError(text)
