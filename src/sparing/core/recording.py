"""One door for what happens inside a forward pass: scores, kept shares, auxiliary losses.

Attributes written in ``forward`` hold graphs alive and break compile, export and checkpointing;
here nothing is kept unless somebody listens.
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
    """Collect what mechanisms and adaptive layers report while the block is open.

    Gives a dictionary from names such as ``encoder.layer.0.attention.self.sparing/residual`` to
    the tensors reported, in the order of the calls. Only what ``model`` contains is heard.
    """
    opened = _OpenLog({}, {id(module): name for name, module in model.named_modules()})
    token = _open_log.set(opened)
    try:
        yield opened.log
    finally:
        _open_log.reset(token)


def is_heard(module: nn.Module) -> bool:
    """Whether an open log listens to the module: ask before computing what only a log wants."""
    if torch.compiler.is_compiling():
        return False
    opened = _open_log.get()
    return opened is not None and id(module) in opened.names


def report(module: nn.Module, name: str, value: Tensor) -> None:
    """Hand ``value`` to the open log under the module's name; without one, do nothing."""
    if torch.compiler.is_compiling():
        return
    opened = _open_log.get()
    if opened is not None and id(module) in opened.names:
        owner = opened.names[id(module)]
        opened.log.setdefault(f"{owner}/{name}" if owner else name, []).append(value)
