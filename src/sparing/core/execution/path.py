"""The path of a call: which of a mechanism's forms does the work, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from sparing.core.errors import Unsupported, require_choice
from sparing.core.execution.installed import fla_missing, flex_missing
from sparing.core.tracing import is_exported, is_traced

logger = logging.getLogger(__name__)

Path = Literal["reference", "cpu", "accelerator", "flex", "fla"]
PATHS: tuple[Path, ...] = ("reference", "cpu", "accelerator", "flex", "fla")
LARGEST_HEAD = 256
"""Features of a head, or of a feature map, up to which the fused kernels are used."""

WHY: Mapping[Path, str] = {
    "reference": "the slow form of the tests",
    "cpu": "work is cut to fit a processor's cache",
    "accelerator": "plain PyTorch without loops",
    "flex": "FlexAttention skips what the mask hides",
    "fla": "flash-linear-attention's chunked kernels",
}


@dataclass(frozen=True)
class Call:
    """What decides the path of a call; no tensor is needed to say it.

    ``device`` is a type such as "cuda". ``recorded`` says that gradients are recorded, and
    ``traced`` whether and how the call becomes a graph.
    """

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    queries: int = 1
    keys: int = 1
    dim: int = 64
    causal: bool = False
    padded: bool = False
    recorded: bool = False
    traced: Literal["", "compiled", "exported"] = ""


@dataclass(frozen=True)
class Choice:
    """The path of a call, why, and why each better one cannot serve it."""

    path: Path
    why: str
    refused: Mapping[Path, str]


@runtime_checkable
class Served(Protocol):
    """What the choice needs of a mechanism: its forms for accelerators, best first, and limits."""

    accelerated: ClassVar[tuple[Path, ...]]

    def limits(self, path: Path, call: Call) -> str:
        """Why a form cannot serve a call; empty if it can."""


class PathFailed(Exception):
    """A kernel of a path could not be compiled or started; carries the cause."""


References = Callable[[Any], Callable[..., Tensor] | None]


@dataclass(frozen=True)
class _Forced:
    path: Path
    references: References | None = None


_forced: ContextVar[_Forced | None] = ContextVar("forced_path", default=None)
_broken: dict[Path, str] = {}
_blocks = [0]  # how many ``forced`` are open in all threads: with none, nothing is looked up


@contextmanager
def forced(path: str, references: References | None = None) -> Iterator[None]:
    """While open, all mechanisms take one path; a call that it cannot serve is refused.

    ``references`` looks up the slow form of a mechanism, for the path "reference".
    """
    require_choice("on_path", "path", path, PATHS)
    known: Path = path  # type: ignore[assignment]
    token = _forced.set(_Forced(known, references))
    _blocks[0] += 1
    try:
        yield
    finally:
        _blocks[0] -= 1
        _forced.reset(token)


def forced_path() -> Path | None:
    """The path that is forced; None while a graph is recorded, which cannot read it."""
    if not _blocks[0] or is_traced():
        return None
    given = _forced.get()
    return None if given is None else given.path


def reference_form(mechanism: object) -> Callable[..., Tensor] | None:
    """The slow form of a mechanism, where ``forced`` was given a way to find it."""
    given = _forced.get()
    if given is None or given.references is None:
        return None
    return given.references(mechanism)


def choose(mechanism: Served, call: Call) -> Choice:
    """The path that serves a call best: the forced one, or the first one without a limit.

    Raises ``Unsupported`` where a forced path cannot serve the call, with the reason.
    """
    if (given := forced_path()) is not None:
        if reason := refusal(mechanism, given, call):
            name = type(mechanism).__module__.rpartition(".")[2]
            raise Unsupported(f"{name}: the path {given!r} cannot serve this call: {reason}")
        return Choice(given, "it is forced", {})
    refused: dict[Path, str] = {}
    if call.device == "cpu":
        return Choice("cpu", WHY["cpu"], refused)
    for path in mechanism.accelerated:
        reason = refusal(mechanism, path, call)
        if not reason:
            return Choice(path, WHY[path], refused)
        refused[path] = reason
    return Choice("cpu", "no other form serves this call", refused)


def refusal(mechanism: Served, path: Path, call: Call) -> str:
    """Why a path cannot serve a call; empty if it can."""
    if path == "reference":
        return "" if reference_form(mechanism) else "no slow form is written out for its options"
    if path == "cpu":
        return ""
    if path not in mechanism.accelerated:
        return "the mechanism has no such form"
    if call.traced == "exported":
        return "an exported graph is recorded from the form for processors"
    if path in _broken:
        return _broken[path]
    if path == "flex":
        return _flex_refusal(call) or mechanism.limits(path, call)
    if path == "fla":
        return _fla_refusal(call) or mechanism.limits(path, call)
    return mechanism.limits(path, call)


def _flex_refusal(call: Call) -> str:
    if call.device == "cpu":
        recorded = "on a CPU FlexAttention has no gradients"
        return recorded if call.recorded else flex_missing("cpu")
    if call.device != "cuda":
        return f"FlexAttention's kernels need a CUDA device, not {call.device}"
    if call.dtype == torch.float64:
        return "FlexAttention's kernels have no float64"
    if not 16 <= call.dim <= LARGEST_HEAD or call.dim & (call.dim - 1):
        return f"FlexAttention is used for heads of 16, 32, 64, 128 or 256, not {call.dim}"
    return flex_missing("cuda")


def _fla_refusal(call: Call) -> str:
    if not call.causal:
        return "its kernels are causal"
    if call.device != "cuda":
        return f"its kernels need a CUDA device, not {call.device}"
    if call.dtype == torch.float64:
        return "its kernels have no float64"
    if not 16 <= call.dim <= LARGEST_HEAD or call.dim & (call.dim - 1):
        return f"it is used for heads of 16, 32, 64, 128 or 256, not {call.dim}"
    return fla_missing()


def call_of(streams: list[Tensor], keys: int, *, causal: bool, padded: bool) -> Call:
    """The call that mixes ``streams``, the queries first."""
    q = streams[0]
    traced: Literal["", "compiled", "exported"] = ""
    if is_traced():
        traced = "compiled" if torch.compiler.is_compiling() and not is_exported() else "exported"
    return Call(
        device=q.device.type,
        dtype=q.dtype,
        queries=q.shape[2],
        keys=keys,
        dim=q.shape[3],
        causal=causal,
        padded=padded,
        recorded=torch.is_grad_enabled() and any(stream.requires_grad for stream in streams),
        traced=traced,
    )


def give_up(path: Path, cause: BaseException) -> None:
    """Serve without a path from now on, after its kernels failed here; warns once.

    Raises ``Unsupported`` where the path is forced.
    """
    line = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    if forced_path() == path:
        raise Unsupported(f"the path {path!r} does not work here: {line}") from cause
    if path not in _broken:
        logger.warning("the path %r does not work here and is not used again: %s", path, line)
        _broken[path] = f"it failed in this process: {line}"
