"""Tables 1 to 3 of Kerformer: one head alone, its time and memory by length and range of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from sparing.core.catalogue import mechanism
from sparing.core.checks import Count, NotNegative, Positive, at_least, check_fields, distinct, some
from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.record import Labels, Record
from sparing.core.workload import Workload
from sparing.experiment.cells.device import device, usual_dtype
from sparing.experiment.cells.sweep import (
    SHORT,
    Budget,
    Demand,
    Point,
    Sweep,
    core_demand,
    ratio_record,
)
from sparing.experiment.run import Cell, slug
from sparing.measure.latency import PairedLatency
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, arm_of, options_of, require_arms

DIM = 64
RANGE = 2.0
Length = Annotated[int, at_least(16)]


@dataclass(frozen=True)
class CoreOptions:
    """Tables 1 to 3: one head of 64 features alone, at ``lengths`` and for values up to ``ranges``.

    At ``range_tokens`` the values' range varies; ``range_memory`` takes memory at its ends. What is
    predicted to take longer than ``most_seconds`` or more than ``most_bytes`` is not run.
    """

    variants: tuple[str, ...] = ("softmax", "efficient", "linear", "performer", BY_CONTENT)
    lengths: Annotated[tuple[Length, ...], some, distinct] = (1000, 10_000, 100_000, 1_000_000)
    ranges: Annotated[tuple[Positive, ...], distinct] = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    range_tokens: Length = 10_000
    range_memory: bool = True
    rounds: Count = 7
    most_seconds: Annotated[float, at_least(0)] = 20.0
    most_bytes: NotNegative = 8 * 2**30

    def __post_init__(self) -> None:
        check_fields(self, "cores")
        require_arms(self.variants)
        if BY_CONTENT not in self.variants or "softmax" not in self.variants:
            raise UsageError(f"cores.variants must hold softmax and {BY_CONTENT}")


def core_cells(options: CoreOptions, thread_count: int) -> list[Cell]:
    """Times by length, times by range, then memory, each variant in a process of its own."""
    sweep = core_sweep(options, thread_count)
    cells = [_length_cell(sweep, options.variants, tokens) for tokens in options.lengths]
    cells += [_range_cell(sweep, options, arm) for arm in options.variants]
    sizes = [(tokens, RANGE) for tokens in options.lengths]
    if options.ranges and options.range_memory:
        ends = (min(options.ranges), max(options.ranges))
        sizes += [(options.range_tokens, spread) for spread in ends]
    for tokens, spread in dict.fromkeys(sizes):
        for arm in dict.fromkeys((*options.variants, "eager")):
            key = f"cores/memory/{tokens}/{spread:g}/{slug(arm)}"
            point = core_point(arm, tokens, spread)
            point.labels["spread"] = spread
            cells.append(sweep.memory_cell(key, point, 4.0 + tokens / 1e5))
    return cells


def core_sweep(options: CoreOptions, thread_count: int) -> Sweep:
    """Heads alone, within the limits of the options."""
    budget = Budget(_demand, options.most_seconds, options.most_bytes)
    return Sweep(core_call, options.rounds, thread_count, budget)


def core_point(arm: str, tokens: int, spread: float = RANGE) -> Point:
    """One variant at a length, on values from -spread to spread."""
    labels: Labels = {"question": "cores", "arm": arm, "tokens": tokens}
    return Point(arm, {"arm": arm, "tokens": tokens, "spread": spread}, labels)


def core_call(arm: str, tokens: int, spread: float) -> Callable[[], object]:
    """A forward pass of one head on values sampled evenly from -spread to spread.

    On the accelerator where there is one, in the precision that it trains in.
    """
    target_device = device()
    kind = usual_dtype(target_device)
    built = _built(arm, tokens).to(target_device, kind)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.rand(1, 1, tokens, DIM, generator=generator) * 2 - 1 for _ in built.streams]
    streams = [(values * spread).to(target_device, kind) for values in drawn]

    def call() -> object:
        with torch.inference_mode():
            return built(*streams)

    return call


def _demand(arm: str, tokens: int, spread: float) -> Demand:
    """By closed form, which no mechanism's values change; its matrices need not be sampled."""
    return core_demand(_built(arm, min(tokens, SHORT)), Workload(1, 1, tokens, tokens, DIM))


def _built(arm: str, tokens: int) -> Mechanism:
    chosen = arm_of(arm)
    heads = Heads(1, DIM, width=DIM, tokens=tokens)
    return mechanism(chosen.mechanism, heads, **options_of(arm, tokens)).eval()


def _length_cell(sweep: Sweep, arms: Sequence[str], tokens: int) -> Cell:
    """Latencies of the variants that fit the budget, against softmax and against kerformer."""

    def work() -> list[Record]:
        timed, records = sweep.time_fitting([core_point(arm, tokens) for arm in arms])
        for arm, latency in timed.items():
            labels = core_point(arm, tokens).labels
            records.append(_median("latency_ms", latency, labels))
            for over in (DENSE, BY_CONTENT):
                if over in timed and over != arm:
                    about = {**labels, "over": over}
                    records.append(ratio_record("latency_ratio", latency, timed[over], about))
        return records

    return Cell(f"cores/time/{tokens}", work, weight=3.0 + tokens / 5e3)


def _range_cell(sweep: Sweep, options: CoreOptions, arm: str) -> Cell:
    """One variant on values of every range, interleaved: what the range alone does to its time."""
    tokens = options.range_tokens
    labels = core_point(arm, tokens).labels

    def work() -> list[Record]:
        forecast = sweep.forecast(core_point(arm, tokens))
        if forecast.refusal:
            return [forecast.not_run(labels, "range")]
        spreads = dict.fromkeys((RANGE, *options.ranges))
        points = [replace(core_point(arm, tokens, spread), arm=f"{spread:g}") for spread in spreads]
        timed = sweep.time(points, f"{RANGE:g}")
        records = []
        for spread in spreads:
            latency, about = timed[f"{spread:g}"], {**labels, "spread": spread}
            records.append(_median("range_ms", latency, about))
            if spread != RANGE:
                records.append(ratio_record("range_ratio", latency, timed[f"{RANGE:g}"], about))
        return records

    return Cell(f"cores/range/{slug(arm)}", work, weight=3.0 + tokens / 1e3)


def _median(name: str, latency: PairedLatency, labels: Labels) -> Record:
    count = len(latency.samples_ms)
    return Record(name, latency.p50_ms, "ms", "measured", labels, count=count)
