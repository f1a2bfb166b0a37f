"""Tables 1 to 3 of Kerformer: one head alone, its time and memory by length and range of values."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch

from sparing.core.catalogue import mechanism
from sparing.core.checks import Count, NotNegative, Positive, at_least, check_fields, distinct, some
from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.record import Label, Record
from sparing.core.workload import Workload
from sparing.experiment.cells.device import device, usual_dtype
from sparing.experiment.run import Cell
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.memory import peak_memory
from sparing.measure.statistics import median_ratio
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, arm_of, options_of, require_arms
from sparing_papers.long_range.work import slug

DIM = 64
RANGE = 2.0
PROBE = "sparing_papers.kerformer.cores:core_in_its_own_process"
SHORT = 2048  # tokens at which speed is taken before anything long is begun
Labels = dict[str, Label]
Length = Annotated[int, at_least(16)]


@dataclass(frozen=True)
class CoreOptions:
    """Tables 1 to 3: one head of 64 features alone, at ``lengths`` and for values up to ``ranges``.

    At ``range_tokens`` the values' range varies; ``range_memory`` takes memory at its ends. What is
    predicted to take longer than ``most_seconds`` or more than ``most_bytes`` is not run.
    """

    arms: tuple[str, ...] = ("softmax", "efficient", "linear", "performer", BY_CONTENT)
    lengths: Annotated[tuple[Length, ...], some, distinct] = (1000, 10_000, 100_000, 1_000_000)
    ranges: Annotated[tuple[Positive, ...], distinct] = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    range_tokens: Length = 10_000
    range_memory: bool = True
    rounds: Count = 7
    most_seconds: Annotated[float, at_least(0)] = 20.0
    most_bytes: NotNegative = 8 * 2**30

    def __post_init__(self) -> None:
        check_fields(self, "cores")
        require_arms(self.arms)
        if BY_CONTENT not in self.arms or "softmax" not in self.arms:
            raise UsageError(f"cores.arms must hold softmax and {BY_CONTENT}")


def core_cells(options: CoreOptions, thread_count: int) -> list[Cell]:
    """Times by length, times by range, then memory, each arm in a process of its own."""
    found = [_length_cell(options, tokens, thread_count) for tokens in options.lengths]
    found += [_range_cell(options, arm, thread_count) for arm in options.arms]
    sizes = [(tokens, RANGE) for tokens in options.lengths]
    if options.ranges and options.range_memory:
        ends = (min(options.ranges), max(options.ranges))
        sizes += [(options.range_tokens, spread) for spread in ends]
    for tokens, spread in dict.fromkeys(sizes):
        for arm in dict.fromkeys((*options.arms, "eager")):
            found.append(_memory_cell(options, arm, tokens, spread, thread_count))
    return found


def core_call(arm: str, tokens: int, spread: float) -> Callable[[], object]:
    """A forward pass of one head on values drawn evenly from -spread to spread.

    On the accelerator where there is one, in the precision that it trains in.
    """
    place = device()
    kind = usual_dtype(place)
    built = _built(arm, tokens).to(place, kind)
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.rand(1, 1, tokens, DIM, generator=generator) * 2 - 1 for _ in built.streams]
    streams = [(each * spread).to(place, kind) for each in drawn]

    def call() -> object:
        with torch.inference_mode():
            return built(*streams)

    return call


def core_in_its_own_process(arm: str, tokens: int, spread: float) -> Callable[[], object]:
    """For a process of its own: see ``core_call``."""
    return core_call(arm, tokens, spread)


def predicted_bytes(arm: str, tokens: int) -> int:
    """What the mechanism's closed form says that a call needs at its peak."""
    work = Workload(1, 1, tokens, tokens, DIM)
    return int(_built(arm, min(tokens, SHORT)).cost(work).peak_bytes)


def predicted_seconds(arm: str, tokens: int, thread_count: int) -> float:
    """The closed form's arithmetic at the rate that the arm reaches at a shorter length."""
    short = min(SHORT, tokens)
    built = _built(arm, short)
    once = paired_latency(
        {arm: core_call(arm, short, RANGE)}, baseline=arm, rounds=3, threads=thread_count
    )
    costs = [built.cost(Workload(1, 1, n, n, DIM)) for n in (short, tokens)]
    small, large = (cost.matmul_flops + cost.other_flops for cost in costs)
    return once[arm].p50_ms / 1e3 * large / max(1, small)


def _built(arm: str, tokens: int) -> Mechanism:
    chosen = arm_of(arm)
    heads = Heads(1, DIM, width=DIM, tokens=tokens)
    return mechanism(chosen.mechanism, heads, **options_of(arm, tokens)).eval()


def _length_cell(options: CoreOptions, tokens: int, thread_count: int) -> Cell:
    def do() -> list[Record]:
        return _timed(options, tokens, thread_count)

    return Cell(f"cores/time/{tokens}", do, weight=3.0 + tokens / 5e3)


def _range_cell(options: CoreOptions, arm: str, thread_count: int) -> Cell:
    """One arm on values of every range, interleaved: what the range alone does to its time."""
    tokens = options.range_tokens
    labels: Labels = {"question": "cores", "arm": arm, "tokens": tokens}

    def do() -> list[Record]:
        refused = _refused(options, arm, tokens, thread_count)
        if refused is not None:
            own: Labels = {**labels, "why": refused[0], "of": "range"}
            return [Record("not_run", refused[1], refused[2], "modelled", own)]
        spreads = dict.fromkeys((RANGE, *options.ranges))
        calls = {f"{spread:g}": core_call(arm, tokens, spread) for spread in spreads}
        timed = paired_latency(
            calls, baseline=f"{RANGE:g}", rounds=options.rounds, threads=thread_count
        )
        found = []
        for spread in spreads:
            each, at = timed[f"{spread:g}"], {**labels, "spread": spread}
            count, ratio = len(each.samples_ms), each.ratio
            found.append(Record("range_ms", each.p50_ms, "ms", "measured", {**at}, count=count))
            if spread != RANGE:
                found.append(
                    Record("range_ratio", ratio.value, "ratio", "measured", at, ratio.interval)
                )
        return found

    return Cell(f"cores/range/{slug(arm)}", do, weight=3.0 + tokens / 1e3)


def _timed(options: CoreOptions, tokens: int, thread_count: int) -> list[Record]:
    """Latencies of the arms that are predicted to end, against softmax and against kerformer."""
    calls, found = {}, []
    for arm in options.arms:
        labels: Labels = {"question": "cores", "arm": arm, "tokens": tokens}
        refused = _refused(options, arm, tokens, thread_count)
        if refused is None:
            calls[arm] = core_call(arm, tokens, RANGE)
        else:
            found.append(
                Record(
                    "not_run",
                    refused[1],
                    refused[2],
                    "modelled",
                    {**labels, "why": refused[0], "of": "time"},
                )
            )
    if not calls:
        return found
    baseline = DENSE if DENSE in calls else next(iter(calls))
    timed = paired_latency(calls, baseline=baseline, rounds=options.rounds, threads=thread_count)
    gc.collect()
    return [*found, *_latency_records(timed, tokens)]


def _refused(
    options: CoreOptions, arm: str, tokens: int, thread_count: int
) -> tuple[str, float, str] | None:
    """Why an arm is not run at a length: what it would take; None where it is."""
    needed = predicted_bytes(arm, tokens)
    if needed > options.most_bytes:
        return "memory", float(needed), "bytes"
    seconds = predicted_seconds(arm, tokens, thread_count)
    return ("time", seconds, "s") if seconds > options.most_seconds else None


def _latency_records(timed: Mapping[str, PairedLatency], tokens: int) -> list[Record]:
    found = []
    for arm, latency in timed.items():
        labels: Labels = {"question": "cores", "arm": arm, "tokens": tokens}
        count = len(latency.samples_ms)
        found.append(
            Record("latency_ms", latency.p50_ms, "ms", "measured", {**labels}, count=count)
        )
        for other in (DENSE, BY_CONTENT):
            if other in timed and other != arm:
                ratio = median_ratio(latency.samples_ms, timed[other].samples_ms)
                own: Labels = {**labels, "over": other}
                found.append(
                    Record(
                        "latency_ratio",
                        ratio.value,
                        "ratio",
                        "measured",
                        own,
                        ratio.interval,
                        count,
                    )
                )
    return found


def _memory_cell(
    options: CoreOptions, arm: str, tokens: int, spread: float, thread_count: int
) -> Cell:
    labels: Labels = {"question": "cores", "arm": arm, "tokens": tokens, "spread": spread}

    def do() -> list[Record]:
        refused = _refused(options, arm, tokens, thread_count)
        if refused is not None:
            own: Labels = {**labels, "why": refused[0], "of": "memory"}
            return [Record("not_run", refused[1], refused[2], "modelled", own)]
        arguments: dict[str, Any] = {"arm": arm, "tokens": tokens, "spread": spread}
        peak = peak_memory(PROBE, arguments, threads=thread_count)
        return [Record("peak_bytes", float(peak.bytes), "bytes", "measured", labels)]

    return Cell(f"cores/memory/{tokens}/{spread:g}/{slug(arm)}", do, weight=4.0 + tokens / 1e5)
