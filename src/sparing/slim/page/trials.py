"""What the clock said of the plans that were tried while choosing."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sparing.report import wording
from sparing.report.figures.drawing import Box, Plot, Sheet, free_place
from sparing.report.figures.palette import Look, marker
from sparing.slim.page.figures import EXITS, POSITIONS, ring
from sparing.slim.page.results import SlimResults, Trial
from sparing.slim.page.wording import times


def trials(results: SlimResults) -> Plot:
    """Measured speed against arithmetic, for the plans that were timed while choosing."""
    title = "What the clock said"
    found = results.trials
    if not found:
        missing = "No plan was timed in this run so far."
        return Plot("trials", title, "", None, missing=missing)
    description = (
        "Speed of the plans that were timed while choosing, on real inputs at batch 1, against the "
        "fastest dense form, with 95 % intervals; beside each the share of the dense score that "
        "it kept. On the grey line time would fall as arithmetic does. The ring is the choice."
    )

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(520, 400, look)
        return _draw_trials(results, sheet, found)

    return Plot("trials", title, description, draw)


def _draw_trials(results: SlimResults, sheet: Sheet, found: Sequence[Trial]) -> Figure:
    figure = sheet.figure()
    axes = sheet.axes(figure, 40 if sheet.narrow else 48, 38, 18, 48)
    costs = [100 * trial.cost_share for trial in found]
    left, right = min(costs), max([*costs, 100.0])
    axes.set_xlim(left - 0.1 * (right - left), right + 0.06 * (right - left))
    axes.set_ylim(0, _top(results, found))
    steps = (left + step * (right - left) / 60 for step in range(61))
    shares = [share for share in steps if share > 0]
    axes.plot(shares, [100 / share for share in shares], color=sheet.look.muted, alpha=0.6, lw=1)
    axes.axhline(results.speed, color=sheet.look.muted, lw=1, linestyle=(0, (4, 4)), zorder=1)
    axes.annotate(
        f"target {times(results.speed)}",
        xy=(1, results.speed),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 5),
        textcoords="offset points",
        fontsize=sheet.text - 1,
        color=sheet.look.muted,
        horizontalalignment="right",
        parse_math=False,
    )
    for trial in found:
        _draw_trial(results, sheet, axes, trial)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{wording.TIMES}"))
    axes.locator_params(axis="x", nbins=5)
    axes.locator_params(axis="y", nbins=6)
    sheet.caption(axes, "Speed, dense = 1")
    towards = "arithmetic, share of dense (\N{LEFTWARDS ARROW} cheaper)"
    axes.set_xlabel(towards, fontsize=sheet.text, color=sheet.look.muted, labelpad=6)
    _label_trials(results, sheet, axes, found)
    return figure


def _top(results: SlimResults, found: Sequence[Trial]) -> float:
    """Where the axis of speeds ends: intervals far above every value are cut."""
    highest = max([results.speed, 1.0, *(trial.speed for trial in found)])
    ends = [trial.interval[1] for trial in found if trial.interval]
    return 1.08 * min(max([highest, *ends]), 1.5 * highest)


def _draw_trial(results: SlimResults, sheet: Sheet, axes: Axes, trial: Trial) -> None:
    colour = sheet.look.colour(POSITIONS[EXITS])
    x = 100 * trial.cost_share
    if trial.interval:
        axes.vlines(x, *trial.interval, color=colour, linewidth=1.4, alpha=0.5)
    axes.plot(
        [x], [trial.speed], marker=marker(POSITIONS[EXITS]), markersize=8, color=colour, mew=0
    )
    chosen = results.taken
    if chosen is not None and chosen.value == trial.cost_share:
        ring(sheet, axes, x, trial.speed)


def _label_trials(results: SlimResults, sheet: Sheet, axes: Axes, found: Sequence[Trial]) -> None:
    """The share of the score kept beside each point, where it finds room."""
    dense = results.dense_score
    if not dense:
        return
    centres = [axes.transData.transform((100 * t.cost_share, t.speed)) for t in found]
    taken: list[Box] = [(x - 10, y - 10, x + 10, y + 10) for x, y in centres]
    edge = axes.get_window_extent()
    for trial, (x, y) in zip(found, centres, strict=True):
        text = wording.share(trial.score / dense)
        size = (0.64 * sheet.text * len(text) + 4, sheet.text * 1.25)
        bounds = (edge.x0, edge.y0, edge.x1 + 14, edge.y1)
        place = free_place((float(x), float(y)), size, taken, bounds)
        if place is None:
            continue
        left, bottom = place
        taken.append((left, bottom, left + size[0], bottom + size[1]))
        axes.annotate(
            text,
            xy=(left + size[0] / 2, bottom + size[1] / 2),
            xycoords="figure points",
            fontsize=sheet.text,
            color=sheet.look.ink,
            horizontalalignment="center",
            verticalalignment="center_baseline",
            parse_math=False,
            annotation_clip=False,
        )
