"""Forcing a path, and the slow forms that all paths are held against."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import Tensor

from sparing.core.execution.path import forced
from sparing.testing.subjects import reference_of


def on_path(path: str) -> AbstractContextManager[None]:
    """While open, all mechanisms take one path: reference, cpu, accelerator, flex or fla.

    A call that the path cannot serve raises ``Unsupported`` with the reason. "reference" is the
    slow form of the tests: compare with it where a fast one is in doubt.
    """
    return forced(path, written_out)


def written_out(mechanism: object) -> Callable[..., Tensor] | None:
    """The slow form that serves a mechanism with any options: REFERENCE of its entry.

    It takes the mechanism, its streams and the mask, and may have loops and squares.
    """
    return reference_of(type(mechanism).__module__.rpartition(".")[2])
