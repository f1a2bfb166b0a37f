"""A study whose trainings two processes share: process 0 leads, and the other follows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from sparing.core.errors import DataError, ProcessLost, Unsupported, UsageError
from sparing.core.record import Record
from sparing.experiment.parallel import following
from sparing.experiment.parallel.engines import Where
from sparing.experiment.parallel.leading import PROCESSES
from sparing.experiment.run import Run, read_config
from sparing.measure.energy import Component, Energy
from sparing.measure.windows import of_all_processes
from sparing.report.blocks import data_notices
from sparing.report.run import read_run
from sparing.train.processes import run_in
from tests.experiment.parallel import tiny, trained

SAME = 1e-8
ALL = {"begin", "train/a", "train/b", "last"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two runs in two processes; the other writes nothing."""
    folder: Path = tmp_path_factory.mktemp("two")
    assert run_in(2, trained.run_both, folder) == 0
    return folder


@dataclass
class Announcements:
    """What process 0 would announce, to a process that follows it here."""

    keys: list[str]

    def __call__(self) -> str:
        return self.keys.pop(0) if self.keys else ""


def test_who_follows_trains_and_leaves_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what the cells of process 0 wrote, and has no records."""
    trained.STUDY.run(trained.Options(), tmp_path, cells="begin")
    before = (tmp_path / "records.jsonl").read_bytes()
    experiment = trained.prepare(trained.Options(faults={"train/a": "diverge"}), tmp_path)
    began = read_config(tmp_path, trained.__name__)["started"]
    monkeypatch.setattr(following, "announced", Announcements(["train/a", "train/b"]))
    following._follow(experiment, tmp_path, began)
    assert [path.parent.name for path in tmp_path.glob("models/*/result.json")] == ["b"]
    assert (tmp_path / "records.jsonl").read_bytes() == before
    for elsewhere, when in ((tmp_path, "another time"), (tmp_path / "no", began)):
        monkeypatch.setattr(following, "announced", Announcements(["train/a"]))
        with pytest.raises(DataError, match="put it on a path that all machines share"):
            following._follow(experiment, elsewhere, when)


def records_of(folder: Path) -> list[Record]:
    return Run(folder, read_config(folder, trained.__name__)).records()


@pytest.mark.slow
def test_two_processes_leave_the_weights_and_records_of_one(both: Path, tmp_path: Path) -> None:
    one = trained.run(tmp_path)
    assert not one.failures
    for name in ("a", "b"):
        weights = [
            load_file(folder / "models" / name / "model.safetensors")
            for folder in (tmp_path, both / "well")
        ]
        assert max(float((weights[0][k] - weights[1][k]).abs().max()) for k in weights[0]) < SAME
    two = records_of(both / "well")
    values = {r.cell: r.value for r in one.records if r.name in ("score", "loss")}
    assert {r.cell: r.value for r in two if r.name in ("score", "loss")} == pytest.approx(values)
    shared = {r.cell: r.value for r in two if r.name == PROCESSES}
    assert shared == {"train/a": 2.0, "train/b": 2.0}
    assert not [r for r in one.records if r.name == PROCESSES]
    shares = [r.labels["share"] for r in two if r.name == "score"]
    assert all(isinstance(share, float) for share in shares)  # its threads wait for nobody


@pytest.mark.slow
def test_what_diverges_or_cannot_be_shared_is_a_failed_cell(both: Path) -> None:
    failed = {
        one["cell"]: one["error"] for one in json.loads((both / "ill/failed.json").read_text())
    }
    assert failed.keys() == {"train/a", "train/b"}
    assert "the loss is nan at step 3" in failed["train/a"]
    assert "without torchrun or accelerate" in failed["train/b"]
    assert {r.cell for r in records_of(both / "ill")} == {"begin", "last"}


@pytest.mark.slow
def test_the_page_says_that_their_times_do_not_compare(both: Path) -> None:
    (notice,) = [text for text in data_notices(read_run(both / "well")) if "shared" in text]
    assert notice.startswith("Trainings of 2 cells were shared by 2 processes")


@pytest.mark.slow
def test_one_process_goes_on_with_what_two_began(both: Path) -> None:
    assert not trained.run(both / "ill").failures
    assert {r.cell for r in records_of(both / "ill")} == ALL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "other", "error", "words"),
    [
        ({"train/b": "raise"}, False, UsageError, "^process 1 alone fails$"),
        ({"train/b": "kill"}, False, ProcessLost, "^process 1 of 2 ended by SIGKILL; the same"),
        ({}, True, UsageError, "^process 1 of 2: .* prepares another run: seed is 5 there, 4 here"),
    ],
)
def test_what_fails_in_one_ends_all_and_is_gone_on_with(
    tmp_path: Path, faults: dict[str, str], other: bool, error: type[Exception], words: str
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(error, match=words):
        run_in(2, trained.run_one, folder, faults, other)
    assert folder.exists() is not other
    if not other:
        assert {r.cell for r in records_of(folder)} == {"begin", "train/a"}
    assert run_in(2, trained.run_one, folder, {}, False) == 3
    shared = [r.cell for r in records_of(folder) if r.name == PROCESSES]
    assert sorted(shared) == ["train/a", "train/b"]


def test_studies_without_such_trainings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "join", lambda cpu: 2)
    with pytest.raises(Unsupported, match="leave torchrun and accelerate out"):
        tiny.STUDY.run(tiny.Options(), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_processes_for_cells_and_for_a_training_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="leave one of both out"):
        tiny.STUDY.run(tiny.Options(), tmp_path, where=Where(processes=2))


def test_side_by_side_names_the_other_way(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="torchrun lets processes share its trainings"):
        trained.STUDY.run(trained.Options(), tmp_path, where=Where(processes=2))


def test_estimates_are_summed_and_counters_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def energy(package: float, cpu: float) -> Energy:
        estimate = Component("cpu", cpu, "estimated", "", (cpu / 2, 2 * cpu))
        return Energy(1.0, (Component("package", package, "measured", ""), estimate))

    others = [energy(6.0, 3.0)]
    monkeypatch.setattr("sparing.measure.windows.everywhere", lambda mine: [mine, *others])
    summed = of_all_processes(energy(5.0, 2.0))
    assert [part.energy_j for part in summed.components] == [5.0, 5.0]
    assert summed.component("cpu").interval == (2.5, 10.0)
