"""Learning curves as small multiples: every seed thin, their mean thick, one panel an arm."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sparing.compare.page.results import Results
from sparing.report import wording
from sparing.report.facts import dense_name, metric_name
from sparing.report.figures.drawing import Plot, Sheet
from sparing.report.figures.palette import Look

Line = list[tuple[float, float]]


def learning(results: Results) -> Plot:
    """Validation accuracy after each epoch, or the training loss where there is none."""
    name, scale, what = "validation_accuracy", 100.0, f"validation {metric_name(results.config)}"
    seeds = _seed_lines(results, name, scale)
    if not seeds:
        name, scale, what = "train_loss", 1.0, "training loss"
        seeds = _seed_lines(results, name, scale)
    if not seeds:
        missing = "No training has reached its first evaluation in this run so far."
        return Plot("learning", "Learning curves", "", None, missing=missing)
    axis = _axis(results, name)
    description = (
        f"{what.capitalize()} against the {axis}: thin lines are single seeds, the thick line is "
        f"their mean as far as all seeds have come; the grey line repeats "
        f"{dense_name(results.config)}."
    )
    if results.grey:
        description += " Arms that are grey above are left out."

    def draw(look: Look, narrow: bool) -> Figure:
        columns = 2 if narrow else 4
        rows = math.ceil(len(seeds) / columns)
        sheet = Sheet(350, 150 * rows + 16, look, True)
        if not narrow:
            sheet = Sheet(1060, 205 * rows + 20, look)
        return _draw(results, sheet, seeds, axis, columns, " %" if scale == 100 else "")

    return Plot("learning", "Learning curves", description, draw)


def _axis(results: Results, name: str) -> str:
    return "epoch" if all("epoch" in r.labels for r in results.all(name)) else "step"


def _seed_lines(results: Results, name: str, scale: float) -> dict[str, list[Line]]:
    """Each arm's curves, one a seed, in order of training."""
    axis = _axis(results, name)
    lines: dict[str, list[Line]] = {}
    for arm in (arm for arm in results.arms if arm not in results.grey):
        by_seed: dict[object, Line] = {}
        for record in results.all(name, arm=arm):
            place = record.labels.get(axis)
            if isinstance(place, (int, float)) and record.value is not None:
                line = by_seed.setdefault(record.labels.get("seed"), [])
                line.append((float(place), scale * record.value))
        if by_seed:
            lines[arm] = [sorted(line) for line in by_seed.values()]
    return lines


def mean_line(lines: list[Line]) -> Line:
    """The mean over the seeds, at the places that every seed has reached."""
    places = set.intersection(*({place for place, _ in line} for line in lines))
    values = [dict(line) for line in lines]
    return [(place, sum(v[place] for v in values) / len(values)) for place in sorted(places)]


def _draw(
    results: Results,
    sheet: Sheet,
    seeds: dict[str, list[Line]],
    axis: str,
    columns: int,
    unit: str,
) -> Figure:
    figure = sheet.figure()
    rows = math.ceil(len(seeds) / columns)
    every = [value for lines in seeds.values() for line in lines for _, value in line]
    ends = [place for lines in seeds.values() for line in lines for place, _ in line]
    margin = 0.06 * ((max(every) - min(every)) or 1.0)
    wide, high = sheet.width / columns, (sheet.height - 16) / rows
    left, above, below = (40, 26, 24) if sheet.narrow else (50, 34, 32)
    for number, (arm, lines) in enumerate(seeds.items()):
        row, column = divmod(number, columns)
        axes = sheet.axes(
            figure,
            column * wide + left,
            row * high + above,
            sheet.width - (column + 1) * wide + 10,
            sheet.height - (row + 1) * high + below,
        )
        axes.set_ylim(min(every) - margin, max(every) + margin)
        axes.set_xlim(min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1)
        _panel(results, sheet, axes, arm, lines, mean_line(seeds.get(results.baseline, [[]])))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))
        axes.locator_params(axis="y", nbins=4)
        axes.locator_params(axis="x", nbins=4, integer=True)
        if row == rows - 1:
            axes.set_xlabel(axis, fontsize=sheet.text, color=sheet.look.muted, labelpad=2)
    return figure


def _panel(
    results: Results, sheet: Sheet, axes: Axes, arm: str, lines: list[Line], reference: Line
) -> None:
    colour = sheet.look.colour(results.position(arm))
    if arm != results.baseline and reference:
        axes.plot(*zip(*reference, strict=True), color=sheet.look.muted, linewidth=1.2, alpha=0.7)
    for line in lines:
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=0.8, alpha=0.4)
    mean = mean_line(lines)
    if mean:
        marker = "o" if len(mean) == 1 else None
        axes.plot(
            *zip(*mean, strict=True), color=colour, linewidth=2.2, marker=marker, markersize=4
        )
    axes.annotate(
        wording.shortened(arm, 18 if sheet.narrow else 26),
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 8),
        textcoords="offset points",
        fontsize=sheet.text,
        color=sheet.look.ink,
        fontweight="bold" if arm == results.baseline else "normal",
        parse_math=False,
        annotation_clip=False,
    )
