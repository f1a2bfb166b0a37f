"""``sparing doctor``: what this machine can measure, and what is missing."""

from __future__ import annotations

import os
from importlib import metadata
from typing import Any

from sparing.cli.shared.common import Json, emit, verb

EXAMPLE = "sparing doctor"
ENGINES = ("onnxruntime", "openvino", "nncf")


@verb
def run(as_json: Json = False) -> None:
    """Show the machine, its engines, and how its energy is measured."""
    from sparing.measure.energy import EnergyMeter
    from sparing.measure.machine import commit, machine

    with EnergyMeter() as meter:
        sum(range(100_000))
    hardware = machine()
    energy = {part.name: part.obtained for part in meter.energy.components}
    facts: dict[str, Any] = {
        "machine": hardware,
        "commit": commit(),
        "energy": energy,
        "energy_notes": list(meter.energy.notes),
        "extras": {name: _installed(name) for name in ("nvidia-ml-py", *ENGINES)},
        "settings": {k: v for k, v in os.environ.items() if k.startswith("SPARING_")},
    }
    if as_json:
        emit(facts)
        return
    for name, value in hardware.items():
        print(f"{name:<14} {value}")
    for component, obtained in energy.items():
        print(f"energy         {component}: {obtained}")
    for note in meter.energy.notes:
        print(f"               {note}")
    for name in ENGINES:
        print(f"engine         {name}: {facts['extras'][name]}")


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
