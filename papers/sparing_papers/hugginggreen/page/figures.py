"""The figures of the HuggingGreen page: accuracy against energy, curves, patches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.figures.chart import (
    Frame,
    Mark,
    Scales,
    chart,
    draw_mark,
    interval_of,
    lines_plot,
)
from sparing.report.figures.drawing import Plot, Sheet
from sparing.report.figures.patch_sheet import Picture, Scored, patch_sheet
from sparing.report.run import Run
from sparing_papers.hugginggreen.groups import Group, content
from sparing_papers.hugginggreen.names import AGAIN, DENSE, PATCHES
from sparing_papers.hugginggreen.page.content import TEXT, declared, margin, of

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
SHOWN_POINTS = 25
NO_TRAINING = "No training has ended so far."
Beside = tuple[str, Record, Record]


def kind_of(arm: str) -> str:
    """The key of a variant's colour: its score, or its kind of baseline."""
    return next((kind for kind in POSITIONS if arm.startswith(kind)), DENSE)


def figures(run: Run, groups: Sequence[Group]) -> list[Plot]:
    """All figures of a run: two for each group of patches, and a sheet for each task."""
    patches = of(groups, PATCHES)
    plots = []
    for group in patches:
        plots += [trade(group, 100 * margin(run)), curves(group, declared(run))]
    for task in dict.fromkeys(group.task for group in patches):
        plots += sheets(run, task)
    return plots


def trade(group: Group, lost: float) -> Plot:
    """Accuracy beside dense against energy over dense; ``lost`` points are the margin."""
    name, title = _name("trade", group.task, group.depth), f"What energy buys: {group.name}"
    points: list[Beside] = [
        (arm, energy, difference)
        for arm in group.arms
        if arm not in (DENSE, AGAIN)
        and (energy := group.records.find("energy_ratio", arm=arm, to=DENSE))
        and (difference := group.records.find("accuracy_difference", arm=arm, to=DENSE))
    ]
    if not points:
        return Plot(name, title, "", None, missing="No pair of variants has ended so far.")

    def paint(sheet: Sheet, axes: Axes) -> None:
        for arm, energy, difference in points:
            draw_mark(sheet, axes, POSITIONS[kind_of(arm)], _mark(arm, energy, difference))
        draw_mark(sheet, axes, POSITIONS[DENSE], Mark(1.0, 0.0, size=9.0))
        axes.axhline(-lost, color=sheet.look.muted, linewidth=1, linestyle=(0, (4, 4)), zorder=1)
        axes.set_xlim(*_span([energy for _, energy, _ in points], 1.0, 1.0))
        axes.set_ylim(*_span([difference for *_, difference in points], 0.0, 100.0))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

    description = TEXT("trade", margin=wording.plain(lost, "point"))
    frame = Frame("energy of the training over dense", "Points of test accuracy beside dense", 460)
    kinds = list(dict.fromkeys([DENSE, *(kind_of(arm) for arm, *_ in points)]))
    return chart(name, title, description, kinds, POSITIONS, frame, paint)


def _mark(arm: str, energy: Record, difference: Record) -> Mark:
    return Mark(
        energy.value or 1.0,
        100 * (difference.value or 0.0),
        interval_of(energy),
        interval_of(difference, 100.0),
        _size(arm),
        hollow=" sampled " in arm or "," in arm.replace(", as", "").replace(", dis", ""),
    )


def _span(records: Sequence[Record], nothing: float, scale: float) -> tuple[float, float]:
    """The range of the intervals, cut at the spread of the points on both sides.

    Intervals from few pairs may be unbounded.
    """
    values = [nothing, *(record.value or nothing for record in records)]
    low, high = min(values), max(values)
    reach = high - low + 1 / scale
    ends = [end for record in records for end in record.interval or ()]
    lowest = max(min([low, *ends]), low - reach)
    highest = min(max([high, *ends]), high + reach)
    room = 0.08 * (highest - lowest)
    return scale * (lowest - room), scale * (highest + room)


def _size(arm: str) -> float:
    """The size of a variant's mark: by the share that it keeps or is matched to."""
    text = arm.partition(", ")[0].split(" ")[-1] if ", as" not in arm else arm.split(" ")[-1]
    try:
        share = float(text)
    except ValueError:
        return 8.0
    return 4.0 + 6.0 * min(share, 1.0)


def curves(group: Group, arm: str) -> Plot:
    """Validation accuracy against joules, for the declared way and share and its baselines."""
    name, title = _name("curves", group.task, group.depth), f"Accuracy on the way: {group.name}"
    lines = {kind_of(one): _curve(group, one) for one in group.arms if _is_main(one, arm)}
    # the first epochs are far below the last, which are compared
    lowest = min((line[-1][1] for line in lines.values() if line), default=0.0) - SHOWN_POINTS
    shown = {
        kind: [(joules, score, None) for joules, score in line if score >= lowest]
        for kind, line in lines.items()
    }
    scales = Scales("joules spent", "Validation accuracy", per_cent=True)
    return lines_plot(name, title, TEXT("curves"), shown, POSITIONS, scales, NO_TRAINING)


def _curve(group: Group, arm: str) -> list[tuple[float, float]]:
    """(joules, validation accuracy in per cent) by epoch, the mean over seeds."""
    spent = []
    for curve in group.curves(arm).values():
        joules = [group.joules(entry) for entry in curve]
        scores = [100 * float(entry["score"]) for entry in curve]
        pairs = [(j, score) for j, score in zip(joules, scores, strict=True) if j is not None]
        spent += [pairs] if len(pairs) == len(curve) else []
    epochs = zip(*spent, strict=False)  # as many as the shortest has
    return [(fmean(j for j, _ in epoch), fmean(score for _, score in epoch)) for epoch in epochs]


def _is_main(arm: str, declared: str) -> bool:
    """Whether a variant is dense, of the declared way and share, or a baseline at that cost."""
    parts = declared.split(" ")
    if len(parts) != 3:
        return arm == DENSE
    _, way, keep = parts
    return arm == DENSE or arm.endswith((f" {way} {keep}", f", as {keep}"))


def sheets(run: Run, task: str) -> list[Plot]:
    """The task's images with the patches that each score keeps; empty without images."""
    pictures = [_picture(record) for record in run.table.matching("picture", {"task": task})]
    if not pictures:
        return []
    name, title = _name("patches", task, ""), f"Kept patches: {task}"
    return [Plot(name, title, TEXT("patches"), patch_sheet(pictures))]


def _picture(record: Record) -> Picture:
    held = content(record)
    pixels = np.asarray(held["pixels"], dtype=np.float64) / 255
    if pixels.shape[-1] == 1:
        pixels = pixels.repeat(3, axis=-1)
    side, scored = int(held["side"]), {}
    for name, score in list(held["scored"].items())[:SHEET_SCORES]:
        mask = np.zeros(side * side, dtype=np.bool_)
        mask[score["kept"]] = True
        scores = np.asarray(score["scores"], dtype=np.float64).reshape(side, side)
        scored[str(name)] = Scored(scores, mask.reshape(side, side))
    return Picture(str(record.labels.get("label")), pixels, scored)


def _name(kind: str, task: str, depth: int | str) -> str:
    """The name of a figure and of its file: lower-case letters, digits and hyphens alone."""
    return re.sub(r"[^a-z0-9]+", "-", f"{kind} {task} {depth}".lower()).strip("-")
