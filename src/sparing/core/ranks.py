"""The processes of one training: which one writes, what is alike, and means over all of them.

In one process every function here returns its argument. In several, each computes a share of every
batch. ``torch`` averages the gradients of all processes. So the means below have gradients that are
larger by the number of processes: the average is then that of the mean over the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor

T = TypeVar("T")
LOOK_EVERY_S = 0.05
_alone: ContextVar[bool] = ContextVar("sparing_alone", default=False)


def is_joined() -> bool:
    """Whether this process has joined others, even if it works alone now."""
    return dist.is_available() and dist.is_initialized()


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if is_joined() and not _alone.get() else 1


def is_alone() -> bool:
    """Whether the other processes wait while this one works."""
    return is_joined() and _alone.get()


@contextmanager
def alone(now: bool = True) -> Iterator[None]:
    """Inside, this process counts as the only one: the others wait for it.

    Inside of that, ``now=False`` is for what all do together.
    """
    token = _alone.set(now)
    try:
        yield
    finally:
        _alone.reset(token)


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if world() > 1 else 0


def is_first() -> bool:
    """Whether this is process 0, which alone writes files and prints."""
    return rank() == 0


@dataclass(frozen=True)
class Share:
    """The rows ``start`` to ``stop`` of a batch of ``whole`` examples.

    A process without an example in a small batch computes one that does not count (``empty``), so
    that all processes take the same steps.
    """

    whole: int
    start: int
    stop: int
    empty: bool = False

    @property
    def rows(self) -> slice:
        """The rows of the whole batch that this process computes."""
        return slice(self.start, self.stop)


def share_of(whole: int, number: int, processes: int) -> Share:
    """The share of process ``number``: consecutive rows, one more or less than the others."""
    start, stop = whole * number // processes, whole * (number + 1) // processes
    if start == stop:
        return Share(whole, 0, 1, empty=True)
    return Share(whole, start, stop)


_share: ContextVar[Share | None] = ContextVar("sparing_share", default=None)


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Inside, a loss is that of the whole batch, of which this process has a share."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


def whole_batch(count: int) -> tuple[int, slice]:
    """The size of the whole batch, and this process's rows, where ``count`` rows are here.

    Draw random numbers for the whole batch and take the rows: they are then those of one process.
    """
    share = _share.get()
    return (count, slice(0, count)) if share is None else (share.whole, share.rows)


def over_ranks(mean: Float[Tensor, ""], count: int | Tensor) -> Float[Tensor, ""]:
    """The mean over all processes' items, where ``mean`` is that of ``count`` items here.

    It is 0 where no process has an item.
    """
    share = _share.get()
    if share is None:
        return mean
    counted = torch.as_tensor(0 if share.empty else count, device=mean.device)
    whole: Tensor = _Whole.apply(mean, counted.to(torch.float64))  # type: ignore[no-untyped-call]
    return whole


def mean_of(values: Tensor) -> Float[Tensor, ""]:
    """The mean of all elements, over all processes."""
    return over_ranks(values.mean(), values.numel())


def gathered(rows: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "all_rows ..."]:
    """The rows of all processes in their order, for losses that compare examples of a batch."""
    share = _share.get()
    if share is None:
        return rows
    counted = 0 if share.empty else len(rows)
    whole: Tensor = _Gathered.apply(rows, counted)  # type: ignore[no-untyped-call]
    return whole


def alike(drawn: Tensor) -> Tensor:
    """Process 0's value: of something random that all examples of a step have in common."""
    if _share.get() is None:
        return drawn
    drawn = drawn.clone()
    dist.broadcast(drawn, src=0)
    return drawn


class _Whole(torch.autograd.Function):
    """A mean over all processes, from each one's mean and count."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, count: Tensor) -> Tensor:
        """Sum both over the processes."""
        here = torch.where(count > 0, mean.double() * count, 0.0)  # a mean of nothing is NaN
        sums = torch.stack([here, count])
        dist.all_reduce(sums)
        everything = sums[1].clamp(min=1)
        ctx.factor = count * world() / everything
        return (sums[0] / everything).to(mean.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The share of this process, times the number of processes."""
        (gradient,) = gradients
        return (gradient * ctx.factor).to(gradient.dtype), None


class _Gathered(torch.autograd.Function):
    """The rows of all processes, of which this one has ``counted``."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counted: int) -> Tensor:
        """Exchange the counts, then the rows, padded to the largest count."""
        counts = torch.zeros(world(), dtype=torch.long, device=rows.device)
        counts[rank()] = counted
        dist.all_reduce(counts)
        sizes: list[int] = counts.tolist()
        parts = [rows.new_empty((max(sizes), *rows.shape[1:])) for _ in sizes]
        padded = torch.zeros_like(parts[0])
        padded[:counted] = rows[:counted].detach()
        dist.all_gather(parts, padded)
        ctx.start, ctx.counted, ctx.shape = sum(sizes[: rank()]), counted, rows.shape
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The gradient of this process's rows, times the number of processes."""
        (gradient,) = gradients
        here = gradient.new_zeros(ctx.shape)
        here[: ctx.counted] = world() * gradient[ctx.start : ctx.start + ctx.counted]
        return here, None


def first(function: Callable[[], T]) -> T:
    """What ``function`` returns in process 0, which alone calls it; all raise what it raises."""
    if world() == 1:
        return function()
    message: list[Any] = [None, None]
    if is_first():
        try:
            message[0] = function()
        except Exception as error:
            message[1] = error
    dist.broadcast_object_list(message, src=0)
    if message[1] is not None:
        raise message[1]
    result: T = message[0]
    return result


def everywhere(value: T) -> list[T]:
    """The value of each process, in their order."""
    if world() == 1:
        return [value]
    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def anywhere(holds: bool) -> bool:
    """Whether it holds in any process; returns when all of them are here."""
    if world() == 1:
        return holds
    there = torch.tensor(int(holds), device=_device())
    dist.all_reduce(there, op=dist.ReduceOp.MAX)
    return bool(there)


def wait_for_all() -> None:
    """Return when all processes are here."""
    anywhere(False)


def wait_for_first() -> None:
    """Return when process 0 is here too; meanwhile signals are handled and no processor is busy."""
    arrived = dist.broadcast(torch.zeros(1, device=_device()), src=0, async_op=True)
    while not arrived.is_completed():
        time.sleep(LOOK_EVERY_S)
    arrived.wait()


@contextmanager
def first_before_others() -> Iterator[None]:
    """Process 0 runs the block before the others, which then find the files that it wrote."""
    if not is_first():
        wait_for_all()
    try:
        yield
    finally:
        if is_first():
            wait_for_all()


def _device() -> torch.device:
    """Where the processes can exchange small numbers: on the CPU if they have a way for it."""
    if "cpu" in dist.get_backend_config():
        return torch.device("cpu")
    return torch.device(f"cuda:{torch.cuda.current_device()}")
