"""The figure of the AdaAttention page: speed by length, ours, the bound, and what is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sparing.report import wording
from sparing.report.figures.drawing import Plot, Sheet, spread
from sparing.report.figures.palette import Look, marker
from sparing_papers.adaattention.page.results import (
    AS_PRINTED,
    FREE,
    FULL,
    AdaResults,
    name_of_arm,
)

INT8 = "full int8"
PRINTED = "the paper's figures"
POSITIONS = {
    FULL: 0,
    AS_PRINTED: 1,
    PRINTED: 2,
    FREE: 3,
    "skip": 4,
    "width 2/3": 5,
    "linformer": 6,
    "bigbird": 7,
    "prune": 8,
    "uniform": 9,
}
_CLASSES = (("10-50", 10, 50), ("50-200", 50, 200), ("200+", 200, 512))


@dataclass(frozen=True)
class _Line:
    """A named line of (tokens, speed)."""

    name: str
    places: tuple[tuple[float, float], ...]


def positions() -> dict[str, int]:
    """Every name that the legend may hold, with what gives it colour and marker."""
    return {label_of(name): position for name, position in POSITIONS.items()}


def label_of(name: str) -> str:
    """A line's name on the figure."""
    if name == AS_PRINTED:
        return "as printed, measured"
    return name if name == PRINTED else name_of_arm(name)


def speeds(results: AdaResults) -> Plot:
    """Speed over the full model by length at BERT-base's shape."""
    title = "Speed by length, at the shape of BERT-base"
    lines = _lines(results)
    if not lines:
        missing = "Speeds at BERT-base's shape were not measured in this run so far."
        return Plot("speeds", title, "", None, missing=missing)
    description = (
        "Whole model, batch 1, one thread, against the same model with fused dense attention; "
        "above 1 is faster. Steps are what the paper prints for its three classes of length. No "
        "attention at all is the bound of whatever changes attention alone: what lies above it "
        "drops tokens or neurons."
    )
    quantised = results.shape_speed(INT8, max(results.lengths))
    if quantised is not None and quantised.value is not None:
        description += (
            f" INT8 alone, not drawn, is at {wording.factor(quantised.value)} at "
            f"{wording.length(max(results.lengths))}."
        )

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 340, look, True) if narrow else Sheet(1060, 460, look)
        figure, axes = _axes(sheet, results, lines)
        for line in lines:
            _draw(sheet, axes, line)
        _draw_printed(sheet, axes, results)
        if not narrow:
            _label_ends(sheet, axes, lines)
        return figure

    names = (PRINTED, *(label_of(line.name) for line in lines))
    return Plot("speeds", title, description, draw, names)


def _lines(results: AdaResults) -> list[_Line]:
    found = []
    for name in POSITIONS:
        places = []
        for tokens in results.lengths:
            record = results.shape_speed(name, tokens)
            if record is not None and record.value is not None:
                places.append((float(tokens), record.value))
        if places:
            found.append(_Line(name, tuple(places)))
    return found


def _steps(results: AdaResults) -> list[tuple[int, int, float]]:
    """(from, to, printed speed) of each class of length."""
    known = {
        str(record.labels.get("length_class")): record.value
        for record in results.all.claims
        if record.labels.get("length_class") is not None
    }
    last = max(results.lengths, default=512)
    return [
        (low, max(high, last) if name == "200+" else high, known[name] or 1.0)
        for name, low, high in _CLASSES
        if name in known
    ]


def _axes(sheet: Sheet, results: AdaResults, lines: Sequence[_Line]) -> tuple[Figure, Axes]:
    figure = sheet.figure()
    axes = sheet.axes(figure, 44, 38, 14 if sheet.narrow else 210, 48)
    axes.set_xscale("log")
    lengths = results.lengths
    axes.set_xlim(min(10.0, lengths[0]) * 0.95, max(lengths[-1], 512) * 1.04)
    values = [value for line in lines for _, value in line.places]
    values += [speed for *_, speed in _steps(results)]
    low, high = min([*values, 1.0]), max([*values, 1.0])
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator([10, 50, 200, *lengths]))
    shown = {10, 50, 200, *(lengths if not sheet.narrow else (lengths[-1],))}
    if len(lengths) > 4:
        shown -= {length for length in lengths if length not in (lengths[0], lengths[-1])}
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if round(value) in shown else "")
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{wording.TIMES}"))
    axes.axhline(1.0, color=sheet.look.ink, linewidth=1.4, zorder=2)
    sheet.caption(axes, "Speed over dense fused attention")
    axes.set_xlabel("tokens", fontsize=sheet.text, color=sheet.look.muted, labelpad=6)
    return figure, axes


def _draw(sheet: Sheet, axes: Axes, line: _Line) -> None:
    position = POSITIONS[line.name]
    tokens, values = zip(*line.places, strict=True)
    main = line.name == AS_PRINTED
    axes.plot(
        tokens,
        values,
        color=sheet.look.colour(position),
        linewidth=2.6 if main else 1.5,
        linestyle=(0, (4, 3)) if line.name == FREE else "solid",
        marker=marker(position),
        markersize=6.5 if main else 5.0,
        markeredgewidth=0,
        zorder=5 if main else 3,
    )


def _draw_printed(sheet: Sheet, axes: Axes, results: AdaResults) -> None:
    """What the paper prints, as a bar over each class of length."""
    colour = sheet.look.colour(POSITIONS[PRINTED])
    for low, high, speed in _steps(results):
        axes.plot([low, high], [speed, speed], color=colour, linewidth=4, zorder=4)
        axes.annotate(
            f"printed {speed:g}{wording.TIMES}",
            xy=((low * high) ** 0.5, speed),
            xytext=(0, 7),
            textcoords="offset points",
            fontsize=sheet.text,
            color=colour,
            horizontalalignment="center",
            parse_math=False,
            zorder=6,
        )


def _label_ends(sheet: Sheet, axes: Axes, lines: Sequence[_Line]) -> None:
    """Each line's name at its end, moved apart, tied by a hairline."""
    to_axes = axes.transData + axes.transAxes.inverted()
    height = float(axes.get_position().height) * sheet.height
    ends = [to_axes.transform(line.places[-1]) for line in lines]
    places = spread([float(y) for _, y in ends], (sheet.text + 5) / height, 0.0, 1.0)
    pixel = 1 / (float(axes.get_position().width) * sheet.width)
    for line, (x, y), place in zip(lines, ends, places, strict=True):
        position = POSITIONS[line.name]
        colour = sheet.look.colour(position)
        start = 1 + 14 * pixel
        tie = axes.plot([float(x), start], [float(y), place], linewidth=0.7, alpha=0.6)
        sign = axes.plot([start], [place], marker=marker(position), markersize=6, mew=0)
        for drawn in (*tie, *sign):
            drawn.set(color=colour, transform=axes.transAxes, clip_on=False)
        axes.text(
            start + 10 * pixel,
            place,
            label_of(line.name),
            transform=axes.transAxes,
            fontsize=sheet.text,
            color=sheet.look.ink,
            verticalalignment="center_baseline",
            fontweight="bold" if line.name == AS_PRINTED else "normal",
            parse_math=False,
        )
