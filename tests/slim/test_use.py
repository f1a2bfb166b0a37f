"""The form to use: the fastest that is shown to keep the floor, and dense where none is."""

from __future__ import annotations

import pytest
from sparing.slim.choices import choices, kept_share, recommended

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.slim.page.use import use_blocks, verdict
from tests.slim.records import Story
from tests.slim.test_page import read

DENSE_SCORE = 0.8


def _form(arm, engine, speed, gap=None, cell="verify"):
    """A timed form, its difference to dense with its 90 % interval."""
    labels = {"arm": arm, "engine": engine, "batch": 1}
    made = [Record("latency_ms", 5.0, "ms", "measured", {**labels, "of": "mean"}, cell=cell)]
    if speed is not None:
        ends = (0.98 * speed, 1.02 * speed)
        made.append(Record("speed_up", speed, "ratio", "measured", labels, ends, cell=cell))
    if gap is not None:
        scored = {"arm": arm, "primary": True}
        value, interval = gap
        made.append(Record("whole_score", DENSE_SCORE + value, "share", "measured", scored))
        made.append(Record("whole_difference", value, "share", "measured", scored, interval))
    return made


def _listed(*forms, floor=0.99, more=()):
    records = [record for form in forms for record in form]
    return choices(RecordTable([*records, *more]), 1, floor)


DENSE = _form("dense", "onnxruntime", None) + _form("dense", "eager", 0.6)
SLIM = _form("slim", "onnxruntime", 2.0, (0.0, (-0.004, 0.004)))


def test_the_fastest_form_that_keeps_the_floor_is_recommended():
    int8 = _form("slim int8", "onnxruntime", 4.0, (-0.02, (-0.03, -0.01)))
    listed = _listed(DENSE, SLIM, int8)
    assert [(choice.arm, choice.keeps) for choice in listed] == [
        ("slim int8", False),
        ("slim", True),
        ("dense", True),
    ]
    assert recommended(listed).arm == "slim"


@pytest.mark.parametrize("gap", [None, (0.0, (-0.02, 0.02)), (-0.1, (-0.2, -0.05))])
def test_dense_is_kept_where_nothing_faster_is_shown_to_keep_the_floor(gap):
    listed = _listed(DENSE, _form("slim", "onnxruntime", 2.0, gap))
    assert recommended(listed).arm == "dense"


def test_a_form_slower_than_dense_is_not_recommended():
    slow = _form("slim", "onnxruntime", 0.9, (0.0, (-0.001, 0.001)))
    assert recommended(_listed(DENSE, slow)).arm == "dense"


def test_a_model_stands_in_its_fastest_engine():
    listed = _listed(DENSE, SLIM, _form("slim", "eager", 1.2))
    assert [(choice.arm, choice.engine) for choice in listed] == [
        ("slim", "onnxruntime"),
        ("dense", "onnxruntime"),
    ]


def test_a_busy_machine_recommends_nothing():
    load = Record(
        "machine_load", 0.4, "share", "measured", {"disturbance": "other programs"}, cell="verify"
    )
    assert recommended(_listed(DENSE, SLIM, more=[load])) is None


def test_the_share_kept_is_of_the_dense_score():
    estimate = kept_share(
        RecordTable(_form("slim", "eager", 1.0, (-0.008, (-0.016, 0.008)))), "slim"
    )
    assert estimate.value == pytest.approx(0.99)
    assert estimate.interval == pytest.approx((0.98, 1.01))


def test_the_page_leads_with_it():
    results = read()
    (block,) = use_blocks(results)
    arms = {row[0].partition(",")[0]: row for row in block.rows}
    assert {"dense", "slim"} <= set(arms)
    assert arms["dense"][3] == "yes"
    first = verdict(results)
    assert first.lead.startswith(("Use ", "Keep "))
    assert first.second[0].startswith(("Target reached", "The target", "Whether the target"))


def test_before_forms_were_timed_the_target_alone_is_said():
    results = read(Story(until="choose"))
    assert use_blocks(results) == []
    assert verdict(results).lead == "No verdict yet"


def test_records_without_their_labels_are_no_form_and_no_crash():
    bare = [
        Record("latency_ms", 5.0, "ms", "measured", {"arm": "slim", "batch": 1}),
        Record("whole_score", 0.8, "share", "measured", {"arm": "slim"}),
        Record("speed_up", 2.0, "ratio", "measured", {"arm": "slim", "batch": 1}),
    ]
    (slim, dense) = _listed(DENSE, more=bare)
    assert (slim.arm, slim.engine, slim.kept_share, slim.keeps) == (
        "slim",
        "None",
        None,
        "undecided",
    )
    assert recommended([slim, dense]).arm == "dense"
