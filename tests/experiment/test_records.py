"""The look-up of a run's records."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.experiment.records import RecordTable


def record(value, **labels):
    return Record("score", value, "share", "measured", labels)


def test_an_exact_record_has_no_further_labels():
    table = RecordTable([record(0.5, arm="a"), record(0.7, arm="a", stage="warm")])
    assert table.exact("score", arm="a").value == 0.5
    assert table.exact("score", arm="a", stage="warm").value == 0.7
    assert table.exact("score", stage="warm") is None
    assert RecordTable([record(None, arm="a")]).exact("score", arm="a") is None


def test_values_of_a_label_are_those_of_records_with_the_others():
    records = [record(0.1, arm="b", task="x"), record(0.2, arm="a", task="x")]
    records += [record(0.3, arm="b", task="y"), record(0.4, task="y"), record(None, arm="c")]
    table = RecordTable(records)
    assert table.values_of("score", "arm") == ["b", "a"]
    assert table.values_of("score", "arm", task="y") == ["b"]
