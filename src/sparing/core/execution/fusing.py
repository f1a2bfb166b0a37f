"""Row functions as inductor compiles them, for compiled mechanisms."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

from sparing.core.tracing import is_traced

_open: ContextVar[bool] = ContextVar("compiled_rows", default=False)
_compiled: dict[types.CodeType, Callable[..., Any]] = {}
Result = TypeVar("Result", Tensor, tuple[Tensor, Tensor])


@contextmanager
def compiled_rows() -> Iterator[None]:
    """While open, ``fused`` returns compiled functions."""
    token = _open.set(True)
    try:
        yield
    finally:
        _open.reset(token)


def fused(rows: Callable[..., Result]) -> Callable[..., Result]:
    """``rows`` itself, or its compiled form while ``compiled_rows`` is open.

    One compiled function serves all functions with the same code (a closure is new at each call):
    PyTorch guards the variables that they close over. Each kind counts its recompilations
    separately, where PyTorch can.
    """
    if is_traced() or not _open.get():  # the variable itself would break the graph
        return rows
    rows = inspect.unwrap(rows)
    if rows.__code__ not in _compiled:
        build: Any = torch.compile  # its annotations lack isolate_recompiles
        apart = "isolate_recompiles" in inspect.signature(build).parameters
        options = {"isolate_recompiles": True} if apart else {}
        _compiled[rows.__code__] = build(inspect.unwrap(_apply), **options)
    shared = _compiled[rows.__code__]
    return lambda *tensors: shared(rows, *tensors)


def _apply(rows: Callable[..., Result], *tensors: Tensor | None) -> Result:
    return rows(*tensors)
