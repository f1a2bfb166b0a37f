"""Whether other programs kept the machine busy during a measurement.

A time that was measured while other programs had the processor does not describe the model. So
every timing here reads counters of the operating system before and after, and the work of others is
stored with it. The work of this process and of its children never counts as that of others.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import psutil

from sparing.core.record import Label, Record

NAME = "machine_load"
TIME_UNITS = ("s", "ms", "J")
CELL_TIME = "cell_time_s"  # for plans of later runs: no result depends on it
# A computing thread with a processor of its own has it for 98 % of the time and more. At
# 75 % a time is a third too long, in one round more than in the next. One other thread for each
# processor leaves 50 to 67 %.
LEAST_SHARE = 0.75
# Other work, in processors, that may exceed what sparing's threads leave free: system services take
# below 0.1. Two processors with one such thread allow 1.4; a load of 3 takes 1.5.
TOLERANCE = 0.4
# Below this a counter in steps of 10 ms is too coarse for other programs.
LEAST_WINDOW_S = 0.5
# Waiting threads of others for each processor. The load average lags by a minute, so it
# counts alone only if it is high at both ends.
CROWD = 2.0


@dataclass(frozen=True)
class Counters:
    """The counters of the operating system, in seconds; None where it does not report them.

    ``thread_s`` and ``process_s`` are CPU seconds of the calling thread and of this process,
    ``tree_s`` also includes its children; ``machine_s`` those of all programs together. ``load`` is
    the load average of the last minute, ``children`` the number of child processes that run now.
    """

    wall_s: float
    thread_s: float
    process_s: float
    tree_s: float
    machine_s: float | None
    load: float | None
    children: int = 0


@dataclass(frozen=True)
class Load:
    """The other work of the machine during a measurement.

    ``share`` is the part of the time for which the measuring threads had a processor, None where
    they may have waited for an accelerator. ``others`` is how many processors other programs kept
    busy, None for windows below half a second. ``load_before`` and ``load_after`` are load
    averages, ``our_threads`` the threads of this process that they include.
    """

    window_s: float
    threads: int
    processors: int
    share: float | None = None
    others: float | None = None
    load_before: float | None = None
    load_after: float | None = None
    our_threads: int = 1

    @property
    def disturbance(self) -> str:
        """Why times of this window cannot be used, in words; empty for a quiet machine."""
        room = min(1.0, self.processors / self.threads)
        if self.share is not None and self.share < LEAST_SHARE * room:
            return f"other programs left this process a processor for {self.share:.0%} of the time"
        busy = self.others if self.others is not None else 0.0
        if busy > max(0, self.processors - self.threads) + TOLERANCE:
            return f"other programs kept {busy:.1f} of {self.processors} processors busy"
        averages = [self.load_before, self.load_after]
        waiting = min((n for n in averages if n is not None), default=0.0) - self.our_threads
        if waiting > CROWD * self.processors:
            return (
                f"{waiting:.0f} threads of other programs waited for {self.processors} processors"
            )
        return ""

    def record(self) -> Record:
        """The record of a run for this load, beside the times that it belongs to."""
        numbers = {
            "others": self.others,
            "load_before": self.load_before,
            "load_after": self.load_after,
            "window_s": self.window_s,
        }
        labels: dict[str, Label] = {"threads": self.threads, "processors": self.processors}
        labels |= {name: None if n is None else round(n, 3) for name, n in numbers.items()}
        labels["disturbance"] = self.disturbance
        return Record(NAME, self.share, "share", "measured", labels)


class LoadWatch:
    """Watches the machine from creation to ``end``, for a measurement with ``threads`` threads."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._before = read_counters()

    def end(self, *, computes: bool = True) -> Load:
        """The load since the start; also passed to every open ``collected``.

        ``computes`` says that the calling thread computed all the time: a thread that waits for
        files or for an accelerator has no processor then, busy machine or not.
        """
        load = between(self._before, read_counters(), self._threads, computes=computes)
        for loads in _open.get():
            loads.append(load)
        return load


_open: ContextVar[tuple[list[Load], ...]] = ContextVar("open loads", default=())


@contextmanager
def collected() -> Iterator[list[Load]]:
    """A list that collects every load measured inside the block."""
    loads: list[Load] = []
    token = _open.set((*_open.get(), loads))
    try:
        yield loads
    finally:
        _open.reset(token)


def between(before: Counters, after: Counters, threads: int, *, computes: bool = True) -> Load:
    """The load of the window between two readings, for a measurement with ``threads`` threads."""
    window_s = max(after.wall_s - before.wall_s, 1e-9)
    share = others = None
    if computes and not _accelerated() and not _in_step():
        # a thread that waits for others has no processor; this is how many they had together
        thread_s, process_s = after.thread_s - before.thread_s, after.process_s - before.process_s
        share = min(1.0, max(thread_s, process_s / threads) / window_s)
    if window_s >= LEAST_WINDOW_S and None not in (before.machine_s, after.machine_s):
        busy_s = (after.machine_s or 0.0) - (before.machine_s or 0.0)
        others = max(0.0, busy_s - (after.tree_s - before.tree_s)) / window_s
    return Load(
        window_s=window_s,
        threads=threads,
        processors=psutil.cpu_count() or 1,
        share=share,
        others=others,
        load_before=before.load,
        load_after=after.load,
        our_threads=threads + max(before.children, after.children),
    )


def read_counters() -> Counters:
    """The counters as of now."""
    ended, children = os.times(), psutil.Process().children(recursive=True)
    process_s = time.process_time()
    tree_s = process_s + ended.children_user + ended.children_system
    for child in children:
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        tree_s += times.user + times.system
    return Counters(
        wall_s=time.perf_counter(),
        thread_s=time.thread_time(),
        process_s=process_s,
        tree_s=tree_s,
        machine_s=_machine_seconds(),
        load=_load_average(),
        children=len(children),
    )


def worst(loads: Sequence[Load]) -> Load | None:
    """The most disturbed load: a disturbed one, else that of the least share."""
    return min(
        loads,
        key=lambda load: (not load.disturbance, 1.0 if load.share is None else load.share),
        default=None,
    )


def with_load(work: Callable[[], list[Record]]) -> list[Record]:
    """The records of some work; if they include times, with the machine's other work too.

    That is the worst load of its timings. Without timings, but with times, as of a training without
    a meter, it is the load of the whole work.
    """
    watch = LoadWatch()
    with collected() as loads:
        records = work()
    timed = (record for record in records if record.unit in TIME_UNITS)
    if not loads and any(record.name != CELL_TIME for record in timed):
        loads = [watch.end(computes=False)]
    load = worst(loads)
    return records if load is None else [*records, load.record()]


def disturbances(records: Iterable[Record]) -> dict[str, str]:
    """The cells of a run with times from a busy machine, with the reason.

    Records without a load count as quiet.
    """
    return {
        record.cell: str(record.labels["disturbance"])
        for record in records
        if record.name == NAME and record.labels.get("disturbance")
    }


def busy_words(reason: str) -> str:
    """The sentence that comes first in a report of a disturbed measurement."""
    return f"The machine was busy: {reason}. No verdict on speed; measure again when it is quiet."


def disturbance_words(records: Iterable[Record]) -> str:
    """The same for a run: one reason, and how many of its cells are affected; empty for none."""
    reasons = list(disturbances(records).values())
    if not reasons:
        return ""
    cells = "one measurement" if len(reasons) == 1 else f"{len(reasons)} measurements"
    return (
        f"The machine was busy during {cells}: {reasons[0]}. There is no verdict on speed from "
        "them; measure again when it is quiet."
    )


def _machine_seconds() -> float | None:
    """CPU seconds of all programs, and those that a hypervisor took from the machine."""
    try:
        times = psutil.cpu_times()
    except (OSError, psutil.Error):
        return None
    kinds = ("user", "nice", "system", "irq", "softirq", "steal", "interrupt", "dpc")
    return float(sum(getattr(times, kind, 0.0) for kind in kinds))


def _load_average() -> float | None:
    try:
        return float(os.getloadavg()[0])
    except (AttributeError, OSError):  # Windows has none
        return None


def _in_step() -> bool:
    """Whether this process trains with others, which its threads may wait for."""
    if "torch" not in sys.modules:
        return False
    from sparing.core.ranks import world

    return world() > 1


def _accelerated() -> bool:
    """Whether this process uses an accelerator, which its threads may wait for."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return bool(torch.cuda.is_initialized() or torch.backends.mps.is_available())
