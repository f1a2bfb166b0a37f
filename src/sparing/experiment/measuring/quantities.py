"""Every quantity of ``sparing measure``, paired with the baseline where it can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sparing.experiment.measuring.subject import Arm, Call, How, Subject

if TYPE_CHECKING:
    from sparing.measure.energy import Energy
    from sparing.measure.load import Load

ENERGY_WINDOWS = 5


def measure(subject: Subject, how: How, show: Callable[[float, str], None]) -> dict[str, Any]:
    """Every quantity of every arm, and the ratios to the baseline; a busy machine goes first."""
    from sparing.measure.load import collected

    with collected() as loads:
        facts = _measured(subject, how, show)
    return {**_disturbance(loads), **facts}


def _disturbance(loads: list[Load]) -> dict[str, Any]:
    """The warning that the machine was busy, else empty, and the load of the worst timing."""
    from sparing.measure.load import busy_words, worst

    load = worst(loads)
    words = busy_words(load.disturbance) if load is not None and load.disturbance else ""
    return {"disturbance": words, "load": None if load is None else asdict(load)}


def _measured(subject: Subject, how: How, show: Callable[[float, str], None]) -> dict[str, Any]:
    from sparing.measure.machine import commit, machine

    show(0.0, "latency")
    arms = _latency(subject, how)
    share = _share(subject, how)
    for number, (name, arm) in enumerate(subject.arms.items()):
        show(0.4 + 0.3 * number / len(subject.arms), f"memory and FLOPs of {name}")
        arms[name] |= _memory_and_flops(arm, how.threads)
    show(0.7, "energy")
    notes = [*subject.notes, *_energy(subject, how, arms)]
    baseline = arms[subject.baseline]
    for facts in arms.values():
        if facts is not baseline:
            facts["peak_ratio"] = _memory_ratio(facts, baseline)
            facts["flops_ratio"] = _over(facts["flops"]["total"], baseline["flops"]["total"])
    show(1.0, "done")
    return {
        "scope": subject.scope,
        "tokens": subject.tokens,
        "batch": how.batch,
        "threads": how.threads,
        "baseline": subject.baseline,
        "machine": machine(),
        "commit": commit(),
        "arms": arms,
        **share,
        "notes": notes,
    }


def _memory_ratio(candidate: dict[str, Any], baseline: dict[str, Any]) -> float | None:
    """None where the peaks differ by no more than loading code for the first call may take."""
    from sparing.measure.memory import LOADING_BYTES

    near = abs(candidate["peak_bytes"] - baseline["peak_bytes"]) < LOADING_BYTES
    if near and candidate["peak_device"] == "cpu":
        return None
    return _over(candidate["peak_bytes"], baseline["peak_bytes"])


def _over(candidate: int, baseline: int) -> float | None:
    return candidate / baseline if baseline else None


def _latency(subject: Subject, how: How) -> dict[str, dict[str, Any]]:
    from sparing.measure.latency import paired_latency

    calls = {name: arm.call for name, arm in subject.arms.items()}
    timed = paired_latency(calls, baseline=subject.baseline, rounds=how.rounds, threads=how.threads)
    arms: dict[str, dict[str, Any]] = {}
    for name, latency in timed.items():
        a_second = 1e3 * how.batch / latency.p50_ms
        arms[name] = {
            "latency_ms": {
                "p50": latency.p50_ms,
                "p90": latency.p90_ms,
                "p99": latency.p99_ms,
                "count": len(latency.samples_ms),
            },
            "examples_per_s": a_second,
            "tokens_per_s": a_second * subject.tokens,
        }
        if name != subject.baseline:
            arms[name]["latency_ratio"] = asdict(latency.ratio)
    return arms


def _share(subject: Subject, how: How) -> dict[str, Any]:
    """The share of the attention cores in the baseline's time, and what it allows at most."""
    from sparing.measure.gains import LARGEST_SHARE, largest_gain
    from sparing.measure.latency import paired_latency
    from sparing.measure.statistics import Ratio

    if not subject.parts:
        return {}
    calls = {"model": subject.arms[subject.baseline].call}
    calls |= {str(number): call for number, (_, call) in enumerate(subject.parts)}
    timed = paired_latency(calls, baseline="model", rounds=how.rounds, threads=how.threads)
    counts = [count for count, _ in subject.parts]
    ratios = [timed[str(number)].ratio for number in range(len(counts))]

    def total(ends: Sequence[float]) -> float:
        parts = sum(count * end for count, end in zip(counts, ends, strict=True))
        return min(LARGEST_SHARE, parts)

    intervals = [ratio.interval for ratio in ratios if ratio.interval is not None]
    ends = None
    if len(intervals) == len(ratios):
        low, high = zip(*intervals, strict=True)
        ends = (total(low), total(high))
    share = Ratio(total([ratio.value for ratio in ratios]), ends, how.rounds)
    return {"attention_share": asdict(share), "largest_gain": asdict(largest_gain(share))}


def _memory_and_flops(arm: Arm, threads: int) -> dict[str, Any]:
    from sparing.measure.memory import peak_memory

    peak = peak_memory(arm.target, arm.arguments, threads=threads)
    return {
        "peak_bytes": peak.bytes,
        "peak_method": peak.method,
        "peak_device": peak.device,
        "flops": arm.flops(),
    }


@dataclass(frozen=True)
class _Windows:
    """The energy of each arm's windows, each of ``repeats`` calls."""

    repeats: int
    energies: dict[str, list[Energy]]


def _energy(subject: Subject, how: How, arms: dict[str, dict[str, Any]]) -> list[str]:
    """Energy of each arm in interleaved windows of equal work; gives notes on how it is known."""
    from sparing.measure.energy import energy_ratios
    from sparing.measure.machine import threads

    calls = {name: arm.call for name, arm in subject.arms.items()}
    with threads(how.threads):
        windows = _windows(calls, _repeats(calls[subject.baseline], how.energy_seconds))
    examples = windows.repeats * how.batch
    for name, energies in windows.energies.items():
        arms[name]["energy_j"] = _mean_energy(energies, examples)
        if name != subject.baseline:
            ratios = energy_ratios(energies, windows.energies[subject.baseline])
            arms[name]["energy_ratio"] = {
                part: {**asdict(entry.ratio), "obtained": entry.obtained, "meaning": entry.meaning}
                for part, entry in ratios.items()
            }
    noted = (note for energies in windows.energies.values() for e in energies for note in e.notes)
    return list(dict.fromkeys(noted))


def _windows(calls: dict[str, Call], repeats: int) -> _Windows:
    from sparing.measure.energy import EnergyMeter

    energies: dict[str, list[Energy]] = {name: [] for name in calls}
    for _ in range(ENERGY_WINDOWS):
        for name, call in calls.items():
            call()
            with EnergyMeter() as meter:
                for _ in range(repeats):
                    call()
            energies[name].append(meter.energy)
    return _Windows(repeats, energies)


def _repeats(call: Call, seconds: float) -> int:
    """How often the baseline must be called to fill a window."""
    call()
    start = time.perf_counter()
    for _ in range(3):
        call()
    return max(3, round(3 * seconds / (time.perf_counter() - start)))


def _mean_energy(energies: list[Energy], examples: int) -> dict[str, Any]:
    """Joules of one example by component: the mean over windows, and how it was obtained.

    If a counter fails in between, the mean is of the windows that have it.
    """
    means = {}
    for first in {part.name: part for energy in energies for part in energy.components}.values():
        parts = [part for energy in energies for part in energy.components]
        values = [
            part.energy_j / examples
            for part in parts
            if (part.name, part.obtained) == (first.name, first.obtained)
        ]
        means[first.name] = {
            "value": sum(values) / len(values),
            "obtained": first.obtained,
            "method": first.method,
            "count": len(values),
        }
    return means
