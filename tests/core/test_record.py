from __future__ import annotations

import math

import pytest

from sparing.core.errors import DataError
from sparing.core.record import Record, RecordLog


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


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        _one(math.nan).to_json()


@pytest.mark.parametrize("spoilt", ["NaN", "Infinity", '"fast"', "[1]"])
def test_a_line_with_a_number_that_is_none_is_named(tmp_path, spoilt):
    log = RecordLog(tmp_path / "records.jsonl")
    log.append([_one(), _one(3.25)])
    log.path.write_text(log.path.read_text().replace("3.25", spoilt))
    with pytest.raises(DataError, match="line 2 is not a record"):
        log.read()
