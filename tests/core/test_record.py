from __future__ import annotations

import json
import lzma
import math
import os
from dataclasses import replace

import pytest

from sparing.core.compressed import compress_file
from sparing.core.errors import DataError
from sparing.core.record import Record, RecordLog, least_sure


def _one(value=1.5):
    return Record("latency_ms", value, "ms", "measured", {"arm": "softmax"}, (1.0, 2.0), 7)


def test_records_come_back_as_they_went(tmp_path):
    log = RecordLog(tmp_path / "new" / "records.jsonl")
    log.append([_one(), _one(None)])
    log.append([_one(2.5)])
    assert log.read() == [_one_at(log, 0), _one_at(log, 1), _one_at(log, 2)]
    assert [entry.value for entry in log.read()] == [1.5, None, 2.5]
    assert log.read()[0].interval == (1.0, 2.0)


def _one_at(log, index):
    return log.read()[index]


def test_a_torn_last_line_is_ignored_and_then_cut_off(tmp_path):
    log = RecordLog(tmp_path / "records.jsonl")
    log.append([_one()])
    with log.path.open("a") as file:
        file.write('{"name": "latency_ms", "val')
    assert len(log.read()) == 1
    log.append([_one(2.0)])
    assert [entry.value for entry in log.read()] == [1.5, 2.0]


def test_a_foreign_line_is_named(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"hello": 1}\n')
    with pytest.raises(DataError, match="line 1 is not a record"):
        RecordLog(path).read()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.1e30, -1e308, 10**31, 10**400])
def test_a_number_that_could_not_be_read_back_is_refused(value):
    for spoilt in (_one(value), replace(_one(), labels={"tokens": value})):
        with pytest.raises(DataError, match=r"cannot be stored: its (value|label tokens) is "):
            spoilt.to_json()


@pytest.mark.parametrize("spoilt", [{"interval": (2.0, 1.0)}, {"count": -1}, {"count": 10**31}])
def test_a_record_that_is_none_is_refused_when_written(spoilt):
    with pytest.raises(DataError, match="cannot be stored"):
        replace(_one(), **spoilt).to_json()


@pytest.mark.parametrize(
    "spoilt",
    [
        *({"interval": (2.0, 1.0)}, {"interval": (1.0, 1e31)}, {"interval": (1.0,)}),
        *({"count": -1}, {"count": 10**31}, {"count": 1.5}, {"time": 3}, {"labels": []}),
        *({"labels": {"arm": ["x"]}}, {"labels": {"tokens": 1e31}}, {"name": None}, {"cell": 1}),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, spoilt):
    path = tmp_path / "records.jsonl"
    line = json.dumps({**json.loads(_one().to_json()), **spoilt})
    path.write_text(f"{_one().to_json()}\n{line}\n")
    with pytest.raises(DataError, match="line 2 is not a record"):
        RecordLog(path).read()


def test_a_pipe_in_place_of_records_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "records.jsonl")
    with pytest.raises(DataError, match="not a plain file"):
        RecordLog(tmp_path / "records.jsonl").read()


@pytest.mark.parametrize("spoilt", ["NaN", "Infinity", '"fast"', "[1]", "1e31", "9" * 400])
def test_a_line_with_a_number_that_is_none_is_named(tmp_path, spoilt):
    log = RecordLog(tmp_path / "records.jsonl")
    log.append([_one(), _one(3.25)])
    log.path.write_text(log.path.read_text().replace("3.25", spoilt))
    with pytest.raises(DataError, match="line 2 is not a record"):
        log.read()


def test_compressed_records_are_read_and_unpacked_when_more_come(tmp_path):
    log = RecordLog(tmp_path / "records.jsonl")
    log.append([_one(), _one(2.0)])
    compress_file(log.path)
    assert [entry.value for entry in log.read()] == [1.5, 2.0]
    log.append([_one(3.0)])
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]
    assert [entry.value for entry in log.read()] == [1.5, 2.0, 3.0]
    compress_file(log.path)
    log.replace([_one(4.0)])
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]
    assert [entry.value for entry in log.read()] == [4.0]


@pytest.mark.parametrize("whole", [True, False])
def test_foreign_content_in_a_compressed_file_is_named(tmp_path, whole):
    path = tmp_path / "records.jsonl.xz"
    more = b'{"hello": 1}\n' if whole else b'{"name": "lat'
    path.write_bytes(lzma.compress(_one().to_json().encode() + b"\n" + more))
    message = "is not a record" if whole else "is cut short"
    with pytest.raises(DataError, match=rf"records\.jsonl\.xz: line 2 {message}"):
        RecordLog(tmp_path / "records.jsonl").read()


def test_records_that_are_there_twice_and_differ_are_not_added_to(tmp_path):
    log = RecordLog(tmp_path / "records.jsonl")
    log.append([_one()])
    compress_file(log.path)
    log.path.write_text(_one(2.0).to_json() + "\n")
    for call in (log.read, lambda: log.append([_one()]), lambda: log.replace([_one()])):
        with pytest.raises(DataError, match="differ: move the one that is wrong away"):
            call()
    assert len(list(tmp_path.iterdir())) == 2


def test_what_follows_is_as_sure_as_the_least_sure_record():
    ways = ["measured", "integrated", "estimated", "modelled", "paper"]
    records = [replace(_one(), obtained=way) for way in ways]
    assert [least_sure(records[:count]) for count in range(1, 6)] == ways
    assert least_sure(records[:0]) == "measured"
    assert least_sure(records[2::-1]) == "estimated"
