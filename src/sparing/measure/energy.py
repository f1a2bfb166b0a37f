"""The energy of some work, by component, and how each figure was obtained.

Counters where the machine has them (``measured``); integrated power where a GPU has only that
(``integrated``). Where the processor shows no counter, as in most virtual machines, its busy
seconds times a stated constant (``estimated``). An estimate is never called a measurement, and the
three are summed only on request.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil
import torch

from sparing.core.errors import UsageError, require_choice
from sparing.measure._backends import BACKENDS, backend_readers
from sparing.measure._component import Component, EnergyObtained, Reader
from sparing.measure._nvml import visible_gpus
from sparing.measure._rapl import RaplReader
from sparing.measure.load import Load, LoadWatch
from sparing.measure.machine import synchronize
from sparing.measure.statistics import Ratio, geometric_mean_ratio

__all__ = [
    "BACKENDS",
    "Component",
    "Energy",
    "EnergyMeter",
    "EnergyObtained",
    "EnergyRatio",
    "energy_ratios",
]

WATTS_PER_CORE = 5.0
WATTS_PER_CORE_INTERVAL = (2.0, 10.0)
WATTS_VARIABLE = "SPARING_WATTS_PER_CORE"
SHORTEST_COUNTER_WINDOW_S = 10.0
# How the names of components begin that include the processor.
PROCESSOR = ("package", "psys", "cpu")
MEMORY = "dram"

_MEANINGS: dict[EnergyObtained, str] = {
    "measured": "energy, measured by a counter",
    "integrated": "energy, integrated from power samples",
    "estimated": "a ratio of CPU time: both sides are CPU seconds times the same constant",
}


@dataclass(frozen=True)
class Energy:
    """The energy of a window: seconds, components, and notes on figures that are missing or coarse.

    ``load`` is the other work of the machine meanwhile.
    """

    window_s: float
    components: tuple[Component, ...]
    notes: tuple[str, ...] = ()
    load: Load | None = None

    def component(self, name: str) -> Component:
        """The component of that name; raises ``UsageError`` when it was not available."""
        for component in self.components:
            if component.name == name:
                return component
        known = ", ".join(component.name for component in self.components) or "none"
        raise UsageError(f"no energy of {name!r} in this window; there is: {known}")

    def total_j(self, *, across_methods: bool = False) -> float:
        """The sum of all components, in joules.

        Raises ``UsageError`` when they were obtained in different ways, unless ``across_methods``
        allows it.
        """
        ways = sorted({component.obtained for component in self.components})
        if len(ways) > 1 and not across_methods:
            raise UsageError(
                f"energy that is {' and '.join(ways)} is not summed: pass across_methods=True"
            )
        return sum(component.energy_j for component in self.components)


@dataclass(frozen=True)
class EnergyRatio:
    """A paired ratio of one component's energy, with the component's name and method."""

    component: str
    ratio: Ratio
    obtained: EnergyObtained
    meaning: str


class EnergyMeter:
    """Measures the energy of a ``with`` block; afterwards ``energy`` holds it.

    ``watts_per_core`` is the constant for estimates: the argument, else the environment variable
    ``SPARING_WATTS_PER_CORE``, else 5. ``backend`` "codecarbon" or "zeus" uses that meter's figures
    instead of the built-in readers', where it is installed. ``readers`` replaces the default
    counters: RAPL, and NVML for the GPUs that PyTorch sees. ``cpu_seconds`` and ``clock`` return
    seconds. Accelerators are synchronised before both readings. Raises ``UsageError`` for a
    constant that is not a positive number and for a backend that is not installed.
    """

    def __init__(
        self,
        *,
        watts_per_core: float | None = None,
        backend: str = "own",
        readers: Sequence[Reader] | None = None,
        cpu_seconds: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watts = _watts_per_core(watts_per_core)
        self._missing: list[str] = []
        require_choice("energy", "backend", backend, BACKENDS)
        self._readers = self._find_readers(backend) if readers is None else list(readers)
        self._cpu_seconds = cpu_seconds or process_cpu_seconds
        self._clock = clock
        self._energy: Energy | None = None

    @property
    def energy(self) -> Energy:
        """The energy of the last block; raises ``UsageError`` before its end."""
        if self._energy is None:
            raise UsageError("the energy is known only after the meter's block has ended")
        return self._energy

    def __enter__(self) -> EnergyMeter:
        self._energy = None
        synchronize()
        self._watch = LoadWatch(torch.get_num_threads())
        for reader in self._readers:
            reader.start()
        self._ended = threading.Event()
        self._pollers = [
            threading.Thread(target=_poll, args=(reader, self._ended), daemon=True)
            for reader in self._readers
        ]
        for poller in self._pollers:
            poller.start()
        self._started_cpu, self._started = self._cpu_seconds(), self._clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        synchronize()
        window_s = self._clock() - self._started
        cpu_s = self._cpu_seconds() - self._started_cpu
        self._ended.set()
        for poller in self._pollers:
            poller.join()
        components = [component for reader in self._readers for component in reader.stop()]
        load = self._watch.end(computes=False)  # trainings write files and may wait for them
        notes = self._missing + [note for reader in self._readers for note in reader.notes]
        if any(component.obtained != "estimated" for component in components):
            notes += _coarse(window_s)
        if not any(_has_processor(component) for component in components):
            if cpu_s < 0:
                notes.append("a child left this process while it ran: its CPU time is not known")
            components.append(self._estimate(max(0.0, cpu_s)))
        self._energy = Energy(window_s, tuple(components), tuple(notes), load)

    def _find_readers(self, backend: str) -> list[Reader]:
        if backend != "own":
            return backend_readers(backend)
        readers: list[Reader] = [RaplReader()]
        gpus = visible_gpus()
        if isinstance(gpus, str):
            self._missing.append(gpus)
        elif gpus is not None:
            readers.append(gpus)
        return readers

    def _estimate(self, cpu_s: float) -> Component:
        low, high = WATTS_PER_CORE_INTERVAL
        bounds = (cpu_s * min(low, self._watts), cpu_s * max(high, self._watts))
        method = (
            f"{cpu_s:.4g} CPU seconds of this process and its children x {self._watts:g} W per "
            f"busy core (a constant; {low:g} to {high:g} W is usual)"
        )
        return Component("cpu", cpu_s * self._watts, "estimated", method, bounds)


def _has_processor(component: Component) -> bool:
    """Whether a component includes the processor; memory of a package has its own counter."""
    return component.name.startswith(PROCESSOR) and not component.name.endswith(MEMORY)


def energy_ratios(
    candidate: Sequence[Energy], baseline: Sequence[Energy]
) -> dict[str, EnergyRatio]:
    """Paired ratios of energy, candidate over baseline, for every component both always have.

    The i-th window of one side belongs to the i-th of the other. Left out are components that were
    obtained in different ways in different windows, and those that a counter too coarse for the
    window gave as zero. Raises ``UsageError`` for unequal or empty lists.
    """
    if len(candidate) != len(baseline) or not candidate:
        raise UsageError(f"energy is compared in pairs; got {len(candidate)} and {len(baseline)}")
    ratios = {}
    for first in candidate[0].components:
        pairs = [_values(windows, first) for windows in (candidate, baseline)]
        if all(len(values) == len(candidate) and min(values) > 0 for values in pairs):
            ratio = geometric_mean_ratio(*pairs)
            meaning = _MEANINGS[first.obtained]
            ratios[first.name] = EnergyRatio(first.name, ratio, first.obtained, meaning)
    return ratios


def process_cpu_seconds() -> float:
    """CPU seconds used by this process and its children so far, running ones included."""
    ended = os.times()
    # os.times() has steps of 10 ms, so a short window would read as no work at all
    total = time.process_time() + ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total += sum(times[:4])
    return total


def _values(windows: Sequence[Energy], alike: Component) -> list[float]:
    return [
        component.energy_j
        for window in windows
        for component in window.components
        if (component.name, component.obtained) == (alike.name, alike.obtained)
    ]


def _poll(reader: Reader, ended: threading.Event) -> None:
    while not ended.wait(reader.poll_every_s):
        reader.poll()


def _coarse(window_s: float) -> list[str]:
    if window_s >= SHORTEST_COUNTER_WINDOW_S:
        return []
    return [
        f"the window of {window_s:.3g} s is short for counters that move in steps: repeat the work "
        f"until it lasts {SHORTEST_COUNTER_WINDOW_S:g} s"
    ]


def _watts_per_core(given: float | None) -> float:
    text = os.environ.get(WATTS_VARIABLE, "") if given is None else ""
    try:
        watts = float(text) if text else WATTS_PER_CORE if given is None else float(given)
    except ValueError:
        watts = math.nan
    if not (math.isfinite(watts) and watts > 0):
        named = f"{WATTS_VARIABLE}={text!r}" if text else f"watts_per_core={given!r}"
        raise UsageError(f"{named} must be a positive number of watts")
    return watts
