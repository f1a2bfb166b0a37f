"""The figures of the calculator study: what energy buys, lengths, distances, places, tuning."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from sparing.core.record import Label, Record
from sparing.report.figures.chart import (
    Frame,
    Mark,
    Point,
    Scales,
    chart,
    draw_mark,
    interval_of,
    lines_plot,
)
from sparing.report.figures.drawing import Plot, Sheet
from sparing.report.run import Run
from sparing_papers.calculator.analysis import energy_of, line_of, mean_of
from sparing_papers.calculator.names import (
    BOTH_WAYS,
    FNN2,
    FNN3,
    GRU,
    LARGE,
    LSTM,
    NAU,
    PROPOSED,
    RNN2,
    SMALL,
    TEXT_GRU,
    TEXT_LSTM,
    TEXT_RNN,
)
from sparing_papers.calculator.page.content import TEXT, evaluated_arms, trained_arms

SHOWN = (FNN2, FNN3, RNN2, LSTM, BOTH_WAYS, SMALL, LARGE, PROPOSED, GRU, NAU)
OTHERS = "other networks"
POSITIONS = {name: position for position, name in enumerate((*SHOWN, OTHERS), 1)}
# No run has both: the networks of the text have the colours of what their runs leave out.
POSITIONS |= {TEXT_RNN: POSITIONS[FNN3], TEXT_GRU: POSITIONS[NAU], TEXT_LSTM: POSITIONS[BOTH_WAYS]}
TUNING = {
    "with_prompt": ("right tokens, prompt's among them", 11),
    "tokens": ("right tokens of answers", 2),
    "whole_answers": ("answers right throughout", 3),
    "exact": ("exact, written freely", 1),
}
NO_TRAINING = "No training has ended so far."
TRAINED_OPERANDS = 3.0


def figures(run: Run) -> list[Plot]:
    """All figures of a run."""
    error = Scales("number of operands", "Mean error", across=TRAINED_OPERANDS)
    size = Scales("size of the largest operand; training has operands from -5 to 4", "Mean error")
    change = Scales("place of the operand", "Change", across=TRAINED_OPERANDS)
    return [
        trade(run),
        _along(run, "operands", "Longer than trained", error, "mean_error", set="published long"),
        _along(run, "largest", "Beyond the training range", size, "mean_error", set="out"),
        _along(run, "place", "Which operands count", change, "sensitivity", operands=8),
        tuning(run),
    ]


def kind_of(arm: str) -> str:
    """What gives a variant its colour: variants that are not shown by name share one."""
    return arm if arm in POSITIONS else OTHERS


def trade(run: Run) -> Plot:
    """The bounded score against the energy of a training."""
    name, title = "trade", "What energy buys"
    marks = {
        arm: _mark(energy, score)
        for arm in trained_arms(run)
        if (energy := energy_of(run.table, arm)) is not None and energy.value
        if (score := mean_of(run.table, "bounded_score", arm))
    }
    if not marks:
        return Plot(name, title, "", None, missing=NO_TRAINING)

    def paint(sheet: Sheet, axes: Axes) -> None:
        for arm, mark in marks.items():
            draw_mark(sheet, axes, POSITIONS[kind_of(arm)], mark)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

    frame = Frame("joules of a training", "Bounded score", 440, 340)
    kinds = list(dict.fromkeys(map(kind_of, marks)))
    return chart(name, title, TEXT("trade"), kinds, POSITIONS, frame, paint)


def _mark(energy: Record, score: Record) -> Mark:
    interval = interval_of(score)
    if interval is not None:
        interval = max(0.0, interval[0]), min(100.0, interval[1])
    return Mark(float(energy.value or 1.0), float(score.value or 0.0), y_interval=interval)


def _along(
    run: Run, along: str, title: str, scales: Scales, quantity: str, **labels: Label
) -> Plot:
    """Means along a label, for the variants that have a colour of their own."""
    name = "places" if along == "place" else along
    lines: dict[str, list[Point]] = {
        arm: [
            (float(at), float(record.value or 0.0), None)
            for at, record in line_of(run.table, quantity, arm, along, **labels)
        ]
        for arm in evaluated_arms(run)
        if arm in POSITIONS
    }
    return lines_plot(name, title, TEXT(name), lines, POSITIONS, scales, NO_TRAINING)


def tuning(run: Run) -> Plot:
    """Accuracy of a language model with the right tokens given, and by itself, epoch by epoch."""
    ways = run.table.values_of("language_exact", "way")[:1]
    lines: dict[str, list[Point]] = {
        head: [
            (float(r.labels["epoch"] or 0), 100 * float(r.value or 0.0), None)
            for way in ways
            for r in run.table.all(f"language_{name}", way=way)
        ]
        for name, (head, _) in TUNING.items()
    }
    scales = Scales("epoch", "Right", per_cent=True)
    title, missing = (
        "Tokens and answers while a language model is tuned",
        "No language model was tuned.",
    )
    description = TEXT("tuning", way=", ".join(map(str, ways)))
    return lines_plot("tuning", title, description, lines, dict(TUNING.values()), scales, missing)
