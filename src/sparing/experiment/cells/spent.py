"""What a training took: seconds, steps, and joules of its steps by component."""

from __future__ import annotations

from sparing.core.record import Label, Record
from sparing.measure.energy import EnergyMeter
from sparing.measure.windows import SUFFIX, EnergyWindows
from sparing.train import TrainResult


def windows(watts_per_core: float) -> EnergyWindows:
    """A meter for ``train``, with that constant where the machine has no counter."""
    return EnergyWindows(EnergyMeter(watts_per_core=watts_per_core))


def spent_records(
    result: TrainResult, meter: EnergyWindows, labels: dict[str, Label]
) -> list[Record]:
    """Seconds, steps, epochs, the best validation loss and joules.

    A training that was read back has no window: what this machine has says how it was obtained.
    """
    if not meter.components:
        meter.start()
        meter.stop()
    found = [
        Record("train_time_s", result.train_time_s, "s", "measured", dict(labels)),
        Record("steps", float(result.steps), "", "measured", dict(labels)),
        Record("epochs", float(len(result.curve)), "", "measured", dict(labels)),
        Record("validation_loss", result.validation_loss, "", "measured", dict(labels)),
    ]
    spent = result.curve[-1]
    for each in meter.components:
        joules = spent.get(f"{each.name}{SUFFIX}")
        if joules is not None:
            # the total is of all windows, a component's text speaks of the last one
            method = f"windows between validations, summed; the last: {each.method}"
            own: dict[str, Label] = {**labels, "component": each.name, "method": method}
            found.append(Record("train_energy_j", float(joules), "J", each.obtained, own))
    return found
