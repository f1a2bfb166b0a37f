from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

import numpy
import pytest

from sparing.report.figures.drawing import to_svg
from sparing.report.figures.palette import LIGHT
from sparing.report.run import Run
from sparing.slim.page.figures import best, frontier, widths
from sparing.slim.page.lookups import Point, chosen, dense_score, of_kind, same, surveyed, trials
from sparing.slim.page.timed import trials_plot
from tests.slim.records import Story, slim_config, slim_records


def read(records=None):
    return Run(slim_config(), slim_records() if records is None else records, [], [])


def lines_of(plot):
    """The lines of the axes with their points."""
    axes = plot.draw(LIGHT, False).axes[0]
    return [list(zip(*line.get_data(), strict=True)) for line in axes.lines]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("figure", [frontier, widths, trials_plot])
def test_figures_are_drawn_wide_and_narrow(figure, narrow):
    svg = to_svg(figure(read()).draw, "x", narrow=narrow)
    texts = {text.text for text in ElementTree.fromstring(svg).iter() if text.tag.endswith("text")}
    assert any("FLOPs" in (text or "") for text in texts)


def test_the_frontier_holds_exits_depth_random_and_dense():
    run = read()
    plot = frontier(run)
    assert plot.legend == ("early exits", "uniform depth", "random exits", "dense")
    lines = lines_of(plot)
    assert [(100, pytest.approx(100 * dense_score(run)))] in lines
    front = best(of_kind(surveyed(run), "exits"))
    places = [(pytest.approx(100 * p.cost_share), pytest.approx(100 * p.score)) for p in front]
    assert places in lines
    taken = chosen(run)
    ring = (pytest.approx(100 * taken.value), pytest.approx(100 * taken.labels["score"]))
    assert [ring] in lines


def test_the_control_belongs_to_the_plans_of_the_front():
    points = surveyed(read())
    plans = [point.plan for point in best(of_kind(points, "exits"))]
    controls = [p for p in of_kind(points, "random") if any(same(p.plan, plan) for plan in plans)]
    places = sorted((100 * p.cost_share, 100 * p.score) for p in controls)
    drawn = [sorted(line) for line in lines_of(frontier(read())) if len(line) == len(places)]
    assert any(numpy.allclose(line, places) for line in drawn)


@pytest.mark.parametrize(("floor", "shown"), [(0.99, True), (0.3, False)])
def test_the_floor_is_drawn_where_the_axis_reaches_it(floor, shown):
    identity = {**slim_config()["identity"], "floor": floor}
    run = Run(slim_config(identity=identity), slim_records(), [], [])
    texts = [text.get_text() for text in frontier(run).draw(LIGHT, False).axes[0].texts]
    assert any(text.startswith("floor, ") for text in texts) is shown


def test_each_width_has_its_own_line():
    assert widths(read()).legend == ("full width", "width 2/3", "width 1/2")
    one = [r for r in slim_records() if r.labels.get("width") in (None, 1.0)]
    assert widths(read(one)).draw is None


def test_without_records_figures_say_so():
    for figure in (frontier, trials_plot):
        assert "so far" in figure(read([])).missing


def test_trials_ring_the_choice():
    run = read()
    lines = lines_of(trials_plot(run))
    taken = next(t for t in trials(run) if t.labels["cost_share"] == chosen(run).value)
    point = (pytest.approx(100 * taken.labels["cost_share"]), pytest.approx(taken.value))
    assert sum(line == [point] for line in lines) == 2
    assert sum(len(line) == 1 for line in lines) == len(trials(run)) + 1


def test_best_keeps_what_nothing_beats():
    base = results_point()
    cheap = dataclasses.replace(base, cost_share=0.2, score=0.7)
    worse = dataclasses.replace(base, cost_share=0.3, score=0.6)
    good = dataclasses.replace(base, cost_share=0.4, score=0.9)
    assert best([good, worse, cheap]) == [cheap, good]


def results_point() -> Point:
    return surveyed(read())[0]


def test_exits_at_which_nobody_can_leave_do_not_tell_plans_apart():
    plan = next(p.plan for p in of_kind(surveyed(read()), "exits"))
    silent = dataclasses.replace(plan, threshold=1.0)
    assert same(silent, dataclasses.replace(silent, exits=()))
    assert not same(plan, silent)


def test_a_run_of_one_trial_and_no_interval_is_drawn():
    records = [
        dataclasses.replace(r, interval=None) if r.name == "trial_speed" else r
        for r in slim_records(Story(until="choose"))
    ]
    only = next(r for r in records if r.name == "trial_speed")
    remaining = [r for r in records if r.name != "trial_speed" or r is only]
    assert to_svg(trials_plot(read(remaining)).draw, "x", narrow=False)
