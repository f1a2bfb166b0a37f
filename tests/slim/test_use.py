"""The first sentences of the page: what is certified, of which form, how fast, and how sure."""

from __future__ import annotations

import dataclasses

import pytest

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.slim.page.build import answer
from sparing.slim.page.verdict import verdict
from sparing.slim.promise import form_name, form_words, guarantee, promise_of
from tests.slim.records import (
    BOLD,
    CUT,
    DENSE,
    NOTHING,
    ONE,
    REFERENCE,
    UNLABELLED,
    Story,
    run_of,
    slim_records,
)

BUSY = "other programs kept 1.8 of 2 processors busy"


@pytest.mark.parametrize("story", [Story(), ONE, UNLABELLED])
def test_the_guarantee_stands_first_with_the_speed_over_the_best_dense_form(story):
    first = verdict(run_of(story))
    assert first.lead == (
        "At least 95 % of inputs like these get the dense model's answer, "
        "certified with 95 % confidence"
    )
    assert "the slim model in ONNX Runtime, INT8; an input exits" in first.because
    assert "the dense model answers the rest" in first.because
    assert (
        "2.3× faster (2.2–2.4×) than the best dense form that keeps as much: dense, OpenVINO"
        in (first.because)
    )
    assert first.second[0].startswith("Of 436 calibration inputs 9 got another answer")
    assert "not correctness" in first.second[0]


def test_a_dense_form_that_is_served_is_named_with_its_engine():
    first = verdict(run_of(DENSE))
    assert first.lead.startswith("Keep the dense model, in bfloat16 with OpenVINO: at least 95 %")
    assert "1.80× faster (1.73–1.87×) than the fastest dense form in float32" in first.because
    assert "not correctness" in first.second[0]


def test_where_nothing_is_certified_the_dense_model_is_kept_and_nothing_is_promised():
    first = verdict(run_of(NOTHING))
    assert first.lead == "Keep the dense model"
    assert "No faster form is certified to keep 95 %" in first.because
    assert "fastest engine: ONNX Runtime" in first.because
    assert "%" not in first.lead
    assert first.second[0].startswith("Not certified, but as near")


@pytest.mark.parametrize(
    ("story", "meant"), [(Story(), "not correctness"), (NOTHING, "the same answers")]
)
def test_the_answer_says_what_it_means(story, meant):
    text = answer(run_of(story))
    assert text.startswith(verdict(run_of(story)).lead)
    assert meant in text


@pytest.mark.parametrize(("speed", "noisy"), [(3.45, True), (4.2, False)])
def test_a_runner_up_within_noise_is_named(speed, noisy):
    """It is slim in bfloat16, at a speed of 3.4."""
    said = [s for s in verdict(run_of(Story(speed=speed))).second if "within noise" in s]
    assert bool(said) is noisy
    assert all("slim, OpenVINO bfloat16 has 3.40× (3.26 to 3.54)" in text for text in said)


def test_a_runner_up_that_changes_too_much_does_not_count():
    """Slim in INT8 without exits is as fast, but changes 7 %."""
    said = [s for s in verdict(run_of(Story(speed=3.6))).second if "within noise" in s]
    assert len(said) == 1
    assert "slim, OpenVINO bfloat16" in said[0]


def test_a_form_that_is_certified_for_larger_shares_alone_does_not_count():
    """It is as fast as the served one, and certified at 8 %."""
    assert not any("within noise" in said for said in verdict(run_of(CUT)).second)


def test_no_direction_is_claimed_where_the_interval_holds_one():
    because = verdict(run_of(Story(speed=1.81))).because
    assert "neither clearly faster nor slower (0.97–1.05×) than" in because


def test_a_busy_machine_decides_no_speed():
    run = run_of()
    load = Record("machine_load", 0.4, "share", "measured", {"disturbance": BUSY})
    cells = {record.cell for record in run.records if record.name == "served_speed_up"}
    more = [dataclasses.replace(load, cell=cell) for cell in cells]
    first = verdict(dataclasses.replace(run, records=[*run.records, *more]))
    assert first.lead.startswith("At least 95 %")  # the guarantee needs no times
    assert "not decided: the machine was busy" in first.because
    assert "faster" not in first.because


@pytest.mark.parametrize("until", ["dense", "survey", "candidates"])
def test_before_the_certificate_there_is_no_verdict(until):
    first = verdict(run_of(Story(until=until)))
    assert first.lead == "No verdict yet"
    assert "nothing is certified" in first.because


def test_certified_but_not_tested_says_so():
    first = verdict(run_of(Story(until="certify")))
    assert first.lead.startswith("At least 95 %")
    assert "not been timed on test inputs" in first.because


@pytest.mark.parametrize("label", ["epsilon", "delta", "disagreements", "arm", "threshold"])
def test_a_promise_without_a_label_is_one_line(label):
    seen = next(r for r in slim_records() if r.name == "disagreement")
    torn = dataclasses.replace(seen, labels={k: v for k, v in seen.labels.items() if k != label})
    with pytest.raises(DataError, match=f"'disagreement'.*'{label}'"):
        promise_of(RecordTable([torn]))


def test_goals_are_named_with_their_verdicts():
    assert verdict(run_of()).second[-1] == (
        "Goals: speed over the best dense form, batch 1: met; answers of the dense model kept: met."
    )


def test_forms_have_their_engine_and_precision_in_words():
    assert form_name(BOLD) == "slim, ONNX Runtime INT8, exits above 0.9, then dense"
    assert form_words(REFERENCE) == "the dense model in ONNX Runtime, float32"
    between = dataclasses.replace(BOLD, second=0.6)
    assert form_name(between).endswith("exits above 0.9, then dense INT8 above 0.6, then dense")
    assert form_words(between).endswith(
        "is above 0.9; the others go to the dense model in INT8, and where its largest "
        "probability is at most 0.6, to the one in float32"
    )


def test_shares_have_the_digits_that_were_asked_for():
    promise = promise_of(RecordTable(slim_records()))
    lead, _ = guarantee(dataclasses.replace(promise, epsilon=0.005, delta=0.01))
    assert "99.5 %" in lead
    assert "99 % confidence" in lead
