"""One number for each training, out of its records."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.measure.seeds import compared, components, quantity


def spent(seed, joules, component, obtained="integrated", name="train_energy_j"):
    labels = {"arm": "dense", "seed": seed, "component": component}
    return Record(name, joules, "J", obtained, labels)


def test_energies_are_summed_over_components_and_others_are_read_as_they_are():
    records = [spent(0, 2.0, "CPU"), spent(0, 3.0, "DRAM"), spent(1, 4.0, "CPU")]
    records.append(Record("accuracy", 0.5, "share", "measured", {"arm": "dense", "seed": 1}))
    assert quantity(records, "train_energy_j", "dense") == {0: 5.0}  # seed 1 lacks a component
    assert quantity(records, "accuracy", "dense") == {1: 0.5}
    assert quantity(records, "accuracy", "other") == {}


def test_estimates_are_not_added_to_what_was_sensed():
    guess = spent(0, 100.0, "CPU seconds", obtained="estimated")
    records = [spent(0, 2.0, "CPU"), guess]
    assert compared(records) == ("integrated",)
    assert components(records) == {"CPU"}
    assert quantity(records, "train_energy_j", "dense") == {0: 2.0}
    assert compared([guess]) == ("estimated",)
    assert quantity([guess], "train_energy_j", "dense") == {0: 100.0}
