"""Trainings give the same records alone and beside others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from papers.tests.adaattention.test_study import SMALL

from sparing.core.record import Record
from sparing.experiment.parallel.engines import Where
from sparing.experiment.plan import BESIDE
from sparing.experiment.registry import find_study
from sparing.experiment.run import Run, read_config
from sparing.measure.load import TIME_UNITS
from sparing.measure.machine import threads
from sparing.report.page import write_report
from sparing_papers.adaattention import study as adaattention
from tests.experiment.parallel.test_cluster import cluster_of, on

TWO = Where(processes=2)
# one of each kind, and of those that begin with random weights or scores
VARIANTS = ("adaptive", "bigbird", "random", "skip", "prune-gradual", "uniform-rotated", "slim")


def train(folder: Path, where: Where | None = None, variants: tuple[str, ...] = VARIANTS) -> Path:
    """Run the trainings; whatever they do not pin has two threads in this process."""
    options = replace(SMALL, variants=variants)
    with threads(2):
        result = find_study("adaattention").run(options, folder, cells="*/train/*", where=where)
    assert result.failures == []
    return folder


def trained(folder: Path) -> dict[str, list[Record]]:
    """The records of each training but for times and the state of the machine."""
    by_cell: dict[str, list[Record]] = {}
    for record in records_of(folder):
        if record.unit not in TIME_UNITS and record.name not in (BESIDE, "machine_load"):
            by_cell.setdefault(record.cell, []).append(replace(record, time=""))
    return {key: records for key, records in by_cell.items() if "/train/" in key}


def records_of(folder: Path) -> list[Record]:
    return Run(folder, read_config(folder)).records()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("alone") / "run", None, ("adaptive", "slim"))


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("beside") / "run", TWO, ("adaptive", "slim"))


def test_two_processes_measure_the_same(alone: Path, beside: Path) -> None:
    assert len(trained(alone)) == 4
    assert trained(beside) == trained(alone)
    dropped = {r.cell: r.labels["dropped"] for r in records_of(beside) if r.name == BESIDE}
    assert dropped == {
        "digits/train/dense/0": "train_time_s",
        **dict.fromkeys(
            trained(alone).keys() - {"digits/train/dense/0"}, "epoch_latency, train_time_s"
        ),
    }


def test_the_page_is_of_what_was_measured(beside: Path) -> None:
    page = write_report(beside)["md"].read_text(encoding="utf-8")
    assert "4 cells ran beside others on one machine: times and energies" in page


def test_trainings_need_what_they_begin_with(tmp_path: Path) -> None:
    experiment = adaattention.prepare(replace(SMALL, seeds=(0, 1)), tmp_path)
    cells = experiment.cells(Run(tmp_path, experiment.config))
    assert [c.key for c in cells if c.beside] == [c.key for c in cells if "/train/" in c.key]
    needs = {c.key.removeprefix("digits/train/"): c.needs for c in cells if c.beside}
    dense, full = "digits/train/dense/1", "digits/train/full/1"
    assert needs["dense/1"] == ()
    assert needs["slim/1"] == (dense, full)
    others = {key: needed for key, needed in needs.items() if key.endswith("/1")}
    assert {needed for key, needed in others.items() if key[:4] not in ("dens", "slim")} == {
        (dense,)
    }


@pytest.mark.slow
def test_every_variant_is_the_same_in_processes_and_on_a_cluster(tmp_path: Path) -> None:
    here = train(tmp_path / "here")
    assert len(trained(here)) == len(VARIANTS) + 2
    assert trained(train(tmp_path / "two", TWO)) == trained(here)
    with cluster_of({}, {}) as cluster:
        assert trained(train(tmp_path / "ray", on(cluster))) == trained(here)
