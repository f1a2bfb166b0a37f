"""Records as the lines of a chart."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report.figures.chart import lines_of


def record(value, arm, tokens, interval=None):
    labels = {"arm": arm, "tokens": tokens}
    return Record("latency_ms", value, "ms", "measured", labels, interval)


def test_records_are_lines_by_one_label_along_another():
    records = [record(4.0, "a", 64, (3.0, 5.0)), record(2.0, "a", 32), record(None, "a", 16)]
    records.append(record(1.0, "b", 32))
    lines = lines_of(records, "arm", "tokens", 10.0)
    assert lines == {
        "a": [(32.0, 20.0, None), (64.0, 40.0, (30.0, 50.0))],
        "b": [(32.0, 10.0, None)],
    }
    bare = lines_of(records, "arm", "tokens", intervals=False)
    assert bare["a"] == [(32.0, 2.0, None), (64.0, 4.0, None)]
