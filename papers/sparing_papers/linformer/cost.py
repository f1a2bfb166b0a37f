"""Time and memory against length at a fixed number of tokens: whole encoders, and cores alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from sparing.core.catalogue import mechanism as build_mechanism
from sparing.core.heads import Heads
from sparing.core.mechanism import Mechanism
from sparing.core.record import Label, Record
from sparing.core.workload import Workload
from sparing.experiment.cells import probe
from sparing.experiment.cells.device import device, lowered, usual_dtype
from sparing.experiment.run import Cell
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.machine import synchronize, threads
from sparing.measure.memory import peak_memory
from sparing_papers.linformer.options import COST, POOLED, CostOptions, Options
from sparing_papers.long_range.arms import DENSE, arm_of

Subject = Literal["model", "core"]
SUBJECTS: tuple[Subject, ...] = ("model", "core")
EAGER = "eager"
# The named backbone: layers, heads, features of a head, inner features of the feed-forward part.
LAYERS, HEADS, DIM, INNER = 4, 4, 32, 256
WIDTH = HEADS * DIM
SHORT = 2048  # the rate is measured on one row of at most so many tokens
PROBE = "sparing_papers.linformer.cost:call_of"
HIDDEN_COPIES = 12  # arrays of hidden states that a layer holds at its peak, with room to spare
TYPICAL_FLOPS = 25e9
START_S = 6.0  # a process with PyTorch and transformers in it


@dataclass(frozen=True)
class Form:
    """A mechanism with its options, by its name on the page."""

    name: str
    mechanism: str
    options: dict[str, Any]

    def build(self, tokens: int) -> Mechanism:
        """The mechanism of one layer."""
        return build_mechanism(self.mechanism, Heads(HEADS, DIM, tokens=tokens), **self.options)

    def work(self, subject: Subject, batch: int, tokens: int) -> tuple[float, float]:
        """Arithmetic in FLOP and bytes at the peak, from closed forms alone."""
        built = _light(self)
        cost = built.cost(Workload(batch, HEADS, tokens, tokens, DIM))
        flops, held = float(cost.matmul_flops + cost.other_flops), float(cost.peak_bytes)
        if self.mechanism == "linformer" and "slots" in self.options:
            held += 8.0 * self.options["slots"] * tokens  # both matrices, in float32
        if subject == "core":
            return flops, held + 12.0 * batch * tokens * WIDTH
        linear = batch * tokens * (8 * WIDTH**2 + 4 * WIDTH * INNER)
        hidden = 4.0 * batch * tokens * WIDTH * HIDDEN_COPIES
        return LAYERS * (flops + linear), held + hidden


def _light(form: Form) -> Mechanism:
    """The form for one token: closed forms do not look at its matrices, so none need be drawn."""
    return form.build(1)


def forms(options: CostOptions) -> list[Form]:
    """Dense attention, fused and as written down, and Linformer with its slots and with means."""
    found = [Form(DENSE, DENSE, {}), Form(EAGER, EAGER, {})]
    found += [Form(f"linformer, k = {k}", "linformer", {"slots": k}) for k in options.slots]
    pooled = arm_of(POOLED)
    return [*found, Form(POOLED, pooled.mechanism, dict(pooled.options))]


def call_of(
    subject: Subject, mechanism: str, options: dict[str, Any], batch: int, tokens: int
) -> Callable[[], object]:
    """A forward call on random input, built from plain values, for a process of its own too.

    On the accelerator where there is one, in the precision that it trains in.
    """
    form, place = Form("", mechanism, options), device()
    if subject == "core":
        built = form.build(tokens).eval().to(place, usual_dtype(place))
        return probe.attention_call(built, batch, tokens, place, usual_dtype(place))
    from sparing.models import build_model
    from sparing.transfer.swap import swap

    model = build_model("long_range", probe._Text(tokens), seed=0)
    if mechanism != DENSE:
        swap(model, mechanism, tokens=tokens, **options)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 16, (batch, tokens), generator=generator)
    ask = probe.model_call(model.to(place), {"input_ids": ids.to(place)})

    def ask_lowered() -> object:
        with lowered(place):
            return ask()

    return ask_lowered


def cost_cells(options: Options) -> list[Cell]:
    """For each subject and length one cell of times and one of memory."""
    return [
        make(options, subject, tokens)
        for subject in SUBJECTS
        for tokens in options.cost.lengths
        for make in (_time_cell, _memory_cell)
    ]


def _time_cell(options: Options, subject: Subject, tokens: int) -> Cell:
    asked = options.cost

    def do() -> list[Record]:
        with threads(options.longer.thread_count):
            return _times(asked, subject, tokens, options.longer.thread_count)

    return Cell(f"{COST}/{subject}/{tokens}/time", do, weight=_seconds(asked, subject, tokens))


def _times(asked: CostOptions, subject: Subject, tokens: int, count: int) -> list[Record]:
    batch, found = asked.tokens // tokens, []
    calls: dict[str, Callable[[], object]] = {}
    for form in forms(asked):
        labels = _labels(form, subject, tokens, batch)
        seconds = predicted_seconds(form, subject, batch, tokens)
        held = form.work(subject, batch, tokens)[1]
        found.append(Record("predicted_s", seconds, "s", "modelled", labels))
        if seconds > asked.most_seconds or held > asked.most_bytes:
            found.append(_left_out(labels, "time", seconds, held, asked))
            continue
        calls[form.name] = call_of(subject, form.mechanism, form.options, batch, tokens)
    if calls:
        baseline = DENSE if DENSE in calls else next(iter(calls))
        timed = paired_latency(
            calls, baseline=baseline, rounds=asked.rounds, warmup=1, threads=count
        )
        for form in forms(asked):
            if form.name in timed:
                labels = _labels(form, subject, tokens, batch)
                found += _timed(timed[form.name], labels, paired=baseline == DENSE)
    return found


def _timed(time_: PairedLatency, labels: dict[str, Label], *, paired: bool) -> list[Record]:
    found = [Record("latency_ms", time_.p50_ms, "ms", "measured", labels, count=time_.ratio.count)]
    if paired and labels["arm"] != DENSE:
        ratio = time_.ratio
        found.append(
            Record(
                "latency_ratio",
                ratio.value,
                "ratio",
                "measured",
                labels,
                ratio.interval,
                ratio.count,
            )
        )
    return found


def predicted_seconds(form: Form, subject: Subject, batch: int, tokens: int) -> float:
    """The arithmetic of the call over the rate of one short row, measured now."""
    short = min(tokens, SHORT)
    call = call_of(subject, form.mechanism, form.options, 1, short)
    call()
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    took = max(1e-6, time.perf_counter() - start)
    arithmetic = form.work(subject, batch, tokens)[0] / form.work(subject, 1, short)[0]
    return took * arithmetic


def _left_out(
    labels: dict[str, Label], what: str, seconds: float, held: float, asked: CostOptions
) -> Record:
    why = (
        f"predicted to take {seconds:.0f} s, {asked.most_seconds:g} s are allowed"
        if seconds > asked.most_seconds
        else f"predicted to need {held / 2**30:.1f} GiB, {asked.most_bytes / 2**30:.1f} are allowed"
    )
    own = {**labels, "of": what, "why": why}
    return Record("not_run", None, "", "modelled", own)


def _memory_cell(options: Options, subject: Subject, tokens: int) -> Cell:
    asked, count = options.cost, options.longer.thread_count

    def do() -> list[Record]:
        batch, found = asked.tokens // tokens, []
        for form in forms(asked):
            labels = _labels(form, subject, tokens, batch)
            with threads(count):
                seconds = predicted_seconds(form, subject, batch, tokens)
            held = form.work(subject, batch, tokens)[1]
            found.append(Record("predicted_bytes", held, "bytes", "modelled", labels))
            if held > asked.most_bytes or seconds > asked.most_seconds:
                found.append(_left_out(labels, "memory", seconds, held, asked))
                continue
            arguments = {
                "subject": subject,
                "mechanism": form.mechanism,
                "options": form.options,
                "batch": batch,
                "tokens": tokens,
            }
            peak = peak_memory(PROBE, arguments, threads=count)
            own = {**labels, "method": peak.method}
            found.append(Record("peak_bytes", peak.bytes, "bytes", "measured", own))
        return found

    seconds = _seconds(asked, subject, tokens) / asked.rounds + START_S * len(forms(asked))
    return Cell(f"{COST}/{subject}/{tokens}/memory", do, weight=seconds)


def _labels(form: Form, subject: Subject, tokens: int, batch: int) -> dict[str, Label]:
    return {"arm": form.name, "subject": subject, "tokens": tokens, "batch": batch}


def _seconds(asked: CostOptions, subject: Subject, tokens: int) -> float:
    """About how long the times of one length take, by arithmetic."""
    each = [form.work(subject, asked.tokens // tokens, tokens)[0] for form in forms(asked)]
    once = [flops / TYPICAL_FLOPS for flops in each]
    allowed = sum(seconds for seconds in once if seconds <= asked.most_seconds)
    return 2.0 + (asked.rounds + 2) * allowed
