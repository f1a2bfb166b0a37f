"""Energy of work that pauses: windows of one meter, by component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparing.core.errors import UsageError
from sparing.core.ranks import everywhere
from sparing.measure.energy import Component, Energy, EnergyMeter

SUFFIX = "_j"


def of_all_processes(energy: Energy) -> Energy:
    """The energy of all processes that train together; each calls this with its own.

    An estimate counts one process, so they are summed; a counter counts the whole machine.
    """
    others = everywhere(energy)[1:]
    if not others:
        return energy
    return replace(energy, components=tuple(_summed(c, others) for c in energy.components))


def _summed(part: Component, others: Sequence[Energy]) -> Component:
    """A component with the same estimates of other processes."""
    if part.obtained != "estimated":
        return part
    parts = [part, *(energy.component(part.name) for energy in others)]
    ends = [one.interval or (one.energy_j, one.energy_j) for one in parts]
    interval = (sum(low for low, _ in ends), sum(high for _, high in ends))
    joules = sum(one.energy_j for one in parts)
    method = f"summed over {len(parts)} processes; the first: {part.method}"
    interval_known = interval if part.interval else None
    return replace(part, energy_j=joules, method=method, interval=interval_known)


class EnergyWindows:
    """Starts and stops a meter any number of times: a training between its validations.

    ``stop`` returns the energy of the window, in joules by component: ``{"cpu_j": 12.5}``.
    ``components`` holds those of the last window with their methods, ``notes`` the notes of every
    window.
    """

    def __init__(self, meter: EnergyMeter | None = None) -> None:
        self.meter = EnergyMeter() if meter is None else meter
        self.components: tuple[Component, ...] = ()
        self.notes: dict[str, None] = {}
        self._open = False

    @property
    def whole_machine(self) -> set[str]:
        """The names of counters, which count every process; an estimate counts this one alone."""
        counted = [part for part in self.components if part.obtained != "estimated"]
        return {f"{component.name}{SUFFIX}" for component in counted}

    def start(self) -> None:
        """Begin a window."""
        self.meter.__enter__()
        self._open = True

    def stop(self) -> dict[str, float]:
        """End the window: joules by component; ``UsageError`` where none was begun."""
        if not self._open:
            raise UsageError("no window of energy was begun: call start first")
        self._open = False
        self.meter.__exit__(None, None, None)
        return self._keep(self.meter.energy)

    def _keep(self, energy: Energy) -> dict[str, float]:
        self.components = energy.components
        self.notes |= dict.fromkeys(energy.notes)
        return {f"{component.name}{SUFFIX}": component.energy_j for component in energy.components}
