"""A sweep of arms over lengths: paired times, peak memory, and the calls that are not run.

A call is predicted before it is made: its bytes by closed form, its seconds by a measured shorter
call times the growth of its FLOPs. What does not fit the budget becomes a ``not_run`` record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Literal

import psutil
import torch

from sparing.core.mechanism import Mechanism
from sparing.core.record import Labels, Record
from sparing.core.workload import Workload
from sparing.experiment.arms import DENSE
from sparing.experiment.cells.device import device
from sparing.experiment.cells.probe import Call
from sparing.experiment.run import Cell
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.machine import synchronize, threads
from sparing.measure.memory import PeakMemory, peak_memory
from sparing.measure.statistics import median_ratio

SHORT = 2048  # tokens of the shorter call that predictions start from
RATE_CALLS = 3
FREE_SHARE = 0.5
STREAMS = 4  # arrays as large as the queries that live beside a mechanism's peak
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Demand:
    """What one call needs by closed form: FLOPs, and bytes at its peak with its inputs."""

    flops: float
    bytes: float


@dataclass(frozen=True)
class Point:
    """One arm at one length: ``arguments`` build its call, ``labels`` are those of its records.

    The arguments hold the length as ``tokens`` and, where there is one, the ``batch``.
    """

    arm: str
    arguments: dict[str, Any]
    labels: Labels


@dataclass(frozen=True)
class Forecast:
    """What one call is predicted to take, and the most that it may take."""

    seconds: float
    bytes: float
    most_seconds: int | float
    most_bytes: int | float

    @property
    def refusal(self) -> Literal["", "memory", "time"]:
        """What does not fit: memory first, which other programs need too; empty where all fits."""
        if self.bytes > self.most_bytes:
            return "memory"
        return "time" if self.seconds > self.most_seconds else ""

    def not_run(self, labels: Labels, of: str) -> Record:
        """The record of a refused call: what it would take; ``of`` is the quantity to measure."""
        value, unit = (self.seconds, "s") if self.refusal == "time" else (self.bytes, "bytes")
        about: Labels = {**labels, "why": self.refusal, "of": of}
        return Record("not_run", value, unit, "modelled", about)


@dataclass(frozen=True)
class Budget:
    """The most seconds and bytes of one call; ``demand`` is its closed form, by its arguments.

    On a CPU a call may never take more than half of the free memory.
    """

    demand: Callable[..., Demand]
    seconds: int | float
    bytes: int | float


@dataclass(frozen=True)
class Sweep:
    """Measures points: ``build`` makes a point's call from its arguments.

    A process of its own imports ``build`` to measure memory: it is a function of a module, and the
    arguments are what JSON can carry. Without a budget every call is made.
    """

    build: Callable[..., Call]
    rounds: int
    threads: int
    budget: Budget | None = None

    def forecast(self, point: Point) -> Forecast:
        """What the point's call would take, by a shorter one that is measured now.

        That one has ``SHORT`` tokens at most, in a batch of one.
        """
        if self.budget is None:
            return Forecast(0.0, 0.0, math.inf, math.inf)
        arguments = point.arguments
        short = {**arguments, "tokens": min(SHORT, arguments["tokens"])}
        short |= {"batch": 1} if "batch" in arguments else {}
        near, far = (self.budget.demand(**values) for values in (short, arguments))
        seconds = self._seconds(self.build(**short)) * far.flops / max(1.0, near.flops)
        most_bytes = min(self.budget.bytes, usable_bytes(device()))
        return Forecast(seconds, far.bytes, self.budget.seconds, most_bytes)

    def time(self, points: Sequence[Point], baseline: str = DENSE) -> dict[str, PairedLatency]:
        """The points' calls in turns, against the baseline, or the first where it is absent."""
        if not points:
            return {}
        calls = {point.arm: self.build(**point.arguments) for point in points}
        baseline = baseline if baseline in calls else points[0].arm
        return paired_latency(calls, baseline=baseline, rounds=self.rounds, threads=self.threads)

    def time_fitting(
        self, points: Sequence[Point], baseline: str = DENSE
    ) -> tuple[dict[str, PairedLatency], list[Record]]:
        """The times of the points that fit the budget, and records of those that do not."""
        forecasts = [self.forecast(point) for point in points]
        pairs = list(zip(points, forecasts, strict=True))
        refused = [f.not_run(point.labels, "time") for point, f in pairs if f.refusal]
        return self.time([point for point, f in pairs if not f.refusal], baseline), refused

    def peak(self, point: Point) -> PeakMemory:
        """The peak memory of the point's call, in a process of its own."""
        target = f"{self.build.__module__}:{self.build.__qualname__}"
        return peak_memory(target, point.arguments, threads=self.threads, timeout_s=TIMEOUT_S)

    def memory_cell(self, key: str, point: Point, weight: float) -> Cell:
        """A cell with the peak memory of one point, where its call fits the budget."""

        def work() -> list[Record]:
            forecast = self.forecast(point)
            if forecast.refusal:
                return [forecast.not_run(point.labels, "memory")]
            peak = float(self.peak(point).bytes)
            return [Record("peak_bytes", peak, "bytes", "measured", point.labels)]

        return Cell(key, work, weight)

    def _seconds(self, call: Call) -> float:
        """The median of a few calls: no measurement, so no load of the machine is kept with it."""
        samples = []
        with threads(self.threads):
            call()
            for _ in range(RATE_CALLS):
                synchronize()
                start = perf_counter()
                call()
                synchronize()
                samples.append(perf_counter() - start)
        return median(samples)


def core_demand(built: Mechanism, work: Workload) -> Demand:
    """What a call of a mechanism alone needs."""
    cost = built.cost(work)
    streams = STREAMS * work.rows * work.keys * work.dim * work.element_bytes
    return Demand(float(cost.matmul_flops + cost.other_flops), float(cost.peak_bytes + streams))


def usable_bytes(where: torch.device) -> float:
    """Half of the free memory of a CPU; an accelerator's allocator reports what it lacks."""
    return FREE_SHARE * psutil.virtual_memory().available if where.type == "cpu" else math.inf


def ratio_record(
    name: str, measured: PairedLatency, baseline: PairedLatency, labels: Labels
) -> Record:
    """The median over rounds of one call's time over another's."""
    ratio = median_ratio(measured.samples_ms, baseline.samples_ms)
    return Record(name, ratio.value, "ratio", "measured", labels, ratio.interval, ratio.count)
