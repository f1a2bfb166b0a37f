"""Learning curves as small multiples: every seed thin, their mean thick, one panel a variant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sparing.compare.page import prose
from sparing.compare.page.lineup import Lineup
from sparing.report import wording
from sparing.report.facts import dense_name, metric_name
from sparing.report.figures.drawing import Plot, Sheet, no_plot
from sparing.report.figures.palette import Look
from sparing.report.run import Run

Line = list[tuple[float, float]]


@dataclass(frozen=True)
class _Curves:
    """The curves of one quantity along its axis by variant, one a seed, and the baseline's mean."""

    axis: str
    unit: str
    lines: dict[str, list[Line]]
    baseline: str

    @property
    def reference(self) -> Line:
        """The mean of the baseline."""
        return mean_line(self.lines.get(self.baseline, [[]]))


def learning(run: Run, arms: Lineup) -> Plot:
    """Validation accuracy after each epoch, or the training loss where there is none."""
    what = f"validation {metric_name(run.config)}"
    curves = _curves(run, arms, "validation_accuracy", 100.0, " %")
    if not curves.lines:
        what, curves = "training loss", _curves(run, arms, "train_loss", 1.0, "")
    if not curves.lines:
        return no_plot("learning", "Learning curves", prose("no-learning"))
    dense = dense_name(run.config)
    words = prose("figure-learning", what=what.capitalize(), axis=curves.axis, dense=dense)
    words += f" {prose('figure-learning-grey')}" if arms.grey else ""

    def draw(look: Look, narrow: bool) -> Figure:
        columns = 2 if narrow else 4
        rows = math.ceil(len(curves.lines) / columns)
        size = (350, 150 * rows + 16) if narrow else (1060, 205 * rows + 20)
        return _draw(Sheet(*size, look, narrow), arms, curves, rows, columns)

    return Plot("learning", "Learning curves", words, draw)


def _curves(run: Run, arms: Lineup, name: str, scale: float, unit: str) -> _Curves:
    """Each variant's curves, one a seed, in order of training."""
    axis = "epoch" if all("epoch" in r.labels for r in run.table.all(name)) else "step"
    lines: dict[str, list[Line]] = {}
    for arm in (arm for arm in run.table.arms if arm not in arms.grey):
        by_seed: dict[object, Line] = {}
        for record in run.table.all(name, arm=arm):
            at = record.labels.get(axis)
            if isinstance(at, (int, float)) and record.value is not None:
                line = by_seed.setdefault(record.labels.get("seed"), [])
                line.append((float(at), scale * record.value))
        if by_seed:
            lines[arm] = [sorted(line) for line in by_seed.values()]
    return _Curves(axis, unit, lines, run.config["baseline"])


def mean_line(lines: list[Line]) -> Line:
    """The mean over the seeds, as far as every seed has come."""
    values = [dict(line) for line in lines]
    reached = set.intersection(*map(set, values))
    return [(at, fmean(line[at] for line in values)) for at in sorted(reached)]


def _draw(sheet: Sheet, arms: Lineup, curves: _Curves, rows: int, columns: int) -> Figure:
    figure = sheet.figure()
    points = [point for lines in curves.lines.values() for line in lines for point in line]
    ends, values = [at for at, _ in points], [value for _, value in points]
    margin = 0.06 * ((max(values) - min(values)) or 1.0)
    wide, high = sheet.width / columns, (sheet.height - 16) / rows
    left, above, below = (40, 26, 24) if sheet.narrow else (50, 34, 32)
    for number, (arm, lines) in enumerate(curves.lines.items()):
        row, column = divmod(number, columns)
        axes = sheet.axes(
            figure,
            column * wide + left,
            row * high + above,
            sheet.width - (column + 1) * wide + 10,
            sheet.height - (row + 1) * high + below,
        )
        axes.set_ylim(min(values) - margin, max(values) + margin)
        axes.set_xlim(min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1)
        reference = curves.reference if arm != curves.baseline else []
        _panel(sheet, axes, arms.positions[arm], lines, reference)
        name = wording.shortened(arm, 18 if sheet.narrow else 26)
        weight = "bold" if arm == curves.baseline else "normal"
        sheet.write(axes, name, (0, 1), (0, 8), "axes fraction", fontweight=weight)
        axes.yaxis.set_major_formatter(f"{{x:g}}{curves.unit}")
        axes.locator_params(axis="y", nbins=4)
        axes.locator_params(axis="x", nbins=4, integer=True)
        if row == rows - 1:
            axes.set_xlabel(curves.axis, fontsize=sheet.text, color=sheet.look.muted, labelpad=2)
    return figure


def _panel(sheet: Sheet, axes: Axes, position: int, lines: list[Line], reference: Line) -> None:
    colour, mean = sheet.look.colour(position), mean_line(lines)
    if reference:
        axes.plot(*zip(*reference, strict=True), color=sheet.look.muted, linewidth=1.2, alpha=0.7)
    for line in lines:
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=0.8, alpha=0.4)
    if mean:
        marker = "o" if len(mean) == 1 else None
        axes.plot(*zip(*mean, strict=True), color=colour, lw=2.2, marker=marker, markersize=4)
