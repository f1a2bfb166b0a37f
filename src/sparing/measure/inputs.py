"""The times of several models on the same real inputs, in turn, and their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from sparing.core.errors import UsageError, nearest
from sparing.measure.latency import paused_garbage_collector, turn
from sparing.measure.load import Load, LoadWatch
from sparing.measure.machine import synchronize
from sparing.measure.machine import threads as pinned
from sparing.measure.statistics import Interval

Array = NDArray[np.float64]
Input = TypeVar("Input")
Answer = TypeVar("Answer")
RESAMPLES, AT_ONCE = 4_000, 100


@dataclass(frozen=True, eq=False)
class InputTimes(Generic[Answer]):
    """One call's times in milliseconds (rounds, inputs), and its answers of the first round.

    Calls that depend on their input, by its length or by its exit, have no single latency. The
    median over rounds belongs to each input, and sums and percentiles are taken over inputs.
    ``load`` is the other work of the machine meanwhile.
    """

    times_ms: Array
    answers: list[Answer]
    load: Load | None = None

    @property
    def typical_ms(self) -> Array:
        """Each input's median over the rounds."""
        return np.median(self.times_ms, axis=0)

    def percentile_ms(self, share: float) -> float:
        """The time that this share (in per cent) of the inputs stays below."""
        return float(np.percentile(self.typical_ms, share))


@dataclass(frozen=True)
class SpeedUp:
    """The baseline's time for all inputs over the candidate's, with a 95 % interval over inputs."""

    value: float
    interval: Interval | None
    inputs: int


def time_inputs(
    calls: Mapping[str, Callable[[Input], Answer]],
    inputs: Sequence[Input],
    *,
    rounds: int = 3,
    warmup: int = 3,
    threads: int | None = 1,
    block: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, InputTimes[Answer]]:
    """Time every call on every input, all calls on a ``block`` of inputs before the next block.

    Their order is rotated from block to block and reversed after each full turn. So neither
    position nor neighbour favours a call, and slow drift cancels. With blocks of one input other
    calls fill the caches; a longer block is nearer to a model that runs alone. The first ``warmup``
    inputs run once before. ``threads`` pins PyTorch's threads. Raises ``UsageError`` without calls,
    inputs or rounds; errors of a call pass through.
    """
    if not calls or not len(inputs) or min(rounds, block) < 1 or warmup < 0:
        raise UsageError("time_inputs needs calls, inputs, at least one round, and warmup >= 0")
    times = {name: np.zeros((rounds, len(inputs))) for name in calls}
    answers: dict[str, list[Answer]] = {name: [] for name in calls}
    with pinned(threads) as count, paused_garbage_collector():
        for one in inputs[:warmup]:
            for call in calls.values():
                call(one)
        watch = LoadWatch(count)
        order = _order(list(calls), rounds, len(inputs), block)
        for done, (number, name, index) in enumerate(order, start=1):
            synchronize()
            start = clock()
            answer = calls[name](inputs[index])
            synchronize()
            times[name][number, index] = 1e3 * (clock() - start)
            if number == 0:
                answers[name].append(answer)
            on_progress(done / (rounds * len(inputs) * len(calls)))
        load = watch.end()
    return {name: InputTimes(times[name], answers[name], load) for name in calls}


def _order(
    names: list[str], rounds: int, inputs: int, block: int
) -> Iterator[tuple[int, str, int]]:
    """The round, the call and the input of each measurement."""
    for number in range(rounds):
        for first in range(0, inputs, block):
            for name in turn(names, first // block + number):
                for index in range(first, min(first + block, inputs)):
                    yield number, name, index


def speed_up(
    candidate: InputTimes[Answer], baseline: InputTimes[Answer], *, seed: int = 0
) -> SpeedUp:
    """The time of all inputs together, the baseline's over the candidate's: above 1 is faster.

    The interval is the percentile bootstrap over inputs (each with its times of both calls): it
    holds for other inputs of the same kind on this machine. With few inputs a bootstrap is too
    narrow: its interval is widened as Student's is relative to the normal one. One input has none.
    """
    candidate_ms, baseline_ms = candidate.typical_ms, baseline.typical_ms
    if len(candidate_ms) != len(baseline_ms):
        raise UsageError(
            f"speed is compared in pairs; got {len(candidate_ms)} and {len(baseline_ms)} inputs"
        )
    generator = np.random.default_rng(seed)
    ratios = []
    for _ in range(RESAMPLES // AT_ONCE):
        chosen = generator.integers(len(candidate_ms), size=(AT_ONCE, len(candidate_ms)))
        ratios.append(baseline_ms[chosen].sum(1) / candidate_ms[chosen].sum(1))
    value, count = float(baseline_ms.sum() / candidate_ms.sum()), len(candidate_ms)
    if count < 2:
        return SpeedUp(value, None, count)
    wider = float(stdtrit(count - 1, 0.975) / ndtri(0.975)) * (count / (count - 1)) ** 0.5
    low, high = (value * (end / value) ** wider for end in np.percentile(ratios, (2.5, 97.5)))
    return SpeedUp(value, (float(low), float(high)), count)


def fastest(times: Mapping[str, InputTimes[Answer]], among: Sequence[str]) -> str:
    """The named call that took least time in all; ``UsageError`` for unknown or no names."""
    if not among:
        raise UsageError("fastest needs at least one name")
    for name in among:
        if name not in times:
            raise UsageError(f"{name!r} was not timed{nearest(name, times)}")
    return min(among, key=lambda name: float(times[name].typical_ms.sum()))
