"""Energy meters of other libraries as readers: CodeCarbon and Zeus, where installed.

Their figures are labelled like all others: a figure that CodeCarbon computes from a constant or
from the load is estimated, even under another name.
"""

from __future__ import annotations

import warnings
from typing import Any

from sparing.core.errors import UsageError
from sparing.measure._component import JOULES_PER_KWH, Component, EnergyObtained, Reader

BACKENDS = ("own", "codecarbon", "zeus")
# CodeCarbon's names of methods that read a counter; all others multiply a constant or the load.
COUNTERS = ("intel_rapl", "intel_power_gadget", "apple_powermetrics")
WINDOW = "sparing"
SELDOM_S = 3600.0


def backend_readers(name: str) -> list[Reader]:
    """The readers of another meter; raises ``UsageError`` where it is not installed."""
    try:
        return [CodeCarbonReader()] if name == "codecarbon" else [ZeusReader()]
    except ImportError as error:
        raise UsageError(
            f"{name} is not installed ({error}); pip install '.[{name}]' in a clone of sparing"
        ) from error


class CodeCarbonReader(Reader):
    """CodeCarbon's figures for processor, memory and GPUs; nothing is sent or written anywhere."""

    poll_every_s = SELDOM_S

    def __init__(self) -> None:
        from codecarbon import OfflineEmissionsTracker

        self._make, self._tracker = OfflineEmissionsTracker, None
        self.notes: list[str] = []

    def start(self) -> None:
        """Begin a window with a tracker of its own."""
        self.notes = []
        with warnings.catch_warnings():
            # newer versions rename the option not to write files; older ones have only this name
            warnings.simplefilter("ignore", DeprecationWarning)
            tracker: Any = self._make(
                country_iso_code="USA",  # of its carbon figures, which are not read here
                save_to_file=False,
                log_level="critical",
                allow_multiple_runs=True,
                measure_power_secs=1,
            )
        self._tracker = tracker
        tracker.start()

    def poll(self) -> None:
        """Nothing: the tracker has its own thread."""

    def stop(self) -> list[Component]:
        """End the window; energy in joules."""
        tracker: Any = self._tracker
        if tracker is None:
            raise UsageError("the CodeCarbon window was never begun")
        tracker.stop()
        emissions = getattr(tracker, "final_emissions_data", None)
        if emissions is None:  # it logs its errors and goes on
            raise UsageError("CodeCarbon gave no figures: run it alone to see why")
        ways = [str(getattr(part, "_mode", "")) for part in getattr(tracker, "_hardware", [])]
        counted = any(way in COUNTERS for way in ways)
        way = next((way for way in ways if way), "unknown")
        cpu: EnergyObtained = "measured" if counted else "estimated"
        components = [
            _component("cpu", emissions.cpu_energy, cpu, f"CodeCarbon, {way} mode"),
            _component(
                "ram", emissions.ram_energy, "estimated", "CodeCarbon, a constant per module"
            ),
        ]
        if emissions.gpu_count:
            method = "CodeCarbon, from the boards' counters"
            components.append(_component("gpu", emissions.gpu_energy, "measured", method))
        if not counted:
            self.notes.append(f"CodeCarbon found no counter of the processor: {way} mode")
        return components


class ZeusReader(Reader):
    """Zeus's counters of GPUs, and of the processor where allowed; it estimates nothing."""

    poll_every_s = SELDOM_S

    def __init__(self) -> None:
        from zeus.monitor import ZeusMonitor

        self._monitor = ZeusMonitor()
        self.notes: list[str] = []

    def start(self) -> None:
        """Begin a window."""
        self.notes = []
        self._monitor.begin_window(WINDOW)

    def poll(self) -> None:
        """Nothing: Zeus reads at both ends."""

    def stop(self) -> list[Component]:
        """End the window; one component for each board and package."""
        reading = self._monitor.end_window(WINDOW)
        kinds = (
            ("gpu", reading.gpu_energy, "NVML"),
            ("package", reading.cpu_energy, "RAPL"),
            ("dram", reading.dram_energy, "RAPL"),
        )
        components = []
        for kind, energies, counter in kinds:
            if not energies:
                self.notes.append(f"Zeus reads no energy of {kind} here")
                continue
            components += [
                Component(f"{kind} {index}", float(joules), "measured", f"Zeus, {counter} counter")
                for index, joules in energies.items()
            ]
        return components


def _component(name: str, kwh: float, obtained: EnergyObtained, method: str) -> Component:
    return Component(name, kwh * JOULES_PER_KWH, obtained, method)
