"""``--set path=value``: change one field of a frozen configuration, typed by the dataclass."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sparing.core.errors import UsageError, nearest

T = TypeVar("T")


def apply(config: T, settings: Sequence[str]) -> T:
    """The configuration with each ``path=value`` set.

    Raises ``UsageError`` for an unknown path, with the nearest name, and for a value of another
    type than the one that stands there.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes path=value, got {setting!r}")
        config = _set(config, path.strip().split("."), _parse(text.strip()), path)
    return config


def _parse(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _set(config: Any, path: Sequence[str], value: Any, whole: str) -> Any:
    name, *rest = path
    if isinstance(config, Mapping):
        inner = _set(config.get(name, {}), rest, value, whole) if rest else value
        return {**config, name: inner}
    if not dataclasses.is_dataclass(config):
        raise UsageError(f"--set {whole}: there is nothing below {name!r}")
    names = [field.name for field in dataclasses.fields(config)]
    if name not in names:
        raise UsageError(f"--set {whole}: no setting {name!r}{nearest(name, names)}")
    before = getattr(config, name)
    after = _set(before, rest, value, whole) if rest else _typed(before, value, whole)
    return dataclasses.replace(config, **{name: after})  # type: ignore[type-var]


def _typed(before: Any, value: Any, whole: str) -> Any:
    if isinstance(before, tuple):
        value = value if isinstance(value, tuple | list) else (value,)
        return tuple(_typed(before[0], entry, whole) if before else entry for entry in value)
    if isinstance(before, bool) or before is None:
        fits = before is None or isinstance(value, bool)
    elif isinstance(before, float):
        value = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        fits = isinstance(value, float)
    elif isinstance(before, int):
        fits = value is None or (isinstance(value, int) and not isinstance(value, bool))
    elif isinstance(before, str):
        fits, value = True, str(value)
    else:
        fits = False
    if not fits:
        kind = type(before).__name__
        raise UsageError(f"--set {whole}: wants a value like {before!r} ({kind}), got {value!r}")
    return value
