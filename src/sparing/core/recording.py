"""The log of a forward pass: scores, kept shares, auxiliary losses.

Attributes written in ``forward`` hold graphs alive and break compile, export and checkpointing;
here nothing is kept unless a log is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Log = dict[str, list[Tensor]]


@dataclass(frozen=True)
class _OpenLog:
    """The log being filled, and the names of the modules that may write to it."""

    log: Log
    names: dict[int, str]


_open_log: ContextVar[_OpenLog | None] = ContextVar("sparing_log", default=None)


@contextmanager
def record(model: nn.Module) -> Iterator[Log]:
    """Collect the reports of mechanisms and adaptive layers while the block is open.

    Returns a dictionary from names such as ``encoder.layer.0.attention.self.sparing/residual`` to
    the reported tensors, in the order of the calls. Only modules inside ``model`` are recorded.
    """
    opened = _OpenLog({}, {id(module): name for name, module in model.named_modules()})
    token = _open_log.set(opened)
    try:
        yield opened.log
    finally:
        _open_log.reset(token)


def is_logged(module: nn.Module) -> bool:
    """Whether an open log records the module: check before computing values for a log only."""
    if torch.compiler.is_compiling():
        return False
    opened = _open_log.get()
    return opened is not None and id(module) in opened.names


def report(module: nn.Module, name: str, value: Tensor) -> None:
    """Pass ``value`` to the open log under the module's name; without a log, do nothing."""
    if torch.compiler.is_compiling():
        return
    opened = _open_log.get()
    if opened is not None and id(module) in opened.names:
        owner = opened.names[id(module)]
        opened.log.setdefault(f"{owner}/{name}" if owner else name, []).append(value)
