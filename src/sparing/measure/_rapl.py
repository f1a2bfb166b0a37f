"""Energy of processor packages and memory from the kernel's powercap files (RAPL)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparing.measure._component import Component, Reader

POWERCAP = Path("/sys/class/powercap")
# Counters of separate dies start at different times, so they are never this close.
MIRRORED_WITHIN_UJ = 1_000_000
_METHOD = "RAPL counter of {zone}: all of it, whatever else runs there"
_PERMISSION = (
    "{zone}: only root may read its energy counter; allow it with "
    "'sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj' (a udev rule makes it last)"
)


@dataclass
class _Zone:
    """One counter: its folder, its name such as ``package-0`` or ``package-0 dram``, its state."""

    name: str
    folder: Path
    first_uj: int = 0
    last_uj: int = 0
    total_uj: int = 0

    def read(self) -> int:
        """The counter, in microjoules."""
        return int((self.folder / "energy_uj").read_text())

    def start(self) -> None:
        """Begin counting at the present reading."""
        self.first_uj = self.last_uj = self.read()
        self.total_uj = 0

    def advance(self) -> None:
        """Add the energy since the last reading; a counter that fell has wrapped around."""
        now = self.read()
        used = now - self.last_uj
        if used < 0:
            used += int((self.folder / "max_energy_range_uj").read_text())
        if used < 0:
            raise ValueError("counter fell by more than its range")
        self.total_uj += used
        self.last_uj = now


class RaplReader(Reader):
    """Reads the energy of packages and their memory, each zone once.

    The package zone includes cores and uncore, so those are left out, but not the memory. ``psys``
    (the platform) includes the package, so it is used only where it is alone. The same zone may
    appear under two interfaces (registers, memory-mapped), and one counter under several dies: each
    counts once. Counters wrap around within minutes to an hour, so they are polled.
    """

    poll_every_s = 20.0

    def __init__(self, root: Path = POWERCAP) -> None:
        self.notes: list[str] = []
        self._root = root
        self._zones: list[_Zone] = []

    def start(self) -> None:
        """Find the zones that can be read and take their first readings."""
        self.notes = []
        readable = [zone for zone in self._discover() if self._works(zone.start, zone)]
        first_of_name = {zone.name: zone for zone in reversed(readable)}
        unmirrored = _without_mirrors(sorted(first_of_name.values(), key=lambda zone: zone.name))
        parts = [zone for zone in unmirrored if zone.name != "psys"]
        platform = [zone for zone in unmirrored if zone.name == "psys"]
        # the platform's counter includes package and memory: it is used if there is no package
        known = any(not zone.name.endswith("dram") for zone in parts)
        self._zones = parts if known or not platform else platform
        if readable:
            # The same zone under another interface can be read: nothing is missing.
            self.notes = [n for n in self.notes if n.partition(":")[0] not in first_of_name]
        elif not self.notes:
            self.notes = ["RAPL: this machine shows no energy counter of its processor"]

    def poll(self) -> None:
        """Read every zone, so that none can wrap around twice unseen."""
        self._zones = [zone for zone in self._zones if self._works(zone.advance, zone)]

    def stop(self) -> list[Component]:
        """One component for each zone that could be read to the end."""
        self.poll()
        return [
            Component(zone.name, zone.total_uj / 1e6, "measured", _METHOD.format(zone=zone.name))
            for zone in self._zones
        ]

    def _works(self, read: Callable[[], None], zone: _Zone) -> bool:
        """Whether a reading succeeds; if not, a note says why."""
        try:
            read()
        except PermissionError:
            self.notes.append(_PERMISSION.format(zone=zone.name))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.notes.append(f"{zone.name}: its energy counter cannot be read ({reason})")
        else:
            return True
        return False

    def _discover(self) -> list[_Zone]:
        """All package, memory and platform zones, registers before memory-mapped."""
        folders: dict[Path, Path] = {}
        for pattern in ("intel-rapl*:*", "intel-rapl*/intel-rapl*:*"):
            for folder in self._root.glob(pattern):
                folders.setdefault(folder.resolve(), folder)
        zones = [zone for folder in folders.values() if (zone := self._zone(folder))]
        return sorted(zones, key=lambda zone: ("mmio" in zone.folder.name, zone.folder.name))

    def _zone(self, folder: Path) -> _Zone | None:
        name = _name(folder)
        if name == "dram":
            parent, _, _ = folder.name.rpartition(":")
            nested, flat = folder.parent / parent, self._root / parent
            owner = _name(folder.parent) or _name(nested) or _name(flat)
            return _Zone(f"{owner} dram".strip(), folder)
        return _Zone(name, folder) if name.startswith("package") or name == "psys" else None


def _name(folder: Path) -> str:
    try:
        return (folder / "name").read_text().strip()
    except OSError:
        return ""


def _without_mirrors(zones: list[_Zone]) -> list[_Zone]:
    """Drop dies that show the counter of another die of their package."""
    distinct: list[_Zone] = []
    for zone in zones:
        if not any(_mirrors(zone, other) for other in distinct):
            distinct.append(zone)
    return distinct


def _mirrors(zone: _Zone, other: _Zone) -> bool:
    package, die, _ = zone.name.partition("-die-")
    same_package = bool(die) and other.name.startswith(package + die)
    if not same_package or ("dram" in zone.name) != ("dram" in other.name):
        return False
    return abs(zone.first_uj - other.first_uj) <= MIRRORED_WITHIN_UJ
