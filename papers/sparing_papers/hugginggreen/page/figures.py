"""The figures of the HuggingGreen page: what energy buys, in the end and on the way; patches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.figures.drawing import Plot, Sheet, key_column
from sparing.report.figures.palette import Look, marker
from sparing.report.figures.patch_sheet import Picture, Scored, patch_sheet
from sparing_papers.hugginggreen.page.results import AGAIN, DENSE, PATCHES, GreenResults, Group

POSITIONS = {
    DENSE: 0,
    "contrast": 1,
    "variance": 2,
    "entropy": 3,
    "rms": 9,
    "random": 4,
    "fewer steps": 5,
    "larger patches": 6,
    "convolutions": 7,
    "half the layers": 8,
}
SHEET_SCORES = 5


def kind_of(arm: str) -> str:
    """What gives an arm its colour: a score, or a kind of rival."""
    return next((kind for kind in POSITIONS if arm.startswith(kind)), DENSE)


def figures(results: GreenResults) -> list[Plot]:
    """All figures of a run: two for each group of patches, and a sheet for each task."""
    found = []
    for group in results.of(PATCHES):
        found += [trade(group, results), curves(group, results.declared)]
    for task in dict.fromkeys(group.task for group in results.of(PATCHES)):
        found += sheets(results, task)
    return found


def trade(group: Group, results: GreenResults) -> Plot:
    """Accuracy beside dense against energy over dense, each arm with its intervals."""
    name, title = _name("trade", group.task, group.depth), f"What energy buys: {group.name}"
    points = [
        (arm, energy, difference)
        for arm in group.arms
        if arm not in (DENSE, AGAIN)
        and (energy := group.find("energy_ratio", arm=arm, to=DENSE)) is not None
        and (difference := group.find("accuracy_difference", arm=arm, to=DENSE)) is not None
    ]
    if not points:
        return Plot(name, title, "", None, missing="No pair of arms has ended so far.")
    margin = 100 * results.margin
    description = (
        "Test accuracy beside dense, in points, against energy of the training over dense; up and "
        "to the left is better. Bars are 95 % intervals over pairs. The dashed line is a loss of "
        f"{wording.plain(margin, 'point')}. Hollow marks are sampled or follow a schedule; the "
        "larger a mark, the more patches it keeps."
    )

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 340, look, True) if narrow else Sheet(1060, 460, look)
        figure = sheet.figure()
        axes = sheet.axes(figure, 50, 38, 14 if narrow else 190, 50)
        for arm, energy, difference in points:
            _cross(sheet, axes, arm, energy, difference)
        axes.plot([1], [0], marker=marker(0), markersize=9, color=look.ink, mew=0, zorder=6)
        axes.axhline(-margin, color=look.muted, linewidth=1, linestyle=(0, (4, 4)), zorder=1)
        _limits(axes, points)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        sheet.caption(axes, "Points of test accuracy beside dense")
        axes.set_xlabel(
            "energy of the training over dense", fontsize=sheet.text, color=look.muted, labelpad=6
        )
        if not narrow:
            key_column(sheet, axes, _kinds([arm for arm, *_ in points]), POSITIONS)
        return figure

    return Plot(name, title, description, draw, _kinds([arm for arm, *_ in points]))


def _limits(axes: Axes, points: list[tuple[str, Record, Record]]) -> None:
    """Wide enough for every point and most of every interval; from few pairs some are endless."""
    axes.set_xlim(*_span([energy for _, energy, _ in points], 1.0, 1.0))
    axes.set_ylim(*_span([difference for *_, difference in points], 0.0, 100.0))


def _span(found: list[Record], nothing: float, scale: float) -> tuple[float, float]:
    """From the lowest to the highest end, each at most the points' own spread beyond them."""
    values = [nothing, *(record.value or nothing for record in found)]
    low, high = min(values), max(values)
    reach = high - low + 1 / scale
    ends = [end for record in found for end in record.interval or ()]
    lowest = max(min([low, *ends]), low - reach)
    highest = min(max([high, *ends]), high + reach)
    room = 0.08 * (highest - lowest)
    return scale * (lowest - room), scale * (highest + room)


def _cross(sheet: Sheet, axes: Axes, arm: str, energy: Record, difference: Record) -> None:
    position = POSITIONS[kind_of(arm)]
    colour = sheet.look.colour(position)
    x, y = energy.value or 1.0, 100 * (difference.value or 0.0)
    if energy.interval is not None:
        axes.plot(energy.interval, [y, y], color=colour, linewidth=1.2, alpha=0.6, zorder=2)
    if difference.interval is not None:
        ends = [100 * end for end in difference.interval]
        axes.plot([x, x], ends, color=colour, linewidth=1.2, alpha=0.6, zorder=2)
    plain = " sampled " not in arm and "," not in arm.replace(", as", "").replace(", dis", "")
    axes.plot(
        [x],
        [y],
        marker=marker(position),
        markersize=_size(arm),
        markerfacecolor=colour if plain else sheet.look.ground,
        markeredgecolor=colour,
        markeredgewidth=0 if plain else 1.5,
        linestyle="none",
        zorder=4,
    )


def _size(arm: str) -> float:
    """The size of an arm's mark: by the share that it keeps, or is held against."""
    text = arm.partition(", ")[0].split(" ")[-1] if ", as" not in arm else arm.split(" ")[-1]
    try:
        share = float(text)
    except ValueError:
        return 8.0
    return 4.0 + 6.0 * min(share, 1.0)


def curves(group: Group, declared: str) -> Plot:
    """Validation accuracy against the energy that training had taken by then."""
    name, title = _name("curves", group.task, group.depth), f"Accuracy on the way: {group.name}"
    shown = [arm for arm in group.arms if _is_main(arm, declared)]
    lines = {arm: line for arm in shown if (line := group.curve(arm))}
    if not lines:
        return Plot(name, title, "", None, missing="No training has ended so far.")
    description = (
        "Validation accuracy against the joules spent in training steps until then, means over "
        "pairs. Shorter trainings end earlier: their learning rate has fallen by then."
    )

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(1060, 420, look)
        figure = sheet.figure()
        axes = sheet.axes(figure, 50, 38, 14 if narrow else 190, 50)
        for arm, line in lines.items():
            position = POSITIONS[kind_of(arm)]
            xs, ys = zip(*line, strict=True)
            axes.plot(
                xs,
                [100 * y for y in ys],
                color=look.colour(position),
                linewidth=2.4 if arm == DENSE else 1.5,
                marker=marker(position),
                markersize=5,
                markeredgewidth=0,
                zorder=5 if arm == DENSE else 3,
            )
        tops = [100 * line[-1][1] for line in lines.values()]
        axes.set_ylim(max(0.0, min(tops) - 25), min(100.0, max(tops) + 4))
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        sheet.caption(axes, "Validation accuracy")
        axes.set_xlabel("joules spent", fontsize=sheet.text, color=look.muted, labelpad=6)
        if not narrow:
            key_column(sheet, axes, _kinds(list(lines)), POSITIONS)
        return figure

    return Plot(name, title, description, draw, _kinds(list(lines)))


def _is_main(arm: str, declared: str) -> bool:
    """Dense, the declared way and share of each score, and the rivals at its cost."""
    parts = declared.split(" ")
    if len(parts) != 3:
        return arm == DENSE
    _, way, keep = parts
    return arm == DENSE or arm.endswith((f" {way} {keep}", f", as {keep}"))


def _kinds(arms: list[str]) -> tuple[str, ...]:
    found = dict.fromkeys([DENSE, *map(kind_of, arms)])
    return tuple(sorted(found, key=lambda kind: POSITIONS[kind]))


def sheets(results: GreenResults, task: str) -> list[Plot]:
    """The task's own images with what each score keeps of them; nothing without any."""
    found = [_picture(record, told) for record, told in results.pictures(task)]
    if not found:
        return []
    description = (
        "Test images with the patches that each score keeps, the first in its class; below each "
        "its scores, stretched from the lowest to the highest of the image."
    )
    return [
        Plot(_name("patches", task, ""), f"Kept patches: {task}", description, patch_sheet(found))
    ]


def _picture(record: Record, told: Mapping[str, Any]) -> Picture:
    pixels = np.asarray(told["pixels"], dtype=np.float64) / 255
    if pixels.shape[-1] == 1:
        pixels = pixels.repeat(3, axis=-1)
    side, scored = int(told["side"]), {}
    for name, each in list(told["scored"].items())[:SHEET_SCORES]:
        kept = np.zeros(side * side, dtype=np.bool_)
        kept[each["kept"]] = True
        scores = np.asarray(each["scores"], dtype=np.float64).reshape(side, side)
        scored[str(name)] = Scored(scores, kept.reshape(side, side))
    return Picture(str(record.labels.get("label")), pixels, scored)


def _name(kind: str, task: str, depth: int | str) -> str:
    """The name of a figure, and so of its file: letters and digits alone, whatever a task's are."""
    return re.sub(r"[^a-z0-9]+", "-", f"{kind} {task} {depth}".lower()).strip("-")
