"""``sparing doctor``: what this machine can measure, and what is missing."""

from __future__ import annotations

import os
from importlib import metadata

from sparing.cli._shared import Json, emit, verb


@verb
def run(as_json: Json = False) -> None:
    """Say what this machine is, how its energy can be known, and what is missing."""
    from sparing.measure.energy import EnergyMeter
    from sparing.measure.machine import commit, machine

    with EnergyMeter() as meter:
        sum(range(100_000))
    facts = {
        "machine": machine(),
        "commit": commit(),
        "energy": {part.component: part.obtained for part in meter.energy.components},
        "energy_notes": list(meter.energy.notes),
        "extras": {"nvidia-ml-py": _installed("nvidia-ml-py")},
        "settings": {k: v for k, v in os.environ.items() if k.startswith("SPARING_")},
    }
    if as_json:
        emit(facts)
        return
    for name, value in facts["machine"].items():
        print(f"{name:<14} {value}")
    for component, obtained in facts["energy"].items():
        print(f"energy         {component}: {obtained}")
    for note in facts["energy_notes"]:
        print(f"               {note}")


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
