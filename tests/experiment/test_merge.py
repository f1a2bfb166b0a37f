"""Pieces of one study, run in several folders, become one run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from papers.tests.long_range.test_pilot import ARENA, SMALL

from sparing.cli import main
from sparing.core.errors import DataError, UsageError
from sparing.core.record import RECORDS, RecordLog
from sparing.core.scratch import MARK, MARKED
from sparing.experiment.merge import merge
from sparing.experiment.registry import find_study
from sparing.experiment.run import ANALYSIS
from sparing.report.packing import pack
from sparing.report.page import write_report
from sparing_papers.kerformer.cores import CoreOptions

WHOLE = replace(SMALL, arena=replace(ARENA, pilot=False))
PIECES = {"a": "arena/listops/0/*", "b": "arena/listops/1/*"}


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    for name, cells in PIECES.items():
        find_study("kerformer").run(WHOLE, folder / name, cells=cells)
    return folder


@pytest.mark.usefixtures("_unpainted")
def test_the_whole_is_what_one_run_would_be(pieces, tmp_path):
    merged = merge([pieces / "a", pieces / "b"], tmp_path / "whole")
    assert list(merged.cells.values()) == [3, 3]
    assert merged.doubled == 0
    again = find_study("kerformer").run(WHOLE, tmp_path / "whole", minutes=0.0)
    assert again.failures == []
    assert {r.labels["seed"] for r in again.records if r.name == "score"} == {0, 1}
    [mean] = [
        r
        for r in again.records
        if r.name == "mean_score" and r.labels["arm"] == "kerformer" and r.count == 2
    ]
    one, other = (
        next(
            r.value
            for r in find_study("kerformer").run(WHOLE, pieces / name, minutes=0.0).records
            if r.name == "score" and r.labels["arm"] == "kerformer"
        )
        for name in PIECES
    )
    assert mean.value == pytest.approx((one + other) / 2)
    page = write_report(tmp_path / "whole")["md"].read_text(encoding="utf-8")
    assert "This run is not complete" not in page


def test_what_two_folders_have_is_taken_from_the_first(pieces, tmp_path):
    shutil.copytree(pieces / "a", tmp_path / "c")
    merged = merge([pieces / "a", pieces / "b", tmp_path / "c"], tmp_path / "whole")
    assert list(merged.cells.values()) == [3, 3, 0]
    assert merged.doubled == 3


def test_packed_runs_are_merged_and_go_on(pieces, tmp_path):
    for name in PIECES:
        shutil.copytree(pieces / name, tmp_path / name)
        pack(tmp_path / name, partial=True)
    merged = merge([tmp_path / name for name in PIECES], tmp_path / "whole")
    plain = merge([pieces / name for name in PIECES], tmp_path / "plain")
    assert list(merged.cells.values()) == list(plain.cells.values()) == [3, 3]
    one, other = ((tmp_path / name / "records.jsonl").read_bytes() for name in ("whole", "plain"))
    assert one == other
    assert not (tmp_path / "a" / "records.jsonl").exists()  # the pieces stay as they are
    before = measured_in(tmp_path / "a")
    again = find_study("kerformer").run(WHOLE, tmp_path / "a", minutes=0.0)
    assert again.failures == []
    assert not (tmp_path / "a" / "records.jsonl.xz").exists()
    assert measured_in(tmp_path / "a") == before


def measured_in(folder):
    """The measured records of a run."""
    return [r for r in RecordLog(folder / RECORDS).read() if r.cell != ANALYSIS]


def test_trained_models_go_along(pieces, tmp_path):
    merge([pieces / "a", pieces / "b"], tmp_path / "whole")
    for name in PIECES:
        for file in (pieces / name / "models").rglob("result.json"):
            copy = tmp_path / "whole" / file.relative_to(pieces / name)
            assert copy.read_bytes() == file.read_bytes()
    shutil.copytree(pieces / "a", tmp_path / "c")
    changed = next((tmp_path / "c" / "models").rglob("result.json"))
    changed.write_text("{}")
    merge([pieces / "a", tmp_path / "c"], tmp_path / "first")
    relative = changed.relative_to(tmp_path / "c")
    assert (tmp_path / "first" / relative).read_bytes() == (pieces / "a" / relative).read_bytes()
    (tmp_path / "bare").mkdir()
    for file in ("records.jsonl", "config.json"):
        shutil.copy(pieces / "a" / file, tmp_path / "bare" / file)
    merge([tmp_path / "bare", pieces / "b"], tmp_path / "less")  # records alone are a run too


def test_only_pieces_of_the_same_run_are_merged(pieces, tmp_path):
    other = replace(WHOLE, arena=replace(WHOLE.arena, margin=0.02))
    find_study("kerformer").run(other, tmp_path / "other", minutes=0.0)
    with pytest.raises(UsageError, match=rf"another run than {pieces / 'a'}.*margin.*0.02"):
        merge([pieces / "a", tmp_path / "other"], tmp_path / "whole")
    shutil.copytree(pieces / "b", tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    (tmp_path / "b" / "config.json").write_text(json.dumps({**config, "study": "slim"}))
    with pytest.raises(UsageError, match=rf"{pieces / 'a'} is a run of kerformer, .* one of slim"):
        merge([pieces / "a", tmp_path / "b"], tmp_path / "whole")
    with pytest.raises(UsageError, match="runs of slim are not made of shards"):
        merge([tmp_path / "b", pieces / "a"], tmp_path / "whole")
    data = dict.fromkeys(config["data"], "0")
    (tmp_path / "b" / "config.json").write_text(json.dumps({**config, "data": data}))
    with pytest.raises(UsageError, match="on other data than"):
        merge([pieces / "a", tmp_path / "b"], tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_a_full_disk_leaves_nothing_and_is_told_in_a_line(pieces, tmp_path, monkeypatch):
    def full(source, copy):
        why = f"[Errno 28] No space left on device: '{source}' -> '{copy}'"
        raise shutil.Error([(str(source), str(copy), why)] * 9)

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(DataError, match=r"cannot be copied: \[Errno 28\] No space left on device;"):
        merge([pieces / "a", pieces / "b"], tmp_path / "whole")
    assert not any(tmp_path.iterdir())


def test_what_a_killed_merge_left_goes_with_the_next(pieces, tmp_path):
    left = tmp_path / ".whole.abc.part" / "content" / "models" / "stray"
    left.mkdir(parents=True)
    (tmp_path / ".whole.abc.part" / MARK).write_bytes(MARKED)
    (left / "result.json").write_text("{}")
    merge([pieces / "a", pieces / "b"], tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert not (tmp_path / "whole" / "models" / "stray").exists()


def test_runs_of_the_same_questions_have_the_same_tasks(pieces, tmp_path):
    shutil.copytree(pieces / "b", tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    config["identity"]["tasks"]["arena/imdb"] = {}
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"tasks is .*arena/imdb.* there"):
        merge([pieces / "a", tmp_path / "b"], tmp_path / "whole")


TIMED = CoreOptions(
    variants=("softmax", "kerformer, by content"),
    lengths=(32,),
    ranges=(1.0,),
    range_tokens=16,
    range_memory=False,
    rounds=3,
)


def test_runs_that_were_asked_other_questions_become_one(pieces, tmp_path):
    timed = replace(WHOLE, questions=("cores",), cores=TIMED)
    find_study("kerformer").run(timed, tmp_path / "timed", cells="cores/time/*")
    merged = merge([tmp_path / "timed", pieces / "a", pieces / "b"], tmp_path / "whole")
    assert list(merged.cells.values()) == [1, 3, 3]
    both = replace(WHOLE, questions=("arena", "cores"), cores=TIMED)
    again = find_study("kerformer").run(both, tmp_path / "whole", minutes=0.0)
    assert {r.labels["question"] for r in again.records if r.name == "score"} == {"arena"}
    assert any(r.cell.startswith("cores/time") for r in again.records)
    with pytest.raises(UsageError, match="questions was"):
        find_study("kerformer").run(timed, tmp_path / "whole", minutes=0.0)
    other = replace(both, cores=replace(TIMED, rounds=4))
    find_study("kerformer").run(other, tmp_path / "other", minutes=0.0)
    with pytest.raises(UsageError, match=r"another run than .*cores is .*4"):
        merge([tmp_path / "timed", tmp_path / "other"], tmp_path / "second")
    merge([tmp_path / "other", pieces / "a"], tmp_path / "second")  # what one was not asked


@pytest.mark.parametrize("folders", [("a",), ("a", "a")])
def test_one_folder_is_nothing_to_merge(pieces, tmp_path, folders):
    with pytest.raises(UsageError, match="two folders"):
        merge([pieces / name for name in folders], tmp_path / "whole")


def test_nothing_is_written_over(pieces, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="new folder"):
        merge([pieces / "a", pieces / "b"], tmp_path)
    with pytest.raises(UsageError, match="new folder"):
        merge([pieces / "a", pieces / "b"], tmp_path / "mine.txt")
    with pytest.raises(DataError, match="holds no run"):
        merge([pieces / "a", tmp_path], tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_command_tells_where_cells_came_from(pieces, tmp_path, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["merge", *(str(pieces / n) for n in PIECES), "--output-dir", str(tmp_path / "whole")])
    output = capsys.readouterr().out
    assert f"3 cells of {pieces / 'a'}" in output
    assert "--minutes 0 only evaluates it" in output


def test_questions_that_train_on_one_task_in_their_own_ways_are_joined(pieces, tmp_path):
    for name, question, digest in (("a", "arena", "1"), ("b", "vision", "2")):
        shutil.copytree(pieces / name, tmp_path / name)
        file = tmp_path / name / "config.json"
        config = json.loads(file.read_text())
        del config["identity"]["arena"]  # settings of what is not asked are no part of a run
        config["identity"] |= {"questions": [question], "tasks": {f"{question}/cifar10": {}}}
        config["identity"][question] = {}
        config["data"] = {"cifar10": digest}
        file.write_text(json.dumps(config))
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["data"] == {"arena/cifar10": "1", "vision/cifar10": "2"}


def test_damaged_digests_are_told(pieces, tmp_path):
    shutil.copytree(pieces / "b", tmp_path / "b")
    file = tmp_path / "b" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"data": ["7"]}))
    with pytest.raises(DataError, match=r"data in config.json is not the digests"):
        merge([pieces / "a", tmp_path / "b"], tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


@pytest.mark.usefixtures("_unpainted")
def test_what_is_known_of_machines_goes_along_and_stays(pieces, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(pieces / "b", elsewhere)
    config = json.loads((elsewhere / "config.json").read_text(encoding="utf-8"))
    here, facts = config["machine_id"], {**config["machine"], "accelerator": "a card"}
    config |= {"machine_id": "there", "machine": facts, "machines": {"there": facts}}
    (elsewhere / "config.json").write_text(json.dumps(config), encoding="utf-8")
    records = (elsewhere / "records.jsonl").read_text(encoding="utf-8")
    (elsewhere / "records.jsonl").write_text(records.replace(here, "there"), encoding="utf-8")
    merge([pieces / "a", elsewhere], tmp_path / "whole")
    again = find_study("kerformer").run(WHOLE, tmp_path / "whole", minutes=0.0)
    assert again.config["machines"] == {here: again.config["machine"], "there": facts}
    page = write_report(tmp_path / "whole")["md"].read_text(encoding="utf-8")
    assert "a card" in page
