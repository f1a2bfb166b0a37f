"""Thirty arms stay readable: by family, the beaten ones grey, names only where they help."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from sparing.compare.page.figures import plots
from sparing.compare.page.results import MANY_ARMS, Results
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
def results(full):
    return Results(full, make.thirty())


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


def test_rows_go_by_family_and_then_by_speed(full):
    rows = table_rows(full, make.thirty())
    assert next(row.arm for row in rows) == "softmax"
    assert sorted(row.arm for row in rows) == sorted(make.THIRTY)
    groups = [(f, list(g)) for f, g in itertools.groupby(rows[1:], lambda row: row.family)]
    assert [family for family, _ in groups] == [f for f in FAMILIES if f in make.FAMILIES]
    for _, group in groups:
        ratios = [row.cells["latency"].value for row in group]
        assert ratios == sorted(ratios)


def test_a_beaten_arm_is_beaten_here_and_far_away(results):
    def nowhere_worse(arm, times):
        own = results.accuracy(arm)[0]
        return any(
            results.accuracy(o)[0] >= own and times[o] <= times[arm] for o in times if o != arm
        )

    assert results.beaten
    assert "softmax" not in results.beaten
    for arm in results.others:
        lost = [nowhere_worse(arm, times) for times in (results.times(), results.far_times())]
        assert (arm in results.beaten) == all(lost), arm
    assert {"linformer", "kerformer"}.isdisjoint(results.beaten)


def test_few_arms_are_left_as_they_were():
    arms = make.THIRTY[:MANY_ARMS]
    config = make.config(arms, 3, families=dict.fromkeys(arms, "sparse"))
    rows = table_rows(make.records(arms, 3), config)
    assert [row.arm for row in rows] == list(arms)
    assert not any(row.family or row.beaten_by for row in rows)


def test_figures_name_only_what_nothing_beats(results):
    kept = {arm for arm in results.arms if arm not in results.beaten}
    for plot in plots(results):
        named = texts(plot) & set(make.THIRTY)
        assert named <= kept
        assert "softmax" in named
        if plot.name in ("crossover", "memory", "learning"):
            assert named == kept
        assert set(plot.legend) <= kept


def test_grey_lines_are_drawn_though(results):
    drawn = {plot.name: plot for plot in plots(results)}
    figure = drawn["crossover"].draw(*_look())
    lengths = [len(line.get_xdata()) for line in figure.axes[0].lines]
    assert lengths.count(len(make.LENGTHS)) == len(make.THIRTY)


def _look():
    from sparing.report.figures.palette import LIGHT

    return LIGHT, False


def test_points_far_away_do_not_press_the_others_together(results):
    drawn = {plot.name: plot for plot in plots(results)}
    assert "Not shown: " in drawn["pareto"].description
    low, _ = drawn["pareto"].draw(*_look()).axes[0].get_ylim()
    worst = 100 * results.accuracy("uniform")[0]
    assert worst < low
    assert all(100 * results.accuracy(arm)[0] > low for arm in ("softmax", "kerformer"))


@pytest.mark.usefixtures("_unpainted")
def test_before_any_training_only_as_many_as_fit_have_a_colour(full, tmp_path):
    early = [r for r in full if r.name not in ("accuracy", "accuracy_difference")]
    results = Results(early, make.thirty())
    assert results.beaten == {}
    assert len(results.arms) - len(results.grey) == MANY_ARMS
    times = results.far_times()
    coloured = [times[arm] for arm in results.others if arm not in results.grey]
    assert max(coloured) <= min(times[arm] for arm in results.grey)
    make.write_run(tmp_path, make.thirty(), early)
    assert write_report(tmp_path)["html"].is_file()


def test_coloured_arms_have_colours_of_their_own(results):
    coloured = [arm for arm in results.arms if arm not in results.grey]
    assert sorted(results.position(arm) for arm in coloured) == list(range(len(coloured)))


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
