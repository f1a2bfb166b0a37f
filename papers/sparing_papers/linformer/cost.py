"""Time and memory against length at a fixed number of tokens: whole encoders, and cores alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch

from sparing.core.catalogue import mechanism as build_mechanism
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.record import Labels, Record
from sparing.core.workload import Workload
from sparing.experiment.cells import probe
from sparing.experiment.cells.device import device, lowered, usual_dtype
from sparing.experiment.cells.sweep import (
    Budget,
    Demand,
    Forecast,
    Point,
    Sweep,
    core_demand,
    ratio_record,
)
from sparing.experiment.run import Cell
from sparing_papers.linformer.options import COST, POOLED, CostOptions, Options
from sparing_papers.long_range.arms import DENSE, arm_of

Subject = Literal["model", "core"]
SUBJECTS: tuple[Subject, ...] = ("model", "core")
EAGER = "eager"
# The named backbone: layers, heads, features of a head, inner features of the feed-forward part.
LAYERS, HEADS, DIM, INNER = 4, 4, 32, 256
WIDTH = HEADS * DIM
HIDDEN_COPIES = 12  # arrays of hidden states that a layer holds at its peak, with room to spare
TYPICAL_FLOPS = 25e9
START_S = 6.0  # a process with PyTorch and transformers in it


def forms(options: CostOptions) -> dict[str, tuple[str, dict[str, Any]]]:
    """Mechanisms with their options, by their names on the page.

    Dense attention, fused and as written down, and Linformer with its slots and with means.
    """
    slots = {f"linformer, k = {k}": ("linformer", {"slots": k}) for k in options.slots}
    pooled = arm_of(POOLED)
    means = {POOLED: (pooled.mechanism, dict(pooled.options))}
    return {DENSE: (DENSE, {}), EAGER: (EAGER, {}), **slots, **means}


def _built(mechanism: str, options: dict[str, Any], tokens: int) -> Mechanism:
    return build_mechanism(mechanism, Heads(HEADS, DIM, tokens=tokens), **options)


def demand_of(
    subject: Subject, mechanism: str, options: dict[str, Any], batch: int, tokens: int
) -> Demand:
    """What a call of ``call_of`` needs, from closed forms alone.

    They do not look at the matrices of a mechanism, so those of one token are sampled.
    """
    built = _built(mechanism, options, 1)
    core = core_demand(built, Workload(batch, HEADS, tokens, tokens, DIM))
    flops, held = core.flops, core.bytes
    if mechanism == "linformer" and "slots" in options:
        held += 8.0 * options["slots"] * tokens  # both matrices, in float32
    if subject == "core":
        return Demand(flops, held)
    linear = batch * tokens * (8 * WIDTH**2 + 4 * WIDTH * INNER)
    hidden = 4.0 * batch * tokens * WIDTH * HIDDEN_COPIES
    return Demand(LAYERS * (flops + linear), held + hidden)


def call_of(
    subject: Subject, mechanism: str, options: dict[str, Any], batch: int, tokens: int
) -> Callable[[], object]:
    """A forward call on random input, built from plain values, for a process of its own too.

    On the accelerator where there is one, in the precision that it trains in.
    """
    target_device = device()
    if subject == "core":
        built = (
            _built(mechanism, options, tokens).eval().to(target_device, usual_dtype(target_device))
        )
        return probe.attention_call(built, batch, tokens, target_device, usual_dtype(target_device))
    from sparing.models import build_model
    from sparing.transfer.swap import swap

    model = build_model("long_range", probe.Text(tokens), seed=0)
    if mechanism != DENSE:
        swap(model, mechanism, tokens=tokens, **options)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 16, (batch, tokens), generator=generator)
    ask = probe.model_call(model.to(target_device), {"input_ids": ids.to(target_device)})

    def ask_lowered() -> object:
        with lowered(target_device):
            return ask()

    return ask_lowered


def points_of(options: CostOptions, subject: Subject, tokens: int) -> list[Point]:
    """Every form at one length, in as many rows as there are tokens for."""
    batch = options.tokens // tokens
    shape = {"subject": subject, "tokens": tokens, "batch": batch}
    return [
        Point(
            name,
            {"mechanism": mechanism, "options": chosen, **shape},
            {"arm": name, **shape},
        )
        for name, (mechanism, chosen) in forms(options).items()
    ]


def cost_cells(options: Options) -> list[Cell]:
    """For each subject and length one cell of times and one of memory."""
    cost = options.cost
    budget = Budget(demand_of, cost.most_seconds, cost.most_bytes)
    sweep = Sweep(call_of, cost.rounds, options.longer.thread_count, budget)
    cells = []
    for subject in SUBJECTS:
        for tokens in cost.lengths:
            points = points_of(cost, subject, tokens)
            once = _seconds(points, cost.most_seconds)
            memory = 2.0 + 3 * once + START_S * len(points)
            key = f"{COST}/{subject}/{tokens}"
            cells += [
                Cell(f"{key}/time", partial(_times, sweep, points), 2.0 + (cost.rounds + 3) * once),
                Cell(f"{key}/memory", partial(_peaks, sweep, points), memory),
            ]
    return cells


def _times(sweep: Sweep, points: Sequence[Point]) -> list[Record]:
    records, fitting = list[Record](), list[Point]()
    for point in points:
        forecast = sweep.forecast(point)
        records.append(Record("predicted_s", forecast.seconds, "s", "modelled", point.labels))
        if forecast.refusal:
            records.append(_left_out(point.labels, "time", forecast))
        else:
            fitting.append(point)
    timed = sweep.time(fitting)
    for point in fitting:
        latency, dense = timed[point.arm], timed.get(DENSE)
        value, count = latency.p50_ms, latency.ratio.count
        records.append(Record("latency_ms", value, "ms", "measured", point.labels, count=count))
        if dense is not None and point.arm != DENSE:
            records.append(ratio_record("latency_ratio", latency, dense, point.labels))
    return records


def _peaks(sweep: Sweep, points: Sequence[Point]) -> list[Record]:
    records = []
    for point in points:
        forecast = sweep.forecast(point)
        held = forecast.bytes
        records.append(Record("predicted_bytes", held, "bytes", "modelled", point.labels))
        if forecast.refusal:
            records.append(_left_out(point.labels, "memory", forecast))
            continue
        peak = sweep.peak(point)
        about: Labels = {**point.labels, "method": peak.method}
        records.append(Record("peak_bytes", peak.bytes, "bytes", "measured", about))
    return records


def _left_out(labels: Labels, of: str, forecast: Forecast) -> Record:
    """The reason in words, as the page prints it."""
    why = (
        f"predicted to take {forecast.seconds:.0f} s, {forecast.most_seconds:g} s are allowed"
        if forecast.refusal == "time"
        else f"predicted to need {forecast.bytes / 2**30:.1f} GiB, "
        f"{forecast.most_bytes / 2**30:.1f} are allowed"
    )
    return Record("not_run", None, "", "modelled", {**labels, "of": of, "why": why})


def _seconds(points: Sequence[Point], most: float) -> float:
    """About how long one call of every form takes, by FLOPs; what takes too long is not made."""
    once = (demand_of(**point.arguments).flops / TYPICAL_FLOPS for point in points)
    return sum(seconds for seconds in once if seconds <= most)
