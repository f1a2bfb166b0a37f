"""The figures of the page of ``slim``: speed against changes, and the survey."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from sparing.report.figures.drawing import to_svg
from sparing.report.figures.palette import LIGHT
from sparing.slim.page.cuts import nearest, survey_plot
from sparing.slim.page.frontier import frontier_plot
from sparing.slim.page.lookups import chosen, number_of, surveyed
from tests.slim import records as make
from tests.slim.records import FORMS, NOTHING, ONE, STATIC, Story, numbers, run_of


def texts_of(plot, *, narrow=False):
    svg = to_svg(plot.draw, "x", narrow=narrow)
    texts = [e.text or "" for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("text")]
    return {" ".join(text.split()) for text in texts}


def points_of(plot, sign=None):
    """The single points on the axes, of one marker or of all."""
    lines = plot.draw(LIGHT, False).axes[0].lines
    single = [line for line in lines if len(line.get_xdata()) == 1]
    single = [line for line in single if sign is None or line.get_markerfacecolor() == sign]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in single]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("story", [Story(), ONE, NOTHING])
def test_both_are_drawn_wide_and_narrow(story, narrow):
    run = run_of(story)
    assert "answers changed on test inputs" in texts_of(frontier_plot(run), narrow=narrow)
    assert "chosen" in texts_of(survey_plot(run), narrow=narrow)


def test_every_tested_form_is_a_point_by_its_changes_and_speed():
    story = Story()
    points = points_of(frontier_plot(run_of(story)))
    for form in make.tested(story):
        speed, share = numbers(form, story)
        assert (pytest.approx(100 * share), pytest.approx(speed)) in points


def test_certified_forms_are_ringed_and_named_with_their_shares():
    plot = frontier_plot(run_of())
    rings = points_of(plot, "none")
    assert sorted(rings) == [
        (pytest.approx(0.4), pytest.approx(1.8)),
        (pytest.approx(2.1), pytest.approx(4.2)),
        (pytest.approx(2.7), pytest.approx(3.4)),
    ]
    texts = texts_of(plot)
    assert "OpenVINO, at most 3 %" in texts
    assert "ONNX Runtime, at most 5 and 8 %" in texts
    assert points_of(frontier_plot(run_of(NOTHING)), "none") == []


def test_a_form_far_off_is_left_out_and_counted():
    run = run_of()
    far = [
        dataclasses.replace(r, value=0.3)
        if r.name == "agreement" and r.labels["arm"] == STATIC.model
        else r
        for r in run.records
    ]
    plot = frontier_plot(dataclasses.replace(run, records=far))
    assert "Not shown: 1 form with more than 20 % changed" in plot.description
    assert max(x for x, _ in points_of(plot)) < 20


def test_models_and_precisions_have_their_own_signs():
    names = frontier_plot(run_of()).legend
    assert set(names) == {
        *(f"{form.model}, {form.precision}".replace("int8", "INT8") for form in FORMS),
        "static, INT8",
    }


def test_the_survey_rings_the_chosen_plan():
    run = run_of()
    record = chosen(run)
    ring = (100 * record.value, number_of(record, "divergence"))
    assert points_of(survey_plot(run), "none") == [pytest.approx(ring)]
    assert survey_plot(run).legend == ("uniform depth", "early exits", "random exits")


def test_the_front_of_fixed_plans_is_the_one_that_plans_are_chosen_from():
    points = [point for point in surveyed(run_of()) if point.kind == "depth"]
    front = nearest(points)
    assert 2 < len(front) < len(points)
    for cheap, near in pairwise(front):
        assert cheap.cost_share < near.cost_share
        assert cheap.divergence > near.divergence
    beaten = [p for p in points if p not in front]
    assert all(
        any(f.cost_share <= p.cost_share and f.divergence <= p.divergence for f in front)
        for p in beaten
    )


def test_a_divergence_of_zero_is_drawn():
    run = run_of()
    none = [
        dataclasses.replace(r, labels={**r.labels, "divergence": 0.0})
        if r.name == "frontier_score"
        else r
        for r in run.records
    ]
    assert texts_of(survey_plot(dataclasses.replace(run, records=none)))


@pytest.mark.parametrize(("figure", "until"), [(frontier_plot, "choose"), (survey_plot, "distil")])
def test_before_its_step_a_figure_says_so(figure, until):
    assert "so far" in figure(run_of(Story(until=until))).missing
