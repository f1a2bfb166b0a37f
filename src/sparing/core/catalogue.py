"""Mechanisms by name: list, look up, build."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from sparing.core.errors import UsageError
from sparing.core.folder import Folder
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.options import require_options

MECHANISMS = Folder("sparing.mechanisms", "mechanism")
RENAMED = {"delta": "difference"}
"""Earlier names of mechanisms and today's: files may have them, calls must have the new ones."""


def current_name(name: str) -> str:
    """The name that a mechanism has today, for one from a file; others stay as they are."""
    return RENAMED.get(name, name)


def mechanism_class(name: str, allowed: Sequence[str] = ()) -> type[Mechanism]:
    """The class of a name, or of the dotted path of a third party's module.

    The module must be imported already, or ``allowed`` must name it or a package around it: names
    come from files too. Raises ``UsageError`` with the nearest names when there is none.

    An earlier name of a mechanism means today's, unless the user typed it (see ``allow``).
    """
    if name in allowed:
        _require_current(name)
    module = MECHANISMS.load(current_name(name), allowed)
    kinds = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Mechanism)
        and not inspect.isabstract(value)
        and value.__module__ == module.__name__
    ]
    if len(kinds) != 1:
        raise UsageError(f"{module.__name__} must define exactly one mechanism, has {len(kinds)}")
    return kinds[0]


def allow(*names: str) -> None:
    """Import the modules of dotted names that the user typed; sparing's own stay unloaded.

    Raises ``UsageError`` where there is no such module, and for an earlier name of a mechanism.
    """
    for name in names:
        _require_current(name)
        if "." in name:
            MECHANISMS.load(name, allowed=(name,))


def mechanism(name: str, heads: Heads, **options: object) -> Mechanism:
    """Build a mechanism by name, or by the dotted path of a module, which is imported.

    Raises ``UsageError`` for an unknown name or option, naming the nearest, and for a value of
    another type.
    """
    allow(name)
    return build(name, heads, options)


def build(name: str, heads: Heads, options: Mapping[str, object]) -> Mechanism:
    """As ``mechanism``, for a name from a file: no module is imported for it."""
    kind = mechanism_class(name)
    require_options(name, kind, options)
    return kind(heads, **options)


def _require_current(name: str) -> None:
    if name in RENAMED:
        raise UsageError(f"unknown mechanism {name!r}: it is named {RENAMED[name]!r} now")
