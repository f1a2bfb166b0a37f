"""A run survives what happens to runs: errors, kills, other runs, strangers' folders."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from sparing.core.errors import DataError, UsageError
from sparing.core.progress import waiting
from sparing.core.record import Record
from sparing.experiment.claims import Goal
from sparing.experiment.plan import clocked
from sparing.experiment.run import Cell, open_run, read_config
from sparing.experiment.study import StudyResult, base_config
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train import Recipe, train

SILENT = lambda fraction, text: None  # noqa: E731


def _config(**identity):
    return {"study": "compare", "identity": identity, "machine_id": "m", "commit": "c"}


def _cell(key, calls, records=1, error=None):
    def work():
        calls.append(key)
        if error is not None:
            raise error
        return [Record("value", float(number), "x", "measured") for number in range(records)]

    return Cell(key, work)


def _do(folder, cells, **options):
    with open_run(folder, _config(a=1), **options) as run:
        run.do(cells, SILENT)
        return run.records(), run.failures


def test_finished_cells_are_not_repeated(tmp_path):
    calls = []
    _do(tmp_path, [_cell("one", calls)])
    records, _ = _do(tmp_path, [_cell("one", calls), _cell("two", calls, records=2)])
    assert calls == ["one", "two"]
    assert [r.cell for r in records] == ["one", "two", "two"]
    assert {r.machine for r in records} == {"m"}


def test_what_a_cell_tells_is_its_piece_of_the_whole_and_never_goes_back(tmp_path):
    events = []

    def work():
        for fraction in (0.5, 1.0, 0.0, 1.0):  # trained twice
            waiting()(fraction, f"{fraction:.0%}")
        return []

    with open_run(tmp_path, _config(a=1)) as run:
        cells = [Cell("one", list, 1.0), Cell("two", work, 2.0), Cell("three", list, 1.0)]
        run.do(cells, lambda fraction, text: events.append((fraction, text)))
    assert [text for _, text in events if text.startswith("two: ")] == [
        *("two: 50%", "two: 100%", "two: 0%", "two: 100%")
    ]
    assert [fraction for fraction, _ in events] == [0.0, 0.25, 0.5, 0.75, 0.75, 0.75, 0.75, 1.0]


def test_trainings_within_a_cell_are_told_to_who_waits_for_the_run(tmp_path):
    task, events = load_task("digits", patch_size=4), []

    def work():
        model = build_model("vit", task, width=8, layers=1)
        train(model, task, Recipe(epochs=2), output_dir=tmp_path / "models")
        return []

    with open_run(tmp_path / "run", _config(a=1)) as run:
        run.do([Cell("one", list), Cell("two", work)], lambda *event: events.append(event))
    assert events[0] == (0.0, "one")
    assert events[1] == (0.5, "two")
    assert events[-2][0] == 1.0
    assert events[-2][1].startswith("two: epoch 2 of 2, best validation")
    assert waiting() is None


def test_a_cell_killed_while_writing_is_done_again_and_counts_once(tmp_path):
    calls = []
    _do(tmp_path, [_cell("one", calls, records=3), _cell("two", calls, records=3)])
    path = tmp_path / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:20])  # the mark of "two" is torn
    records, _ = _do(tmp_path, [_cell("one", calls, records=3), _cell("two", calls, records=3)])
    assert calls == ["one", "two", "two"]
    assert [r.cell for r in records] == ["one"] * 3 + ["two"] * 3


def test_a_failed_cell_is_noted_and_tried_again(tmp_path):
    calls = []
    cells = [_cell("bad", calls, error=UsageError("no\nway")), _cell("good", calls)]
    records, failures = _do(tmp_path, cells)
    assert [(f.cell, f.error) for f in failures] == [("bad", "no way")]
    assert json.loads((tmp_path / "failed.json").read_text())[0]["cell"] == "bad"
    assert [r.cell for r in records] == ["good"]
    _, failures = _do(tmp_path, [_cell("bad", calls), _cell("good", calls)])
    assert failures == []
    assert calls == ["bad", "good", "bad"]


def test_what_failed_stays_noted_while_other_cells_are_done(tmp_path):
    calls = []

    def noted():
        return [failure["cell"] for failure in json.loads((tmp_path / "failed.json").read_text())]

    _do(tmp_path, [_cell("bad", calls, error=UsageError("no"))])
    _do(tmp_path, [_cell("good", calls)])
    assert noted() == ["bad"]
    _do(tmp_path, [_cell("bad", calls), _cell("good", calls)])
    assert noted() == []


def test_an_error_that_nobody_expected_ends_its_cell_alone(tmp_path):
    calls = []
    records, failures = _do(
        tmp_path, [_cell("bad", calls, error=IndexError("out of range")), _cell("good", calls)]
    )
    assert [(f.cell, f.error) for f in failures] == [("bad", "IndexError: out of range")]
    assert [r.cell for r in records] == ["good"]


def test_the_work_of_child_processes_is_counted():
    busy = "import time\nwhile time.process_time() < 0.5: pass"

    def work():
        subprocess.run([sys.executable, "-c", busy], check=True)
        return []

    [record] = clocked(Cell("one", work)).work()
    assert record.labels["core_s"] >= 0.4


def test_interruption_keeps_what_is_finished(tmp_path):
    calls = []
    with pytest.raises(KeyboardInterrupt):
        _do(tmp_path, [_cell("one", calls), _cell("two", calls, error=KeyboardInterrupt())])
    records, _ = _do(tmp_path, [_cell("one", calls), _cell("two", calls)])
    assert calls == ["one", "two", "two"]
    assert len(records) == 2


def test_another_run_is_refused_and_named(tmp_path):
    _do(tmp_path, [_cell("one", [])])
    with pytest.raises(UsageError, match="a was 1, is 2"), open_run(tmp_path, _config(a=2)):
        pass


def test_a_run_that_came_to_nothing_makes_room(tmp_path):
    _do(tmp_path, [_cell("one", [], error=UsageError("no such model"))])
    with open_run(tmp_path, _config(a=2)) as run:
        assert run.config["identity"] == {"a": 2}


def test_of_two_recipes_what_differs_is_told(tmp_path):
    with open_run(tmp_path, _config(recipe={"epochs": 1, "seed": 0})) as run:
        run.do([_cell("one", [])], SILENT)
    changed = _config(recipe={"epochs": 2, "seed": 0})
    with (
        pytest.raises(UsageError, match=r"recipe was \{'epochs': 1\}, is"),
        open_run(tmp_path, changed),
    ):
        pass


def test_overwriting_begins_again_with_nothing_of_the_first(tmp_path):
    calls = []
    _do(tmp_path, [_cell("one", calls)])
    for name in ("models", "engines/dense", "model/onnx-int8", "answers"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "answers.safetensors").touch()
    (tmp_path / "notes.txt").touch()
    _do(tmp_path, [_cell("one", calls)], overwrite=True)
    assert calls == ["one", "one"]
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert left == {"config.json", "records.jsonl", "failed.json", "notes.txt"}


def test_overwriting_loses_nothing_that_no_run_writes(tmp_path):
    _do(tmp_path, [_cell("one", [])])
    outside = tmp_path.parent / "outside.txt"
    outside.write_text("mine")
    model = tmp_path / "models" / "linear-0" / "model.safetensors"
    model.parent.mkdir(parents=True)
    model.touch()
    for name in ("models/notes.txt", "models/linear-0/link", "engines/mine.pt", "answers/a.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "link":
            path.symlink_to(outside)
        else:
            path.write_text("mine")
        with pytest.raises(UsageError, match=f"{path.name} is not of this run"):
            _do(tmp_path, [_cell("one", [])], overwrite=True)
        assert path.exists()
        assert model.exists()
        assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 2
        path.unlink()
    assert outside.read_text() == "mine"


def test_overwriting_drops_the_figures_of_the_page_alone(tmp_path):
    _do(tmp_path, [_cell("one", [])])
    (tmp_path / "figures").mkdir()
    for name in ("crossover.png", "mine.png", "mine.txt"):
        (tmp_path / "figures" / name).write_text(name)
    (tmp_path / "report.md").write_text("![lines](figures/crossover.png)")
    _do(tmp_path, [_cell("one", [])], overwrite=True)
    left = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert left == ["mine.png", "mine.txt"]


@pytest.mark.parametrize("config", [{"identity": {}}, {"identity": {}, "study": "mine"}])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_configuration_without_a_study_is_of_no_run(tmp_path, config, overwrite):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(DataError, match="names no study"):
        _do(tmp_path, [], overwrite=overwrite)
    assert (tmp_path / "report.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["records.jsonl", "config.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    _do(tmp_path, [_cell("one", [])])
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="not a plain file"):
        _do(tmp_path, [_cell("one", [])])


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_a_memory_that_is_full_ends_the_run(tmp_path, error):
    with pytest.raises(type(error)):
        _do(tmp_path, [_cell("one", [], error=error), _cell("two", [])])


def test_a_number_that_is_not_finite_fails_its_cell_alone(tmp_path):
    bad = Cell("bad", lambda: [Record("value", float("nan"), "x", "measured")])
    records, failures = _do(tmp_path, [bad, _cell("good", [])])
    assert [r.cell for r in records] == ["good"]
    assert [failure.cell for failure in failures] == ["bad"]


def test_a_strangers_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with (
        pytest.raises(UsageError, match=r"holds no run \(found thesis\.tex\)"),
        open_run(tmp_path, _config()),
    ):
        pass


def test_two_processes_cannot_share_a_folder(tmp_path):
    with (
        open_run(tmp_path, _config()),
        pytest.raises(UsageError, match="in use"),
        open_run(tmp_path, _config()),
    ):
        pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"), open_run(tmp_path / "file", _config()):
        pass


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_foreign_configuration_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match=r"config\.json"):
        read_config(tmp_path)


def test_the_analysis_is_replaced_and_not_doubled(tmp_path):
    with open_run(tmp_path, _config(a=1)) as run:
        run.do([_cell("one", [])], SILENT)
        for value in (1.0, 2.0):
            run.replace_analysis([Record("ratio", value, "ratio", "measured")])
        assert [(r.cell, r.value) for r in run.records()] == [("one", 0.0), ("analysis", 2.0)]


@pytest.mark.parametrize(
    ("interval", "at_most", "met"),
    [
        ((0.2, 0.3), False, True),
        ((0.0, 0.05), False, False),
        ((0.0, 0.3), False, "undecided"),
        (None, False, "undecided"),
        ((0.0, 0.1), True, True),
        ((0.2, 0.3), True, False),
    ],
)
def test_a_goal_is_met_only_by_a_whole_interval(interval, at_most, met):
    goal = Goal("name", 0.1, "share", at_most=at_most)
    assert goal.decide(0.1, interval).met == met


def test_the_command_names_no_folder_of_this_machine(monkeypatch, tmp_path):
    arguments = ["slim", str(tmp_path / "model"), "--task", "sst2", "--output-dir", "runs/one"]
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "sparing"), *arguments])
    command = base_config("slim", {})["command"]
    assert command == "sparing slim model --task sst2 --output-dir runs/one"


def test_other_data_under_the_same_names_is_another_run(tmp_path):
    with open_run(tmp_path, {**_config(a=1), "data": {"mails": "one"}}) as run:
        run.do([_cell("one", [])], SILENT)
    with (
        pytest.raises(UsageError, match="the files of mails have changed since"),
        open_run(tmp_path, {**_config(a=1), "data": {"mails": "two"}}),
    ):
        pass
    with open_run(tmp_path, _config(a=1)) as run:  # from before runs recorded their data
        assert run.finished() == {"one"}


def _two_tasks(rate: float, digest: str = "one") -> dict[str, Any]:
    tasks = {"mails": {"rate": 1.0}, "films": {"rate": rate}}
    return {**_config(tasks=tasks), "data": {"mails": "one", "films": digest}}


def test_a_task_that_was_not_begun_may_change(tmp_path):
    with open_run(tmp_path, _two_tasks(1.0), by_task=True) as run:
        run.do([_cell("mails/train/0", [])], SILENT)
    with open_run(tmp_path, _two_tasks(2.0, "two"), by_task=True) as run:
        assert run.finished() == {"mails/train/0"}
    assert read_config(tmp_path)["identity"]["tasks"]["films"] == {"rate": 2.0}


@pytest.mark.parametrize("begun", ["cell", "model"])
def test_a_task_that_was_begun_may_not_change(tmp_path, begun):
    with open_run(tmp_path, _two_tasks(1.0), by_task=True) as run:
        run.do([_cell("mails/train/0", [])], SILENT)
        if begun == "cell":
            run.do([_cell("films/train/0", [])], SILENT)
        else:
            (tmp_path / "models" / "films-dense-0").mkdir(parents=True)
    with (
        pytest.raises(UsageError, match=r"tasks was .*2|tasks was .*films"),
        open_run(tmp_path, _two_tasks(2.0), by_task=True),
    ):
        pass
    with (
        pytest.raises(UsageError, match="the files of films have changed since"),
        open_run(tmp_path, _two_tasks(1.0, "two"), by_task=True),
    ):
        pass


def test_tasks_count_as_begun_where_cells_are_not_named_by_them(tmp_path):
    with open_run(tmp_path, _two_tasks(1.0)) as run:
        run.do([_cell("speed", [])], SILENT)
    with (
        pytest.raises(UsageError, match="the files of films have changed since"),
        open_run(tmp_path, _two_tasks(1.0, "two")),
    ):
        pass


def test_a_full_disk_ends_the_run(tmp_path):
    calls = []
    full = UsageError("cannot write")
    full.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UsageError, match="cannot write"):
        _do(tmp_path, [_cell("one", calls, error=full), _cell("two", calls)])
    assert calls == ["one"]


def test_overwriting_leaves_what_a_link_points_to(tmp_path):
    elsewhere = tmp_path / "large"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    run = tmp_path / "run"
    _do(run, [_cell("one", [])])
    (run / "models").symlink_to(elsewhere)
    _do(run, [_cell("one", [])], overwrite=True)
    assert not (run / "models").exists()
    assert (elsewhere / "kept").exists()


def test_other_settings_are_named_before_the_rows_that_they_change(tmp_path):
    with open_run(tmp_path, {**_config(rows=1), "data": {"digits": "a"}}) as run:
        run.do([_cell("one", [])], SILENT)
    with (
        pytest.raises(UsageError, match="rows was 1, is 2"),
        open_run(tmp_path, {**_config(rows=2), "data": {"digits": "b"}}),
    ):
        pass


def test_a_cells_times_have_the_load_of_the_machine_beside_them(tmp_path):
    time = Record("train_time_s", 1.0, "s", "measured")
    records, _ = _do(tmp_path, [Cell("train/a", lambda: [time]), _cell("plain", [])])
    assert [(r.name, r.cell) for r in records] == [
        ("train_time_s", "train/a"),
        ("machine_load", "train/a"),
        ("value", "plain"),
    ]


def test_a_busy_machine_is_the_first_thing_that_is_said(tmp_path):
    labels = {"disturbance": "other programs kept 1.8 of 2 processors busy"}
    load = Record("machine_load", 0.4, "share", "measured", labels, cell="latency/model/1")
    result = StudyResult("compare", tmp_path, {}, [load], [], [])
    assert result.disturbance.startswith("The machine was busy during one measurement: other")
    assert next(iter(result.to_dict().items())) == ("disturbance", result.disturbance)
    assert str(result).startswith("The machine was busy during one measurement")


def test_records_of_code_that_no_commit_holds_are_counted(tmp_path):
    kinds = [("one", "abc"), ("one", "abc+"), ("two", "abc+"), ("analysis", "abc+")]
    records = [Record("x", 1.0, "", "measured", cell=cell, commit=commit) for cell, commit in kinds]
    records += [Record("cell", None, "", "measured", cell="one", commit="abc+")]
    records += [Record("x", 1.0, "", "paper", cell="one", commit="abc+")]
    summary = StudyResult("compare", tmp_path, {}, records, [], []).to_dict()
    assert summary["uncommitted_records"] == 2
