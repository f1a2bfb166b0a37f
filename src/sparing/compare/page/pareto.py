"""Accuracy against latency, with the variants that nothing beats joined."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from sparing.compare.page import lookups, prose
from sparing.compare.page.figures import grey_words
from sparing.compare.page.lineup import Lineup
from sparing.report import wording
from sparing.report.facts import metric_heading
from sparing.report.figures.chart import Frame, Mark, chart, draw_mark, label_axes
from sparing.report.figures.drawing import Box, Plot, Sheet, name_points, no_plot
from sparing.report.run import Run

Marks = dict[str, Mark]
"""Each variant as a point: accuracy in per cent against milliseconds."""


def pareto(run: Run, arms: Lineup) -> Plot:
    """Mean accuracy against the median latency of one call."""
    metric = metric_heading(run.config)
    name, title, marks = "pareto", f"{metric} against latency", _marks(run)
    size = lookups.setting(run, "latency_ratio", "latency_ms")
    if not marks or size is None:
        return no_plot(name, title, prose("no-pareto"))
    scope = "the whole model" if size.scope == "model" else "the attention core alone"
    tokens = wording.length(size.tokens)
    words = prose("figure-pareto", scope=scope, tokens=tokens, batch=size.batch) + grey_words(arms)
    inside = _inside(arms, marks)
    if len(inside) < len(marks):
        outside = wording.count_of(len(marks) - len(inside), "grey variant")
        words += f" {prose('figure-pareto-hidden', arms=outside)}"

    def paint(sheet: Sheet, axes: Axes) -> None:
        _paint(sheet, axes, arms, inside)

    margins, narrow = (52, 38, 16, 44), (42, 38, 16, 44)
    towards = "latency, ms (\N{LEFTWARDS ARROW} faster)"
    frame = Frame(towards, f"{metric}, test split", 400, 320, 520, margins, narrow)
    named = [arm for arm in marks if arm not in arms.grey]
    return chart(name, title, words, named, arms.positions, frame, paint)


def _marks(run: Run) -> Marks:
    marks = {}
    for arm, time_ms in lookups.times(run).items():
        score = lookups.accuracy(run, arm)
        if score:
            ends = (100 * score[1][0], 100 * score[1][1]) if score[1] else None
            marks[arm] = Mark(time_ms, 100 * score[0], y_interval=ends, size=9.0)
    return marks


def _paint(sheet: Sheet, axes: Axes, arms: Lineup, marks: Marks) -> None:
    times, muted = [mark.x for mark in marks.values()], sheet.look.muted
    reach = max(max(times) - min(times), 0.1 * max(times))
    end = max(times) + 0.22 * reach
    axes.set_xlim(min(times) - 0.12 * reach, end)
    front = _front(marks)
    across, up = [*(mark.x for mark in front), end], [*(mark.y for mark in front), front[-1].y]
    axes.step(across, up, where="post", color=muted, linewidth=1, alpha=0.55, zorder=1)
    for arm, mark in marks.items():
        if arm in arms.grey:
            axes.plot([mark.x], [mark.y], marker="o", ms=5, color=muted, alpha=0.5, mew=0)
        else:
            draw_mark(sheet, axes, arms.positions[arm], mark)
    named = {arm: mark for arm, mark in marks.items() if arm not in arms.grey}
    heights = [end for mark in named.values() for end in mark.y_interval or ()]
    heights += [mark.y for mark in marks.values()]
    margin = 0.12 * ((max(heights) - min(heights)) or 1.0)
    axes.set_ylim(min(heights) - margin, max(heights) + margin)
    label_axes(axes, "{x:,g}", "{x:g} %", 5, 6)
    labels = [(mark.x, mark.y, wording.shortened(arm, 14)) for arm, mark in named.items()]
    name_points(sheet, axes, labels, lines=_line_boxes(axes, named))


def _inside(arms: Lineup, marks: Marks) -> Marks:
    """All variants but the grey ones that would press the others together.

    Those are beyond Tukey's fences: 1.5 interquartile ranges outside the quartiles.
    """
    if not arms.grey:
        return marks
    low, high = np.percentile([mark.y for mark in marks.values()], (25, 75))
    fast, slow = np.percentile([mark.x for mark in marks.values()], (25, 75))
    lowest, slowest = low - 1.5 * (high - low), slow + 1.5 * (slow - fast)
    return {
        arm: mark
        for arm, mark in marks.items()
        if arm not in arms.grey or (mark.y >= lowest and mark.x <= slowest)
    }


def _front(marks: Marks) -> list[Mark]:
    """The variants that no other variant beats in both latency and accuracy, by latency."""
    front: list[Mark] = []
    for mark in sorted(marks.values(), key=lambda mark: (mark.x, -mark.y)):
        if not front or mark.y > front[-1].y:
            front.append(mark)
    return front


def _line_boxes(axes: Axes, marks: Marks) -> list[Box]:
    """The room that the bars and the line of the front take, in pixels."""
    spans = [(m.x, m.y_interval[0], m.x, m.y_interval[1]) for m in marks.values() if m.y_interval]
    front = _front(marks)
    ends = [*(mark.x for mark in front[1:]), axes.get_xlim()[1]]
    spans += [(mark.x, mark.y, end, mark.y) for mark, end in zip(front, ends, strict=True)]
    boxes = []
    for x, y, to_x, to_y in spans:
        left, low = axes.transData.transform((x, y))
        right, high = axes.transData.transform((to_x, to_y))
        thick, flat = (2, 0) if x == to_x else (0, 2)
        box = (left - thick, low - flat, right + thick, high + flat)
        boxes.append((float(box[0]), float(box[1]), float(box[2]), float(box[3])))
    return boxes
