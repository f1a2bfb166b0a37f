"""The times of calls relative to a baseline: paired, interleaved, with pinned threads."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from sparing.core.errors import UsageError, nearest
from sparing.measure.load import Load, LoadWatch
from sparing.measure.machine import synchronize
from sparing.measure.machine import threads as pinned
from sparing.measure.statistics import Ratio, median_ratio

Call = Callable[[], object]
Clock = Callable[[], float]

FEWEST_ROUNDS = 5
MOST_REPEATS = 100_000


@dataclass(frozen=True)
class PairedLatency:
    """The times of one call, one sample a round, compared with the baseline's.

    ``samples_ms`` are milliseconds per call, from which everything else is computed; each is the
    mean of ``repeats`` calls in a row. ``ratio`` is this call's time over the baseline's, the
    median over rounds: below 1 is faster. ``threads`` is PyTorch's thread count during the
    measurement, ``load`` the other work of the machine meanwhile.
    """

    samples_ms: tuple[float, ...]
    p50_ms: float
    p90_ms: float
    p99_ms: float
    ratio: Ratio
    repeats: int
    threads: int
    load: Load | None = None

    @property
    def disturbance(self) -> str:
        """Why these times cannot be used: the other work of the machine; empty if quiet."""
        return self.load.disturbance if self.load is not None else ""


def paired_latency(
    calls: Mapping[str, Call],
    *,
    baseline: str,
    rounds: int = 20,
    warmup: int = 2,
    threads: int | None = 1,
    min_sample_ms: float = 2.0,
    budget_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> dict[str, PairedLatency]:
    """Time several calls against each other, one sample of each in every round.

    The order is rotated from round to round and reversed after each full turn. So neither a
    position in the round nor a neighbour favours a call, and slow drift cancels. Each sample
    repeats its call until it lasts about ``min_sample_ms``. ``threads`` pins PyTorch's thread count
    (``None`` leaves it); it is restored afterwards, as is the garbage collector, which is off
    meanwhile. After ``budget_s`` seconds, warm-up included, no round beyond the fifth is started.
    ``clock`` returns seconds. Raises ``UsageError`` for an unknown baseline or impossible counts;
    errors of a call pass through.
    """
    _check(calls, baseline, rounds, warmup, min_sample_ms)
    with pinned(threads) as count, paused_garbage_collector():
        start = clock()
        repeats = {
            name: _warm_up(call, warmup, min_sample_ms, clock) for name, call in calls.items()
        }
        samples: dict[str, list[float]] = {name: [] for name in calls}
        watch = LoadWatch(count)
        for number in range(rounds):
            late = budget_s is not None and clock() - start >= budget_s
            if late and number >= min(FEWEST_ROUNDS, rounds):
                break
            for name in turn(list(calls), number):
                elapsed = _elapsed_s(calls[name], repeats[name], clock)
                samples[name].append(1e3 * elapsed / repeats[name])
        load = watch.end()
    base = samples[baseline]
    return {name: _summary(samples[name], base, repeats[name], count, load) for name in calls}


def _check(
    calls: Mapping[str, Call], baseline: str, rounds: int, warmup: int, min_sample_ms: float
) -> None:
    if baseline not in calls:
        raise UsageError(
            f"the baseline {baseline!r} is not among the calls{nearest(baseline, calls)}"
        )
    if rounds < 1:
        raise UsageError(f"rounds must be at least 1; got {rounds}")
    if warmup < 0:
        raise UsageError(f"warmup must not be negative; got {warmup}")
    if not min_sample_ms >= 0:
        raise UsageError(f"min_sample_ms must not be negative; got {min_sample_ms}")


def turn(names: list[str], number: int) -> list[str]:
    """The order of a round: rotated by one each time, reversed in every second full turn."""
    shift = number % len(names)
    rotated = names[shift:] + names[:shift]
    return rotated[::-1] if number // len(names) % 2 else rotated


def _warm_up(call: Call, warmup: int, min_sample_ms: float, clock: Clock) -> int:
    """Run the call cold, then find how many repeats fill a sample."""
    for _ in range(warmup):
        call()
    synchronize()
    repeats = 1
    while True:
        elapsed_ms = 1e3 * _elapsed_s(call, repeats, clock)
        if elapsed_ms >= min_sample_ms or repeats >= MOST_REPEATS:
            return repeats
        # A first guess from a very short sample is coarse: grow by ten at most, then look again.
        needed = repeats * min_sample_ms / max(elapsed_ms, 1e-9)
        repeats = min(MOST_REPEATS, 10 * repeats, max(repeats + 1, math.ceil(needed)))


def _elapsed_s(call: Call, repeats: int, clock: Clock) -> float:
    synchronize()
    start = clock()
    for _ in range(repeats):
        call()
    synchronize()
    return clock() - start


def _summary(
    samples: list[float], baseline: list[float], repeats: int, count: int, load: Load
) -> PairedLatency:
    p50, p90, p99 = (float(value) for value in np.percentile(samples, (50, 90, 99)))
    ratio = median_ratio(samples, baseline)
    return PairedLatency(tuple(samples), p50, p90, p99, ratio, repeats, count, load)


@contextmanager
def paused_garbage_collector() -> Iterator[None]:
    """Turn the garbage collector off inside the block."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
