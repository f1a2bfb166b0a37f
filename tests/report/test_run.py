from __future__ import annotations

import json
import os
import stat

import pytest

from sparing.core.errors import DataError
from sparing.report.page import write_report
from sparing.report.run import clean, read_run
from tests.compare import records as make


@pytest.fixture
def folder(tmp_path):
    arms = ("softmax", "linear")
    return make.write_run(tmp_path / "run", make.config(arms, 1), make.records(arms, 1), [], [])


def test_everything_is_read(folder):
    run = read_run(folder)
    assert run.config["arms"] == ["softmax", "linear"]
    assert len(run.records) == len(make.records(("softmax", "linear"), 1))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", ""),
        ("config.json", '{"arms": ["softmax"'),
        ("config.json", "[]"),
        ("config.json", "{}"),
        ("config.json", '{"arms": "softmax", "baseline": "softmax"}'),
        ("config.json", '{"arms": [], "baseline": "softmax"}'),
        ("config.json", '{"arms": ["softmax"]}'),
        ("config.json", '{"arms": ["softmax"], "baseline": "softmax", "task": 3}'),
        ("config.json", "\udcff\udcfe"),
        ("records.jsonl", "[1]\n"),
        ("records.jsonl", "null\n"),
        ("records.jsonl", "not json\n"),
        ("records.jsonl", '{"name": "accuracy"}\n'),
        ("records.jsonl", '{"name": 3, "value": 1, "unit": "", "obtained": "measured"}\n'),
        ("records.jsonl", '{"name": "a", "value": "1", "unit": "", "obtained": "measured"}\n'),
        (
            "records.jsonl",
            '{"name": "a", "value": 1, "unit": "", "obtained": "measured", "interval": [1]}\n',
        ),
        (
            "records.jsonl",
            '{"name": "a", "value": 1, "unit": "", "obtained": "measured", "labels": []}\n',
        ),
        ("config.json", '{"arms": ["a"], "baseline": "a", "claims": 3}'),
        ("goals.json", "[]"),
        ("goals.json", '{"goals": 3}'),
        ("failed.json", "{}"),
        ("failed.json", "[3]"),
    ],
)
def test_a_damaged_file_gives_one_clear_line(folder, name, content):
    (folder / name).write_bytes(content.encode(errors="surrogateescape"))
    before = sorted(folder.iterdir())
    with pytest.raises(DataError) as error:
        write_report(folder)
    assert name in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(folder.iterdir()) == before


def test_a_foreign_or_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"is not a run: it has no config\.json"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="is not a run"):
        write_report(tmp_path / "missing")


def test_a_folder_in_place_of_a_file_is_refused(folder):
    (folder / "records.jsonl").unlink()
    (folder / "records.jsonl").mkdir()
    with pytest.raises(DataError, match=r"records\.jsonl"):
        write_report(folder)


@pytest.mark.parametrize("name", ["config.json", "records.jsonl", "goals.json", "failed.json"])
@pytest.mark.parametrize("put", ["pipe", "folder", "device", "socket"])
def test_what_is_no_file_is_refused_and_never_waited_for(folder, name, put):
    path = folder / name
    path.unlink(missing_ok=True)
    if put == "pipe":
        os.mkfifo(path)
    elif put == "folder":
        path.mkdir()
    elif put == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    with pytest.raises(DataError):
        write_report(folder)


def test_a_torn_last_line_is_left_out(folder):
    whole = len(read_run(folder).records)
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"name": "acc')
    assert len(read_run(folder).records) == whole


@pytest.mark.parametrize(
    "spoilt", [{"value": float("nan")}, {"interval": [1.0]}, {"commit": 5}, {"machine": ["x"]}]
)
def test_a_record_that_no_run_wrote_is_refused(folder, spoilt):
    line = {"name": "latency_ms", "value": 1.0, "unit": "ms", "obtained": "measured"}
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps({**line, **spoilt}) + "\n")
    with pytest.raises(DataError, match=r"line \d+ is not a record"):
        read_run(folder)


@pytest.mark.parametrize("spoilt", [{"value": 1e200}, {"interval": [None, 1]}, {"target": []}])
def test_a_goal_with_a_number_that_is_none_is_named(folder, spoilt):
    goal = {"name": "faster", "target": 1.0, "value": 2.0, "interval": [1.5, 2.5], **spoilt}
    content = json.dumps({"goals": [goal]})
    (folder / "goals.json").write_text(content)
    with pytest.raises(DataError, match="'faster' has a number that is none"):
        read_run(folder)


def test_text_loses_what_would_break_a_page():
    broken = {"a\x00": ["b\ud800", "\u202eevil", "c\nd\te", "\ufffe"]}
    mended = {"a\ufffd": ["b\ufffd", "\ufffdevil", "c\nd\te", "\ufffd"]}
    assert clean(broken) == mended
