"""Each mechanism's configurations under test and its claims, from its file in ``entries/``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sparing.core.folder import Folder
from sparing.core.mechanism import Mechanism
from sparing.testing.claims import Claim
from sparing.testing.subject import Subject

_FOLDER = "sparing.testing.entries"


@dataclass(frozen=True)
class Entry:
    """Configurations of a mechanism that share their claims.

    ``row_sums`` claims that values of one give one.
    """

    options: tuple[dict[str, Any], ...]
    claims: tuple[Claim, ...]
    row_sums: bool = True


def entries(name: str) -> tuple[Entry, ...]:
    """The entries of ``testing/entries/NAME.py``, or the ENTRIES of a mechanism in a module."""
    if "." in name:
        in_module: tuple[Entry, ...] = getattr(importlib.import_module(name), "ENTRIES", ())
        return in_module
    if name not in Folder(_FOLDER, "entry").names():
        return ()
    listed: tuple[Entry, ...] = importlib.import_module(f"{_FOLDER}.{name}").ENTRIES
    return listed


def reference_of(name: str) -> Callable[..., Tensor] | None:
    """REFERENCE of ``testing/entries/NAME.py``: a slow form for all options; None without one."""
    if name not in Folder(_FOLDER, "entry").names():
        return None
    module = importlib.import_module(f"{_FOLDER}.{name}")
    written_out: Callable[..., Tensor] | None = getattr(module, "REFERENCE", None)
    return written_out


def subjects(name: str, build: type[Mechanism]) -> list[Subject]:
    """The configurations of a mechanism by name; an unknown one is tested with its defaults."""
    return [
        Subject(build, options, entry.row_sums, entry.claims)
        for entry in entries(name) or (Entry(({},), (), row_sums=False),)
        for options in entry.options
    ]
