"""Records as the lines of a chart."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sparing.core.record import Record
from sparing.report.figures.chart import Scales, lines_of, lines_plot
from sparing.report.figures.palette import LIGHT


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


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("lengths", [[2**k for k in range(9, 17)], [1024, 2048, 3072, 4096]])
def test_labels_of_lengths_do_not_run_into_each_other(lengths, narrow):
    line = [(float(length), length / 512, None) for length in lengths]
    scales = Scales("tokens", "Seconds", log_x=True)
    plot = lines_plot("time", "Time", "Time by length.", {"softmax": line}, {"softmax": 0}, scales)
    figure = plot.draw(LIGHT, narrow)
    FigureCanvasAgg(figure).draw()
    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) >= 3
    assert labels[0].get_text() == f"{lengths[0]:,}"
    assert all(right.x0 - left.x1 > 2 for left, right in pairwise(boxes))
