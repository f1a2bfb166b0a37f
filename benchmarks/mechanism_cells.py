"""The cells of benchmarks/mechanisms.py: what is measured, how long, and what is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

import attention_calls as calls
import packages
from attention_calls import Job
from machine_limits import limits
from sparing.core.catalogue import mechanism_class
from sparing.core.errors import Unsupported
from sparing.core.record import Label, Record
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.memory import peak_memory
from sparing.measure.statistics import median_ratio

BASELINE = "softmax"
LENGTHS = (64, 128, 512, 1024, 4096, 16384, 65536)
SECOND_TIER = (512, 1024, 4096)
OTHER_MODES = (1024, 4096)
ALONE_FROM = 65536
LINEAR, QUADRATIC = 1.1, 1.8
MOST_ROUNDS = 40
FEWEST_ROUNDS_WHEN_LONG = 4
# Seconds of one cell before scaling, by mode and tokens: what makes 45 minutes of all.
SECONDS = {
    "forward": {64: 0.6, 128: 0.6, 512: 1.5, 1024: 3.0, 4096: 10.0, 16384: 10.0, 65536: 6.0},
    "training": {1024: 4.0, 4096: 12.0},
    "padded": {1024: 5.0, 4096: 18.0},
    "causal": {1024: 3.0, 4096: 8.0},
    "package": {512: 3.0, 1024: 6.0, 4096: 24.0},
    "compiled": {512: 8.0, 1024: 12.0, 4096: 20.0, 16384: 20.0},
    "compiled-training": {1024: 14.0, 4096: 24.0},
}
PROCESS_S = 1.8
LONGEST_CALL_S = 300
SHORTEST_MEMORY = 512


@dataclass(frozen=True)
class Setup:
    """What holds for a whole run."""

    device: str = "cpu"
    dtype: str = "float32"
    heads: int = 12
    dim: int = 64
    scale: float = 1.0
    rounds: int = MOST_ROUNDS

    def job(self, arm: str, tokens: int, mode: str) -> Job:
        """A job of this run; on one head where twelve would take minutes."""
        job = Job(arm, tokens, mode, self.heads, self.dim, device=self.device, dtype=self.dtype)
        longest = 4096 if mechanism_class(arm).traits.arm else 2048
        if self.device == "cpu" and tokens > longest and growth(arm) >= QUADRATIC:
            return replace(job, heads=1)
        return job


@dataclass(frozen=True)
class Cell:
    """One unit of work, done whole or not at all; ``seconds`` is its share of the budget."""

    key: str
    work: Callable[[float], list[Record]]
    seconds: float


@lru_cache
def growth(arm: str) -> float:
    """The exponent of the modelled cost in the tokens, between 4,096 and 16,384."""
    sums = []
    for tokens in (4096, 16384):
        job = Job(arm, tokens, heads=1)
        cost = calls.make(job).cost(job.work())
        sums.append(cost.matmul_flops + cost.other_flops)
    return float(np.log(max(sums[1], 1) / max(sums[0], 1)) / np.log(4))


def threads_of(mode: str) -> int:
    """How many threads a mode runs on."""
    return 2 if mode == "training" else 1


def plan(setup: Setup, arms: Sequence[str]) -> list[Cell]:
    """All cells, the machine's limits first, then latencies, then memory."""
    counts = (1, 2) if setup.device == "cpu" else (1,)
    cells = [limits_cell(setup, count) for count in counts]
    for arm in arms:
        if arm == BASELINE:
            continue
        for mode, tokens in sizes(arm, setup.device):
            cells.append(latency_cell(setup, arm, mode, tokens))
        cells += compiled_cells(setup, arm)
    if setup.device == "cpu":
        cells += [package_cell(setup, name, tokens) for name, tokens in _packages(arms)]
    for arm in arms:
        lengths = dict.fromkeys(n for _, n in sizes(arm, setup.device) if n >= SHORTEST_MEMORY)
        cells += [memory_cell(setup, arm, tokens) for tokens in lengths]
    if setup.device == "cpu":
        cells += [package_memory_cell(name, tokens) for name, tokens in _packages(arms)]
    return cells


def _packages(arms: Sequence[str]) -> list[tuple[str, int]]:
    """Every package beside one of these variants, at every length."""
    known = [name for name, form in packages.PACKAGES.items() if form.mechanism in arms]
    return [(name, tokens) for name in known for tokens in SECONDS["package"]]


def limits_cell(setup: Setup, count: int) -> Cell:
    """What the machine can do on so many threads."""

    def work(_: float) -> list[Record]:
        return limits(count, device=setup.device, dtype=setup.dtype)

    return Cell(f"limits/{count}", work, 4.0)


def sizes(arm: str, device: str = "cpu") -> list[tuple[str, int]]:
    """The modes and lengths at which a variant is measured."""
    traits = mechanism_class(arm).traits
    if not traits.arm:
        return [("forward", tokens) for tokens in SECOND_TIER]
    lengths = [n for n in LENGTHS if n < ALONE_FROM or growth(arm) <= LINEAR or device != "cpu"]
    if device != "cpu":
        lengths = [n for n in lengths if n >= 1024]
    cells = [("forward", tokens) for tokens in lengths]
    cells += [("causal", tokens) for tokens in OTHER_MODES if traits.causal]
    if traits.padding:
        cells += [("padded", tokens) for tokens in OTHER_MODES]
    return cells + [("training", tokens) for tokens in OTHER_MODES]


def latency_cell(setup: Setup, arm: str, mode: str, tokens: int) -> Cell:
    """One variant in turns with softmax; alone where softmax would take minutes."""

    def work(seconds: float) -> list[Record]:
        job = setup.job(arm, tokens, mode)
        if setup.device == "cpu" and tokens >= ALONE_FROM:
            jobs = {arm: job}
        else:
            dense = setup.job(BASELINE, tokens, mode)
            jobs = {BASELINE: replace(dense, heads=min(dense.heads, job.heads)), arm: job}
        return timed(setup, jobs, seconds) + modelled(setup, job)

    return Cell(f"{mode}/{arm}/{tokens}", work, SECONDS[mode][tokens])


def compiled_cells(setup: Setup, arm: str) -> list[Cell]:
    """A variant plain and compiled, in turns with softmax, where compiling should gain."""
    gains = mechanism_class(arm).gains_by_compiling
    kinds = {"always": ("compiled", "compiled-training"), "training": ("compiled-training",)}
    return [
        compiled_cell(setup, arm, kind, tokens)
        for kind in kinds.get(gains, ())
        for tokens in SECONDS[kind]
    ]


def compiled_cell(setup: Setup, arm: str, kind: str, tokens: int) -> Cell:
    """One variant plain and compiled, in turns with softmax."""
    mode = "training" if kind == "compiled-training" else "forward"

    def work(seconds: float) -> list[Record]:
        job = setup.job(arm, tokens, mode)
        jobs = {
            BASELINE: replace(setup.job(BASELINE, tokens, mode), heads=job.heads),
            arm: job,
            f"{arm} compiled": replace(job, compiled=True),
        }
        return timed(setup, jobs, seconds)

    return Cell(f"{kind}/{arm}/{tokens}", work, SECONDS[kind][tokens])


def timed(setup: Setup, jobs: dict[str, Job], seconds: float) -> list[Record]:
    """Latency of all jobs in turns, each with its ratio to the first.

    One that ran on one head counts as often as there are heads.
    """
    first, mode = next(iter(jobs)), next(iter(jobs.values())).mode
    built = {name: calls.call_of(job) for name, job in jobs.items()}
    latencies = take_turns(built, mode, seconds, setup)
    records = []
    for name, job in jobs.items():
        scaled = setup.heads // job.heads
        labels: dict[str, Label] = {
            "arm": job.arm,
            "mode": mode,
            "tokens": job.tokens,
            "batch": job.batch,
            "threads": latencies[name].threads,
            "heads": job.heads,
            "scaled": scaled,
            "compiled": job.compiled,
        }
        samples = [scaled * sample for sample in latencies[name].samples_ms]
        records += latency_records(samples, labels)
        if name != first:
            times = setup.heads // jobs[first].heads
            dense = [times * sample for sample in latencies[first].samples_ms]
            records += ratio_records(samples, dense, "latency_ratio", "speedup", labels)
    return records


def take_turns(
    built: dict[str, calls.Call], mode: str, seconds: float, setup: Setup
) -> dict[str, PairedLatency]:
    """Interleaved samples within the seconds, with fewer rounds where one round is long."""
    round_s = _one_round_s(built)
    if round_s > seconds / 6:  # the first may have compiled, or loaded what it needs
        round_s = _one_round_s(built)
    long = round_s > seconds / 6
    return paired_latency(
        built,
        baseline=next(iter(built)),
        rounds=min(FEWEST_ROUNDS_WHEN_LONG, setup.rounds) if long else setup.rounds,
        warmup=0 if long else 2,
        threads=threads_of(mode),
        budget_s=seconds,
    )


def _one_round_s(built: dict[str, calls.Call]) -> float:
    start = time.perf_counter()
    for call in built.values():
        call()
    return time.perf_counter() - start


def latency_records(samples_ms: Sequence[float], labels: dict[str, Label]) -> list[Record]:
    """Median and 90th percentile."""
    return [
        Record(
            "latency_ms",
            float(np.percentile(samples_ms, percent)),
            "ms",
            "measured",
            {**labels, "statistic": f"p{percent}"},
            count=len(samples_ms),
        )
        for percent in (50, 90)
    ]


def ratio_records(
    candidate: Sequence[float],
    baseline: Sequence[float],
    ratio_name: str,
    speedup_name: str,
    labels: dict[str, Label],
) -> list[Record]:
    """The ratio of times with its interval, and its inverse with its quartiles over rounds."""
    ratio = median_ratio(candidate, baseline)
    records = [
        Record(ratio_name, ratio.value, "ratio", "measured", labels, ratio.interval, ratio.count)
    ]
    gains = np.asarray(baseline) / np.asarray(candidate)
    for percent in (25, 50, 75):
        percentile_labels = {**labels, "statistic": f"p{percent}"}
        value = float(np.percentile(gains, percent))
        records.append(
            Record(speedup_name, value, "ratio", "measured", percentile_labels, count=ratio.count)
        )
    return records


def modelled(setup: Setup, job: Job) -> list[Record]:
    """The FLOPs and the traffic to compare with the machine's limits, for all heads."""
    if job.mode == "training":  # the cost models are of a forward call
        return []
    made = calls.make(job)
    scaled = setup.heads // job.heads
    labels: dict[str, Label] = {"arm": job.arm, "mode": job.mode, "tokens": job.tokens}
    flops = scaled * made.cost(job.work()).matmul_flops
    traffic = scaled * calls.traffic_bytes(job, made)
    return [
        Record("matmul_flops", flops, "FLOP", "modelled", labels),
        Record("traffic_bytes", traffic, "bytes", "modelled", labels),
    ]


def package_cell(setup: Setup, name: str, tokens: int) -> Cell:
    """Softmax, sparing's and the package's form, as cores and as modules, all in turns."""
    form = packages.PACKAGES[name]

    def work(seconds: float) -> list[Record]:
        if form.missing():
            raise Unsupported(form.missing())
        records = []
        for scope in packages.SCOPES:
            built = {side: packages.call_of(name, side, scope, tokens) for side in packages.SIDES}
            latencies = take_turns(built, "package", seconds / 2, setup)
            records += _package_records(name, scope, tokens, latencies)
        return records

    return Cell(f"package/{name}/{tokens}", work, SECONDS["package"][tokens])


def _package_labels(name: str, scope: str, tokens: int) -> dict[str, Label]:
    form = packages.PACKAGES[name]
    return {
        "case": name,
        "arm": form.mechanism,
        "package": f"{form.package} {form.version}",
        "scope": scope,
        "tokens": tokens,
        "mode": "package",
    }


def _package_records(
    name: str, scope: str, tokens: int, latencies: dict[str, PairedLatency]
) -> list[Record]:
    labels = _package_labels(name, scope, tokens)
    samples = {side: latencies[side].samples_ms for side in latencies}
    records = []
    for side in packages.SIDES:
        records += latency_records(samples[side], {**labels, "side": side})
        if side != BASELINE:
            side_labels = {**labels, "side": side}
            records += ratio_records(
                samples[side], samples[BASELINE], "latency_ratio", "speedup", side_labels
            )
    return records + ratio_records(
        samples["sparing"], samples["package"], "package_ratio", "package_speedup", labels
    )


def memory_cell(setup: Setup, arm: str, tokens: int) -> Cell:
    """Peak memory of one variant in all its modes at a length, each in a fresh process."""
    modes = [mode for mode, length in sizes(arm, setup.device) if length == tokens]

    def one(mode: str) -> Record:
        job = setup.job(arm, tokens, mode)
        target, threads = "attention_calls:build", threads_of(mode)
        peak = peak_memory(target, job.arguments(), threads=threads, timeout_s=LONGEST_CALL_S)
        scaled = setup.heads // job.heads
        labels: dict[str, Label] = {
            "arm": arm,
            "mode": mode,
            "tokens": tokens,
            "batch": job.batch,
            "heads": job.heads,
            "scaled": scaled,
        }
        return Record("peak_bytes", scaled * peak.bytes, "bytes", peak.obtained, labels)

    def work(_: float) -> list[Record]:
        return in_pairs(one, modes, setup.device)

    return Cell(f"memory/{arm}/{tokens}", work, PROCESS_S * len(modes))


def package_memory_cell(name: str, tokens: int) -> Cell:
    """Peak memory of softmax, sparing's and the package's form, as cores and modules."""
    form = packages.PACKAGES[name]
    places = [(side, scope) for scope in packages.SCOPES for side in packages.SIDES]

    def one(side_and_scope: tuple[str, str]) -> Record:
        side, scope = side_and_scope
        arguments = {"name": name, "side": side, "scope": scope, "tokens": tokens}
        peak = peak_memory("packages:call_of", arguments, threads=1, timeout_s=LONGEST_CALL_S)
        labels = {**_package_labels(name, scope, tokens), "side": side}
        return Record("peak_bytes", peak.bytes, "bytes", peak.obtained, labels)

    def work(_: float) -> list[Record]:
        if form.missing():
            raise Unsupported(form.missing())
        return in_pairs(one, places, "cpu")

    return Cell(f"package-memory/{name}/{tokens}", work, PROCESS_S * len(places))


def in_pairs(one: Callable, places: Sequence, device: str) -> list[Record]:
    """Two processes at a time, one for each core: memory does not mind a neighbour."""
    with ThreadPoolExecutor(2 if device == "cpu" else 1) as pool:
        return list(pool.map(one, places))
