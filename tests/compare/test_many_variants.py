"""Thirty variants stay readable: by family, the beaten ones grey, names only where they help."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from sparing.compare.page.build import plots
from sparing.compare.page.lineup import MANY_ARMS, lineup
from sparing.compare.page.lookups import accuracy, far_times, others, times
from sparing.compare.page.tables import table_rows
from sparing.core.traits import FAMILIES
from sparing.report.figures.drawing import to_svg
from sparing.report.page import write_report
from tests.compare import records as make
from tests.report.unpainted import unpainted


@pytest.fixture(scope="module")
def full():
    return make.records(make.THIRTY, 3)


@pytest.fixture(scope="module")
def run(full):
    return make.run_of(full, make.thirty())


@pytest.fixture(scope="module")
def arms(run):
    return lineup(run)


@pytest.fixture(scope="module")
def written(full, tmp_path_factory):
    folder = tmp_path_factory.mktemp("thirty")
    make.write_run(folder, make.thirty(), full, 10 * make.GOALS)
    with unpainted():
        files = write_report(folder)
    return files["html"].read_text(), files["md"].read_text()


def texts(plot, narrow=False):
    root = ElementTree.fromstring(to_svg(plot.draw, "one", narrow=narrow))
    return {e.text for e in root.iter() if e.tag.endswith(("}text", "}tspan")) and e.text}


def test_rows_go_by_family_and_then_by_speed(run, arms):
    rows = table_rows(run, arms)
    assert next(row.arm for row in rows) == "softmax"
    assert sorted(row.arm for row in rows) == sorted(make.THIRTY)
    groups = [(f, list(g)) for f, g in itertools.groupby(rows[1:], lambda row: row.family)]
    assert [family for family, _ in groups] == [f for f in FAMILIES if f in make.FAMILIES]
    for _, group in groups:
        ratios = [row.cells["latency"].value for row in group]
        assert ratios == sorted(ratios)


def test_a_beaten_arm_is_beaten_here_and_far_away(run, arms):
    def nowhere_worse(arm, by):
        score = accuracy(run, arm)[0]
        return any(accuracy(run, o)[0] >= score and by[o] <= by[arm] for o in by if o != arm)

    assert arms.beaten
    assert "softmax" not in arms.beaten
    for arm in others(run):
        lost = [nowhere_worse(arm, by) for by in (times(run), far_times(run))]
        assert (arm in arms.beaten) == all(lost), arm
    assert {"linformer", "kerformer"}.isdisjoint(arms.beaten)


def test_few_arms_are_left_as_they_were():
    arms = make.THIRTY[:MANY_ARMS]
    config = make.config(arms, 3, families=dict.fromkeys(arms, "sparse"))
    run = make.run_of(make.records(arms, 3), config)
    rows = table_rows(run, lineup(run))
    assert [row.arm for row in rows] == list(arms)
    assert not any(row.family or row.beaten_by for row in rows)


def test_figures_name_only_what_nothing_beats(run, arms):
    unbeaten = {arm for arm in run.table.arms if arm not in arms.beaten}
    for plot in plots(run, arms):
        named = texts(plot) & set(make.THIRTY)
        assert named <= unbeaten
        assert "softmax" in named
        if plot.name in ("crossover", "memory", "learning"):
            assert named == unbeaten
        assert set(plot.legend) <= unbeaten


def test_grey_lines_are_drawn_though(run, arms):
    drawn = {plot.name: plot for plot in plots(run, arms)}
    figure = drawn["crossover"].draw(*_look())
    lengths = [len(line.get_xdata()) for line in figure.axes[0].lines]
    assert lengths.count(len(make.LENGTHS)) == len(make.THIRTY)


def _look():
    from sparing.report.figures.palette import LIGHT

    return LIGHT, False


def test_points_far_away_do_not_press_the_others_together(run, arms):
    drawn = {plot.name: plot for plot in plots(run, arms)}
    assert "Not shown: " in drawn["pareto"].description
    low, _ = drawn["pareto"].draw(*_look()).axes[0].get_ylim()
    worst = 100 * accuracy(run, "uniform")[0]
    assert worst < low
    assert all(100 * accuracy(run, arm)[0] > low for arm in ("softmax", "kerformer"))


@pytest.mark.usefixtures("_unpainted")
def test_before_any_training_only_as_many_as_fit_have_a_colour(full, tmp_path):
    early = [r for r in full if r.name not in ("accuracy", "accuracy_difference")]
    run = make.run_of(early, make.thirty())
    arms = lineup(run)
    assert arms.beaten == {}
    assert len(run.table.arms) - len(arms.grey) == MANY_ARMS
    far = far_times(run)
    coloured = [far[arm] for arm in others(run) if arm not in arms.grey]
    assert max(coloured) <= min(far[arm] for arm in arms.grey)
    make.write_run(tmp_path, make.thirty(), early)
    assert write_report(tmp_path)["html"].is_file()


def test_coloured_arms_have_colours_of_their_own(run, arms):
    coloured = [arm for arm in run.table.arms if arm not in arms.grey]
    assert sorted(arms.positions[arm] for arm in coloured) == list(range(len(coloured)))


def test_long_tables_are_folded_and_grey_rows_say_why(written):
    html, markdown = written
    for page in written:
        assert "<details><summary>30 rows: 10 met, 10 not met, 10 undecided</summary>" in page
        assert "beaten by softmax" in page
        assert "By family, the fastest of each first." in page
    assert html.count('<tr class="family">') == len(make.FAMILIES)
    assert html.count('<tr class="beaten">') == markdown.count("beaten by")
    assert re.search(r"\| window<br><sub>sparse</sub>", markdown)


@pytest.mark.usefixtures("_unpainted")
def test_a_run_without_families_has_a_page(full, tmp_path):
    config = make.thirty()
    del config["families"]
    make.write_run(tmp_path, config, full)
    assert '<tr class="family">' not in write_report(tmp_path)["html"].read_text()
