"""What follows from records came about as the least sure of them did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from papers.tests import golden

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.report.run import read_run
from sparing_papers.adaattention import analysis as ada
from sparing_papers.calculator.analysis import energy_of
from sparing_papers.hugginggreen.groups import Group

SENSED = ("measured", "integrated")
RUNS = {
    folder.name: folder
    for folder in golden.folders()
    if folder.name.startswith(
        ("demo", "hugginggreen-24", "kerformer-listops-short", "linformer-swapped", "calculator")
    )
}


@pytest.mark.parametrize("name", list(RUNS))
def test_nothing_that_follows_from_estimates_is_called_measured(name):
    run = read_run(RUNS[name])
    measured, before = golden.stored(RUNS[name])
    ways = {}
    for way in ("estimated", "measured"):
        changed = [replace(r, obtained=way) if r.obtained in SENSED else r for r in measured]
        records, _ = golden.STUDIES[run.config["study"]](run.config, changed, before)
        ways[way] = records
    assert {r.name for r in ways["measured"] if r.obtained == "measured"}  # there is something
    assert {r.name for r in ways["estimated"] if r.obtained == "measured"} == set()


def energy(arm, component, obtained, name="train_energy_j", **labels):
    labels = {"arm": arm, "component": component, **labels}
    return Record(name, 2.0, "J", obtained, labels)


def test_a_sum_of_energies_is_as_sure_as_its_least_sure_part():
    parts = [("gpu", "integrated"), ("cpu", "measured"), ("ram", "estimated")]
    records = [energy("linear", *part, name="mean_train_energy_j") for part in parts]
    for given in (records, records[::-1]):
        whole = energy_of(RecordTable(given), "linear")
        assert (whole.value, whole.obtained) == (4.0, "integrated")  # what was sensed counts
    whole = energy_of(RecordTable(records[2:]), "linear")
    assert (whole.value, whole.obtained) == (2.0, "estimated")


def test_a_ratio_of_energies_is_as_sure_as_either_side():
    ways = {"dense": "measured", "random": "integrated"}
    records = [energy(arm, "gpu", way, seed=0) for arm, way in ways.items()]
    records.append(Record("train_time_s", 1.0, "s", "estimated", {"arm": "random", "seed": 0}))
    group = Group("q", "digits", 2, RecordTable(records))
    assert group.obtained_of("train_energy_j", "dense") == "measured"
    assert group.obtained_of("train_energy_j", "random", "dense") == "integrated"
    assert group.obtained_of("train_time_s", "random", "dense") == "estimated"


@pytest.mark.parametrize("way", ["measured", "modelled"])
def test_speeds_and_times_over_seeds_are_as_sure_as_the_least_sure_of_them(way):
    records = []
    for seed, obtained in enumerate(("measured", way)):
        labels = {"arm": "adaptive", "task": "sst2", "inputs": "all", "seed": seed}
        records.append(Record("speed_up", 1.5, "ratio", obtained, labels, (1.4, 1.6), 20))
        for arm in ("adaptive", "full"):
            of_arm = {"arm": arm, "task": "sst2", "seed": seed}
            records.append(Record("train_time_s", 2.0, "s", obtained, of_arm))
    obtained_by_name = {record.name: record.obtained for record in ada.analyse(records, [], [0, 1])}
    assert obtained_by_name == {"speed_up": way, "train_time_ratio": way}
