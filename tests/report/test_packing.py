"""A packed run is the same run in less space, whatever happens while it is packed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from sparing.cli import main
from sparing.core.errors import DataError, UsageError
from sparing.core.record import Record, RecordLog
from sparing.experiment.plan import IDLE
from sparing.experiment.run import Cell, open_run
from sparing.experiment.study import write_goals
from sparing.report.packing import pack
from sparing.report.page import write_report
from sparing.report.run import read_run
from tests.compare import records as make

ARMS = ("softmax", "linear")
PACKED = ["config.json", "goals.json", "records.jsonl.xz", "report.md"]
CONFIG = {**make.config(ARMS, 1), "study": "compare", "identity": {"a": 1}, "cells": ["all"]}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A finished run with its page."""
    folder = tmp_path_factory.mktemp("packing") / "run"
    with open_run(folder, CONFIG) as run:
        run.keep("all", make.records(ARMS, 1))
        write_goals(folder, [])
    write_report(folder)
    return folder


@pytest.fixture
def folder(ended, tmp_path):
    return Path(shutil.copytree(ended, tmp_path / "run"))


def content_of(folder):
    """The files below a folder by name."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_what_is_removed_is_drawn_again(ended, folder):
    packed = pack(folder)
    assert sorted(content_of(folder)) == PACKED
    assert read_run(folder) == read_run(ended)
    assert "report.html" in packed.removed
    assert any(name.startswith("figures/") for name in packed.removed)
    assert packed.bytes_after < packed.bytes_before / 10
    assert packed.left == {}
    write_report(folder)
    drawn, before = content_of(folder), content_of(ended)
    assert drawn.keys() - before.keys() == {"records.jsonl.xz"}
    assert before.keys() - drawn.keys() == {"records.jsonl", ".lock"}
    shared = drawn.keys() & before.keys()
    assert [name for name in shared if drawn[name] != before[name]] == []


def test_packing_again_changes_nothing(folder):
    pack(folder)
    before = content_of(folder)
    write_report(folder)
    pack(folder)
    assert content_of(folder) == before


COMPRESSED = ("answers.safetensors.xz", "changed.jsonl.xz")


def test_answers_are_compressed_and_what_else_is_there_stays(folder):
    for name in (
        "answers.safetensors",
        "changed.jsonl",
        "model/model.safetensors",
        "notes.txt",
        "figures/mine.png",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"0" * 1000)
    packed = pack(folder)
    others = {"figures/mine.png", "model/model.safetensors", "notes.txt"}
    assert content_of(folder).keys() == {*PACKED, *COMPRESSED} | others
    assert packed.left == {"figures": 1000, "model": 1000, "notes.txt": 1000}


def unplanned(folder):
    with open_run(folder, {**CONFIG, "cells": ["all", "more"]}):
        pass


def torn(folder):
    RecordLog(folder / "records.jsonl").append([Record("x", 1.0, "", "measured", cell="cut")])


def undecided(folder):
    (folder / "goals.json").unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unplanned, "1 of 2 cells are not done, such as more"),
        (torn, "the cell cut was interrupted"),
        (undecided, "its goals are not decided"),
    ],
)
def test_a_run_that_has_not_ended_is_packed_only_where_that_is_wanted(folder, change, reason):
    change(folder)
    before, run = content_of(folder), read_run(folder)
    with pytest.raises(UsageError, match=f"is not finished: {reason}; .*--partial"):
        pack(folder)
    assert content_of(folder) == before
    pack(folder, partial=True)
    assert read_run(folder) == run
    assert not (folder / "records.jsonl").exists()


def test_a_cell_that_was_skipped_with_a_reason_is_not_missing(folder):
    with open_run(folder, {**CONFIG, "cells": ["all", "more"]}) as run:
        skipped = {"key": "more", "why": "it would decide nothing"}
        run.replace_analysis([Record(IDLE, None, "", "measured", skipped)])
    pack(folder)
    assert sorted(content_of(folder)) == sorted([*PACKED])


def test_a_run_that_is_at_work_is_refused(folder):
    with open_run(folder, CONFIG), pytest.raises(UsageError, match="in use by another run"):
        pack(folder)
    assert (folder / "records.jsonl").exists()


@pytest.mark.parametrize("name", ["", "config.json", "records.jsonl"])
def test_a_folder_without_a_run_is_refused_and_left(folder, tmp_path, name):
    target = folder if name else tmp_path / "missing"
    if name:
        (folder / name).unlink()
    before = content_of(target)
    with pytest.raises(DataError, match=r"holds no run|holds no records"):
        pack(target)
    assert content_of(target) == before
    assert (tmp_path / "missing").exists() is False


def test_damaged_records_are_not_packed(folder):
    with (folder / "records.jsonl").open("a") as file:
        file.write("not a record\n")
    before = content_of(folder)
    with pytest.raises(DataError, match="is not a record"):
        pack(folder)
    assert content_of(folder) == before


class Killed(BaseException):
    """What a process does when it is killed: nothing after this line."""


STEPS = ((os, "fsync"), (os, "rmdir"), (Path, "replace"), (Path, "unlink"))


def killed_at(step, patch):
    """Ends the process at its ``step``-th change of the disk."""
    done = [0]

    def watched(real):
        def call(*given, **how):
            done[0] += 1
            if done[0] == step:
                raise Killed
            return real(*given, **how)

        return call

    for owner, name in STEPS:
        patch.setattr(owner, name, watched(getattr(owner, name)))


def test_a_process_that_is_killed_loses_nothing(ended, tmp_path):
    run, steps = read_run(ended), 0
    pack(Path(shutil.copytree(ended, tmp_path / "whole")))
    expected = content_of(tmp_path / "whole")
    while True:
        steps += 1
        folder = Path(shutil.copytree(ended, tmp_path / str(steps)))
        with pytest.MonkeyPatch.context() as patch:
            killed_at(steps, patch)
            try:
                pack(folder)
                break
            except Killed:
                pass
        assert read_run(folder) == run, steps
        pack(folder)
        assert content_of(folder) == expected, steps
    assert steps > 10


def test_a_run_that_goes_on_is_unpacked(folder):
    pack(folder)
    with open_run(folder, {**CONFIG, "cells": ["all", "more"]}) as run:
        before = run.records()
        run.do(
            [
                Cell("all", lambda: pytest.fail("it was done")),
                Cell("more", lambda: [Record("value", 1.0, "x", "measured")]),
            ],
            lambda fraction, text: None,
        )
        assert [r.cell for r in run.records()[len(before) :]] == ["more"]
    assert (folder / "records.jsonl").exists()
    assert not (folder / "records.jsonl.xz").exists()


def test_beginning_anew_leaves_nothing_of_a_packed_run(folder):
    (folder / "answers.safetensors").write_bytes(b"0")
    pack(folder)
    with open_run(folder, CONFIG, overwrite=True) as run:
        assert run.records() == []
    assert sorted(content_of(folder)) == [".lock", "config.json"]


def test_the_command_says_what_became_of_each_run(folder, capsys):
    (folder / "model").mkdir()
    (folder / "model" / "model.safetensors").write_bytes(b"0" * 2048)
    with pytest.raises(SystemExit) as end:
        main(["pack", str(folder)])
    assert end.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{folder}: ")
    assert first.endswith(" packed")
    assert "model was left as it is (2" in second
    with pytest.raises(SystemExit):
        main(["pack", str(folder), "--json"])
    [packed] = json.loads(capsys.readouterr().out)["packed"]
    assert packed["left"] == {"model": 2048}
    assert packed["bytes_after"] == packed["bytes_before"]
    with pytest.raises(SystemExit) as end:
        main(["pack", str(folder / "model")])
    assert end.value.code == 1
    assert "holds no run" in capsys.readouterr().err
