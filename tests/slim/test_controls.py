"""The static pruned model and the whole test split on the page of slim."""

from __future__ import annotations

import json

import pytest

from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report.run import Run
from sparing.slim.page.build import build
from sparing.slim.page.controls import control_blocks
from tests.slim.records import goals, slim_config, slim_records

PLAN = Plan((6,) * 4, (768,) * 4)


def beside(speed, gap, batch=1):
    labels = {"arm": "slim", "batch": batch, "metric": "accuracy"}
    return [
        Record("static_speed_up", sum(speed) / 2, "ratio", "measured", labels, speed, 1821),
        Record("static_difference", sum(gap) / 2, "score", "measured", labels, gap, 1821),
    ]


def results(*measured):
    labels = {"arm": "static", "plan": json.dumps(PLAN.to_dict())}
    fixed = Record("static_plan", 0.33, "share", "measured", labels)
    return Run(slim_config(), [*slim_records(), fixed, *measured], goals(), [])


def whole(arm, metric, value, interval=None):
    labels = {"arm": arm, "metric": metric, "split": "test"}
    score = Record("whole_score", value, "score", "measured", labels, count=10000)
    gap = Record("whole_difference", value - 0.9, "score", "measured", labels, interval, 10000)
    return [score, gap] if interval else [score]


def test_nothing_is_said_before_anything_was_measured():
    assert control_blocks(Run(slim_config(), slim_records(), [], [])) == []
    assert control_blocks(results()) == []


@pytest.mark.parametrize(
    ("speed", "gap", "verdict"),
    [
        ((1.1, 1.3), (0.001, 0.009), "slim is better"),
        ((1.1, 1.3), (-0.004, 0.009), "slim is better"),
        ((0.7, 0.8), (-0.004, 0.009), "the static model is better"),
        ((0.9, 1.1), (-0.004, 0.009), "no clear difference"),
        ((1.1, 1.3), (-0.009, -0.004), "one is faster, the other more accurate"),
    ],
)
def test_the_verdict_on_adapting_follows_from_both_intervals(speed, gap, verdict):
    (block,) = control_blocks(results(*beside(speed, gap)))
    assert block.title == f"Slim and the static pruned model: {verdict}"
    assert "4 layers of 6 heads and 768 neurons" in block.explain
    assert block.rows[0][0] == "1"


def test_scores_on_all_of_the_test_split_are_shown_beside_the_baselines():
    records = [
        *whole("dense", "accuracy", 0.9),
        *whole("slim", "accuracy", 0.897, (-0.0055, -0.0005)),
        *whole("slim int8", "f1", 0.9, (-0.004, 0.004)),
    ]
    (block,) = control_blocks(results(*records))
    assert [row[0] for row in block.rows] == ["dense", "slim", "slim INT8, f1"]
    assert block.rows[0][2] == "baseline"
    assert "10,000 test inputs" in block.explain


def test_page_and_twin_hold_both():
    records = [*beside((1.1, 1.3), (0.001, 0.009)), *whole("dense", "accuracy", 0.9)]
    made = build(results(*records))
    page, twin = made.html, made.markdown
    for text in (page, twin):
        assert "slim is better" in text
        assert "On the whole test split" in text


def test_memory_is_held_against_the_dense_form_of_the_same_engine():
    sizes = {("dense", "eager"): 100, ("slim", "eager"): 60, ("slim", "onnxruntime"): 80}
    records = [
        Record(name, scale * size, "bytes", "measured", labels | {"batch": 8})
        for (arm, engine), size in sizes.items()
        for labels in [{"arm": arm, "engine": engine}]
        for name, scale in (("peak_bytes", 2**20), ("weight_bytes", 2**21))
    ]
    (block,) = control_blocks(results(*records))
    assert [row[2] for row in block.rows] == ["baseline", "\u221240 %", ""]
    assert block.rows[1][1].replace("\u00a0", " ") == "60.0 MiB"
    assert "batch of 8 test inputs" in block.explain
