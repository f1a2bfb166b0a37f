"""``sparing compare``, ``study`` and ``report``: whole runs, and runs that are cut off."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparing.compare import cells
from sparing.core.errors import SparingError
from sparing.core.record import RecordLog
from sparing.experiment.cells import sweep
from sparing.measure.memory import peak_memory
from tests.cli.conftest import SMALL_COMPARE, memory_in_this_process, run_command


@pytest.fixture(scope="module", autouse=True)
def _no_process_for_memory():
    """Starting a process for each cell of memory takes longer than all the rest together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "peak_memory", memory_in_this_process)
        yield


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A finished comparison, and how its command ended."""
    folder = tmp_path_factory.mktemp("compared") / "run"
    return folder, run_command(*SMALL_COMPARE, "--output-dir", folder, "--json")


def _finished(folder):
    """The records of each finished cell; a cell that was done twice would show here."""
    entries = RecordLog(folder / "records.jsonl").read()
    marks = [entry.cell for entry in entries if entry.name == "cell"]
    assert len(marks) == len(set(marks)), marks
    return {
        cell: [entry for entry in entries if entry.cell == cell]
        for cell in marks
        if cell != "analysis"
    }


def test_it_ends_with_goals_and_a_page(compared):
    folder, ended = compared
    assert ended.code == 0, ended.err
    outcome = ended.json
    assert outcome["failed"] == []
    for goal in outcome["goals"]:
        assert {"name", "target", "value", "interval", "met"} <= goal.keys()
        assert goal["met"] in (True, False, "undecided")
    assert Path(outcome["pages"]["html"]).read_text().startswith("<!")
    for name in ("records.jsonl", "config.json", "report.html", "report.md"):
        assert (folder / name).stat().st_size > 0
    assert list((folder / "figures").glob("*.png"))
    assert set(_finished(folder)) >= {"train/softmax/0", "train/window/0", "latency/attention/64"}


@pytest.mark.usefixtures("_unpainted")
def test_a_finished_run_is_not_repeated(command, compared):
    folder, _ = compared
    before = _finished(folder)
    shown = command(*SMALL_COMPARE, "--output-dir", folder)
    assert shown.code == 0
    assert "The page:" in shown.out
    assert "window: accuracy less dense" in shown.out
    outcome = command(*SMALL_COMPARE, "--output-dir", folder, "--json").json
    assert outcome["answer"] in " ".join(shown.out.split())
    assert (outcome["folder"], outcome["page"]) == (str(folder), str(folder / "report.html"))
    answer, page = outcome["answer"].split(":")[0], (folder / "report.md").read_text()
    assert answer in page
    assert "subset False" not in page
    assert "data: as published" in page
    assert _finished(folder) == before


def test_its_plan_says_what_is_done(command, compared, tmp_path):
    folder, _ = compared
    planned = command(*SMALL_COMPARE, "--output-dir", folder, "--plan", "--json").json
    assert all(cell["done"] for cell in planned["cells"])
    assert {cell["key"] for cell in planned["cells"]} == set(_finished(folder))
    assert (planned["minutes_left"], planned["basis"]) == (0, "what finished cells took")
    anew = command(*SMALL_COMPARE, "--output-dir", tmp_path / "new", "--plan")
    assert (anew.code, "minutes of one core left" in anew.out) == (0, True)
    assert not (tmp_path / "new").exists()
    other = command(*SMALL_COMPARE, "--set", "margin=0.5", "--output-dir", folder, "--plan")
    assert (other.code, "holds another run" in other.error) == (2, True)


def test_other_settings_are_another_run(command, compared):
    folder, _ = compared
    ended = command(*SMALL_COMPARE, "--set", "margin=0.5", "--output-dir", folder)
    assert ended.code == 2
    assert "holds another run: margin was 0.01, is 0.5" in ended.error
    ended = command(*SMALL_COMPARE, "--seeds", "2", "--set", "margin=0.5", "--output-dir", folder)
    assert "seeds was [0], is [0, 1], and margin differ" in ended.error


def test_another_study_is_named(command, compared):
    folder, _ = compared
    ended = command("study", "hugginggreen", "--budget", "quick", "--output-dir", folder)
    assert (ended.code, "holds a run of compare, not of hugginggreen" in ended.error) == (2, True)


def test_a_second_process_is_refused(command, compared):
    folder, _ = compared
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = command(*SMALL_COMPARE, "--output-dir", folder)
    assert ended.code == 2
    assert "in use by another run" in ended.error


@pytest.mark.usefixtures("_unpainted")
def test_the_page_is_written_again_from_records(command, compared):
    folder, _ = compared
    page = folder / "report.html"
    before = page.read_text()
    page.unlink()
    pages = command("report", folder, "--json").json
    assert pages["html"] == str(page)
    assert page.read_text() == before


@pytest.mark.usefixtures("_unpainted")
def test_a_required_goal_that_is_missed_has_its_own_code(command, tmp_path):
    arguments = ("study", "tests.cli.missed_goal", "--output-dir", tmp_path / "run")
    missed = command(*arguments, "--json")
    assert missed.code == 3
    assert missed.json["goals"][0]["met"] is False
    assert command(*arguments, "--set", "value=1.5").code == 0


def _stopped_by(trouble):
    def stop(*_):
        raise trouble

    return stop


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory):
    """A comparison interrupted when it came to the arithmetic, and how its command ended."""
    folder = tmp_path_factory.mktemp("cut_off") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "model_flops", _stopped_by(KeyboardInterrupt()))
        return folder, run_command(*SMALL_COMPARE, "--output-dir", folder)


def test_an_interrupted_run_keeps_what_is_finished(cut_off):
    folder, ended = cut_off
    assert (ended.code, ended.out) == (130, "")
    assert "interrupted; finished work is saved" in ended.error
    assert set(_finished(folder)) == {
        "latency/attention/64",
        "latency/model/1",
        "latency/model/32",
        "energy/model",
    }


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_what_ends_a_run_takes_nothing(command, cut_off, copy_of, monkeypatch, trouble, words):
    folder = copy_of(cut_off[0])
    monkeypatch.setattr(cells, "model_flops", _stopped_by(trouble))
    ended = command(*SMALL_COMPARE, "--output-dir", folder)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.error
    assert _finished(folder) == _finished(cut_off[0])


@pytest.mark.usefixtures("_unpainted")
def test_a_failed_cell_is_named_and_done_later(command, cut_off, copy_of, monkeypatch):
    folder = copy_of(cut_off[0])
    arguments = (*SMALL_COMPARE, "--output-dir", folder, "--json")
    with monkeypatch.context() as patch:
        trouble = SparingError("no such luck\nsecond line")
        patch.setattr(cells, "model_flops", _stopped_by(trouble))
        partly = command(*arguments)
    failed = {"flops/softmax", "flops/window"}
    assert partly.code == 4
    assert {failure["cell"] for failure in partly.json["failed"]} == failed
    assert "cell flops/softmax failed: no such luck second line\n" in partly.err
    before = _finished(folder)
    assert "train/window/0" in before
    assert command(*arguments).code == 0
    after = _finished(folder)
    assert {cell: after[cell] for cell in before} == before
    assert set(after) - set(before) == failed


def test_a_disk_that_is_full_when_records_are_written(command, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    arguments = (*SMALL_COMPARE, "--output-dir", tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        ended = command(*arguments)
    assert ended.code == 1
    assert "No space left on device" in ended.error
    train = ("train", "digits", "--epochs", "1", "--set", "task_options.patch_size=4")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        ended = command(*train, "--output-dir", tmp_path / "model")
    assert ended.code == 1
    assert "No space left on device" in ended.error


@pytest.mark.usefixtures("_unpainted")
def test_killed_without_warning_it_goes_on_and_repeats_nothing(command, tmp_path):
    folder = tmp_path / "run"
    arguments = [*SMALL_COMPARE, "--output-dir", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparing", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _wait_for(lambda: len(_marks(folder)) >= 4, process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    before = _finished(folder)
    assert "train/window/0" not in before, "it came to its end before it was killed"
    torn = (folder / "records.jsonl").read_bytes() + b'{"name": "accu'
    (folder / "records.jsonl").write_bytes(torn)
    ended = command(*arguments, "--json")
    assert ended.code == 0, ended.err
    after = _finished(folder)
    assert {cell: after[cell] for cell in before} == before
    assert {"train/softmax/0", "train/window/0"} <= set(after)


def _marks(folder):
    records_path = folder / "records.jsonl"
    lines = records_path.read_text().splitlines() if records_path.exists() else []
    return [line for line in lines if line.startswith('{"name": "cell"')]


def _wait_for(ready, process, seconds=120):
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come that far"
        time.sleep(0.02)


def test_folders_that_hold_something_else_are_refused(command, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    for verb in (SMALL_COMPARE, ("train", "digits")):
        ended = command(*verb, "--output-dir", tmp_path)
        assert ended.code == 2
        assert "is not empty and holds no" in ended.error
        assert "found letters.txt" in ended.error
        assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_foreign_config_is_named(command, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    ended = command(*SMALL_COMPARE, "--output-dir", tmp_path)
    assert ended.code == 1
    assert "config.json is not a run's configuration" in ended.error
    assert command("report", tmp_path).code == 1
    assert command("report", tmp_path / "nowhere").code == 1


@pytest.mark.usefixtures("_unpainted")
def test_overwriting_begins_again(command, compared, copy_of):
    folder = copy_of(compared[0])
    arguments = (*SMALL_COMPARE, "--set", "margin=0.5", "--output-dir", folder)
    before = _finished(folder)
    assert command(*arguments, "--overwrite").code == 0
    after = _finished(folder)
    assert set(after) == set(before)
    assert after["latency/attention/64"] != before["latency/attention/64"]


def test_overwriting_drops_runs_only(command, tmp_path):
    model = json.dumps({"model_type": "bert"})
    (tmp_path / "config.json").write_text(model)
    ended = command(*SMALL_COMPARE, "--overwrite", "--output-dir", tmp_path)
    assert ended.code == 1
    assert "config.json is not a run's configuration" in ended.error
    assert (tmp_path / "config.json").read_text() == model


@pytest.mark.slow
def test_every_quantity_through_a_study(command, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "peak_memory", peak_memory)
    settings = ("lengths=64", "memory_lengths=64", "rounds=5", "energy_seconds=0.02", "seeds=0")
    settings += ("mechanisms=softmax,linear", "recipe.epochs=1", "task_options.patch_size=4")
    given = [part for setting in settings for part in ("--set", setting)]
    arguments = ("study", "compare", *given, "--output-dir", tmp_path / "run", "--json")
    ended = command(*arguments)
    assert ended.code == 0, ended.err
    names = {record.name for record in RecordLog(tmp_path / "run" / "records.jsonl").read()}
    assert {"peak_bytes", "peak_ratio", "energy_j", "flops_ratio", "latency_ratio"} <= names


def test_a_model_without_attention_is_one_line(command, tmp_path):
    ended = command("compare", "digits", "--set", "model=regnet", "--output-dir", tmp_path / "run")
    assert ended.code == 2
    assert "a model of type regnet has no attention to compare" in ended.err


@pytest.mark.usefixtures("_unpainted")
def test_a_pretrained_model_brings_its_own_tokenizer(command, bert, tmp_path):
    rows = tmp_path / "rows.csv"
    lines = [f"good film {n},{n % 2}" for n in range(60)]
    rows.write_text("text,label\n" + "\n".join(lines) + "\n")
    rest = [part.replace("patch_size=4", "max_tokens=24") for part in SMALL_COMPARE[2:]]
    folder = tmp_path / "run"
    ended = command("compare", rows, "--model", bert, *rest, "--output-dir", folder)
    assert ended.code == 0, ended.err
    identity = json.loads((folder / "config.json").read_text())["identity"]
    assert identity["task_options"] == {"max_tokens": 24, "tokenizer": str(bert)}
