"""The frontier in time: every measured plan with both intervals, and the one that is served."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from sparing.core.record import Record
from sparing.layers.plan import Plan
from sparing.report.figures.drawing import to_svg
from sparing.report.figures.palette import LIGHT
from sparing.report.run import Run
from sparing.slim.page.build import build
from sparing.slim.page.timed import measured, measured_block, measured_plot
from tests.slim.records import goals, slim_config, slim_records

SPEEDS = ((2.9, 3.1), (1.4, 1.6), (2.0, 2.2))


def results(*extra):
    return Run(slim_config(), [*slim_records(), *extra], goals(), [])


def front():
    made = []
    for number, speed in enumerate(SPEEDS):
        plan = Plan((4 + number,) * 4, (768,) * 4, exits=(2,), threshold=0.9)
        labels = {"plan": json.dumps(plan.to_dict()), "cost_share": 0.2 + 0.1 * number}
        gap = (-0.01 - 0.002 * number, 0.004)
        made += [
            Record("front_speed_up", sum(speed) / 2, "ratio", "measured", labels, speed, 1821),
            Record("front_score", 0.915, "score", "measured", labels, count=1821),
            Record("front_difference", sum(gap) / 2, "score", "measured", labels, gap, 1821),
        ]
    return made


def test_before_anything_was_measured_nothing_is_drawn():
    assert measured_plot(results()).missing
    assert measured_block(results()) == []


def test_the_slowest_comes_first_and_the_served_one_is_among_them():
    pairs = measured(results(*front()))
    values = [speed.value for speed, _ in pairs]
    assert values == sorted(values)
    assert [speed.name for speed, _ in pairs].count("speed_up") == 1
    assert len(pairs) == len(SPEEDS) + 1


def test_every_plan_is_a_row_with_both_intervals():
    (block,) = measured_block(results(*front()))
    assert len(block.rows) == len(SPEEDS)
    slowest = block.rows[0]
    assert "5 heads and 768 neurons; exits after layer 2 at confidence above 0.9" in slowest[0]
    assert slowest[1:4] == (
        "30 %",
        "1.50\N{MULTIPLICATION SIGN} faster",
        "1.40\N{EN DASH}1.60\N{MULTIPLICATION SIGN}",
    )
    assert "1,821 test inputs" in block.explain


@pytest.mark.parametrize("narrow", [False, True])
def test_the_figure_holds_every_plan_and_dense(narrow):
    plot = measured_plot(results(*front()))
    axes = plot.draw(LIGHT, narrow).axes[0]
    points = [
        tuple(float(v[0]) for v in line.get_data())
        for line in axes.lines
        if len(line.get_xdata()) == 1
    ]
    assert (1.0, 0.0) in points
    for speed in SPEEDS:
        assert any(x == pytest.approx(sum(speed) / 2) for x, _ in points)
    assert len(axes.collections) == 2 * (len(SPEEDS) + 1)
    svg = to_svg(plot.draw, "x", narrow=narrow)
    texts = [
        text.text or "" for text in ElementTree.fromstring(svg).iter() if text.tag.endswith("text")
    ]
    assert any("faster" in text for text in texts)


def test_plans_far_below_stand_in_the_table_alone():
    made = front()
    far = replace(made[2], value=-0.3, interval=(-0.32, -0.28))
    run = results(*made[:2], far, *made[3:])
    assert "Not shown: 1 plan far below" in measured_plot(run).description
    axes = measured_plot(run).draw(LIGHT, False).axes[0]
    assert axes.get_ylim()[0] > -10
    assert len(axes.collections) == 2 * len(SPEEDS)
    assert len(measured_block(run)[0].rows) == len(SPEEDS)


def test_page_and_markdown_show_it():
    made = build(results(*front()))
    page, markdown = made.html, made.markdown
    for text in (page, markdown):
        assert "The frontier in time" in text
    page = build(results()).html
    assert "The frontier in time" not in page
