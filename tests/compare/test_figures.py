from __future__ import annotations

import io
import itertools
from xml.etree import ElementTree

import matplotlib
import numpy
import pytest
from PIL import Image

from sparing.compare.page.build import plots
from sparing.compare.page.learning import mean_line
from sparing.compare.page.lineup import lineup
from sparing.report import wording
from sparing.report.figures.drawing import free_place, spread, to_png, to_svg
from sparing.report.figures.palette import DARK, LIGHT, STAND_INS, marker, marker_outline, variables
from tests.compare import records as make

NASTY = ("softmax", "<script>x</script>", "$\\frac{1}{$", "x" * 90, "_a", "naïve 注意", "a\nb", "&")
TWELVE = (*NASTY, "window", "linear", "nystrom", "kerformer")


def drawn(arms=("softmax", "linear"), seeds=2, keep=lambda record: True):
    records = [record for record in make.records(arms, seeds) if keep(record)]
    run = make.run_of(records, make.config(arms, seeds))
    return {plot.name: plot for plot in plots(run, lineup(run))}


@pytest.mark.parametrize("name", ["crossover", "pareto", "memory", "learning"])
@pytest.mark.parametrize("narrow", [False, True])
def test_twelve_arms_with_nasty_names_make_one_clean_element(name, narrow):
    plot = drawn(TWELVE)[name]
    text = to_svg(plot.draw, "one", narrow=narrow)
    root = ElementTree.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "g", "defs", "path", "use", "text", "clipPath", "rect", "tspan"}
    assert "<script" not in text
    named = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(named) == len(set(named))
    assert all(identifier.startswith("one-") for identifier in named)
    for element in root.iter():
        link = element.get("{http://www.w3.org/1999/xlink}href")
        assert link is None or link.removeprefix("#") in named


def test_colours_of_a_drawing_are_the_pages_variables():
    text = to_svg(drawn()["crossover"].draw, "one", narrow=False)
    assert not any(colour in text for colour in variables(STAND_INS).values())
    assert "var(--ink)" in text
    assert "var(--arm-0)" in text


def test_a_drawing_is_the_same_each_time():
    draw = drawn()["crossover"].draw
    assert to_svg(draw, "one", narrow=False) == to_svg(draw, "one", narrow=False)
    assert to_png(draw, LIGHT) == to_png(draw, LIGHT)


def test_drawing_heeds_no_settings_and_leaves_them_alone():
    draw = drawn()["memory"].draw
    expected = to_svg(draw, "one", narrow=False)
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 40, "text.usetex": True}):
        before = dict(matplotlib.rcParams)
        assert to_svg(draw, "one", narrow=False) == expected
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_pixels_have_the_ground_of_the_theme_and_twice_the_size(look):
    image = Image.open(io.BytesIO(to_png(drawn()["crossover"].draw, look)))
    assert image.size == (2 * 1060, 2 * 500)
    ground = tuple(int(look.ground[i : i + 2], 16) for i in (1, 3, 5))
    assert image.convert("RGB").getpixel((1, 1)) == ground
    assert len(image.convert("RGB").getcolors(2**24)) > 20


def test_crossings_share_and_gain_are_in_the_crossover_plot():
    plot = drawn(("softmax", "linear"))["crossover"]
    text = to_svg(plot.draw, "one", narrow=False)
    share = make.run_of(make.records(), make.config()).table.value("attention_share", tokens=512)
    assert f">{wording.share_of_gain(share)}<" in text
    assert ">largest gain<" in text
    figure = plot.draw(LIGHT, False)
    rings = [line for line in figure.axes[0].lines if line.get_markersize() == 11]
    crossing = [r.value for r in make.records(("softmax", "linear"), 2) if "crossover" in r.name]
    assert [ring.get_xdata()[0] for ring in rings] == crossing


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("crossover", "latency_ms"),
        ("pareto", "latency_ms"),
        ("pareto", "accuracy"),
        ("memory", "peak_bytes"),
    ],
)
def test_a_plot_without_records_says_so(name, gone):
    plot = drawn(keep=lambda record: record.name != gone)[name]
    assert plot.draw is None
    assert "so far" in plot.missing


def test_one_length_one_arm_one_seed_and_one_epoch_still_draw():
    def few(record):
        return record.labels.get("tokens", 64) in (64, 65) and record.labels.get("epoch", 1) == 1

    for plot in drawn(("softmax",), 1, few).values():
        assert to_svg(plot.draw, "one", narrow=True)


def test_learning_falls_back_to_the_training_loss():
    plot = drawn(keep=lambda record: record.name != "validation_accuracy")["learning"]
    assert plot.description.startswith("Training loss")


def test_the_mean_goes_only_as_far_as_all_seeds():
    assert mean_line([[(1.0, 0.0), (2.0, 1.0), (3.0, 9.0)], [(1.0, 1.0), (2.0, 2.0)]]) == [
        (1.0, 0.5),
        (2.0, 1.5),
    ]


def test_spread_keeps_apart_and_near():
    places = spread([0.5, 0.5, 0.51, 0.9], 0.1, 0.0, 1.0)
    assert places == pytest.approx([0.40333, 0.50333, 0.60333, 0.9], abs=1e-4)
    assert spread([0.0, 0.0], 0.1, 0.0, 1.0) == pytest.approx([0.0, 0.1])
    assert spread([0.2, 0.8], 0.1, 0.0, 1.0) == [0.2, 0.8]
    crowded = spread([0.5] * 30, 0.1, 0.0, 1.0)
    assert numpy.diff(crowded) == pytest.approx([0.1] * 29)


def test_a_label_stands_where_nothing_is():
    bounds = (0.0, 0.0, 100.0, 100.0)
    assert free_place((50.0, 50.0), (20.0, 10.0), [], bounds) == (60, 45)
    assert free_place((50.0, 50.0), (20.0, 10.0), [(60.0, 40.0, 90.0, 60.0)], bounds) == (20, 45)
    assert free_place((50.0, 50.0), (20.0, 10.0), [bounds], bounds) is None
    assert free_place((95.0, 50.0), (20.0, 10.0), [], bounds) == (65, 45)


def _luminance(colour):
    parts = numpy.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = numpy.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear, float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_colours_stand_out_from_the_ground(look):
    ground = _luminance(look.ground)[1]
    for colour, least in ((look.ink, 12), (look.muted, 5), *((arm, 3) for arm in look.arms)):
        luminance = _luminance(colour)[1]
        assert (max(luminance, ground) + 0.05) / (min(luminance, ground) + 0.05) >= least, colour


# Machado, Oliveira and Fernandes, 2009, severity 1: protanopia and deuteranopia.
BLINDNESS = (
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.052],
    ],
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
)


@pytest.mark.parametrize("look", [LIGHT, DARK])
@pytest.mark.parametrize("matrix", BLINDNESS)
def test_eight_arms_stay_apart_under_colour_blindness(look, matrix):
    def seen(position):
        linear = numpy.clip(numpy.array(matrix) @ _luminance(look.colour(position))[0], 0, 1)
        to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        x, y, z = numpy.cbrt(numpy.array(to_xyz) @ linear / [0.9505, 1.0, 1.089])
        return numpy.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    for one, other in itertools.combinations(range(8), 2):
        assert numpy.linalg.norm(seen(one) - seen(other)) > 9, (one, other)


def test_no_two_of_forty_arms_share_colour_and_marker():
    looks = {(LIGHT.colour(position), marker(position)) for position in range(40)}
    assert len(looks) == 40
    assert len({marker(position) for position in range(12)}) == 12
    assert all(marker_outline(position).startswith("M") for position in range(12))
