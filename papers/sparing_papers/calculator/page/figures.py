"""The figures of the calculator study: what energy buys, lengths, distances, places, tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sparing.core.record import Record
from sparing.report.figures.drawing import Plot, Sheet, key_column
from sparing.report.figures.palette import Look, marker
from sparing_papers.calculator.page.results import ValueResults

# Others share the last colour.
SHOWN = (
    "FNN2",
    "FNN3",
    "RNN2",
    "LSTM with attention",
    "BiLSTM with attention",
    "transformer4",
    "transformer5",
    "FNN with attention",
    "GRU",
    "NAU",
)
POSITIONS = {name: place for place, name in enumerate(SHOWN, 1)} | {"other networks": 11}
Lines = Mapping[str, Sequence[tuple[float, float]]]


def figures(results: ValueResults) -> list[Plot]:
    """All figures of a run."""
    return [
        trade(results),
        _along(
            results,
            "operands",
            "Longer than trained",
            "published long",
            "number of operands",
            "Mean error on the published long sums; training has three operands alone (the line).",
        ),
        _along(
            results,
            "largest",
            "Beyond the training range",
            "out",
            "size of the largest operand; training has operands from -5 to 4",
            "Mean error on sums of three operands, none of which training has seen.",
        ),
        places(results),
        tuning(results),
    ]


def kind_of(arm: str) -> str:
    """What gives an arm its colour."""
    return arm if arm in POSITIONS else "other networks"


def trade(results: ValueResults) -> Plot:
    """The bounded score against the energy of a training."""
    name, title = "trade", "What energy buys"
    points = [
        (arm, energy, score)
        for arm in results.trained
        if (energy := results.energy(arm)) is not None and energy.value
        if (score := results.mean("bounded_score", arm)) is not None
    ]
    if not points:
        return Plot(name, title, "", None, missing="No training has ended so far.")
    description = (
        "Bounded score (50 is the baseline, 100 exact on every set) against the energy of one "
        "training; bars are 95 % intervals over seeds. Up and to the left is better."
    )
    kinds = _kinds([arm for arm, *_ in points])

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 340, look, True) if narrow else Sheet(1060, 440, look)
        figure = sheet.figure()
        axes = sheet.axes(figure, 50, 38, 14 if narrow else 210, 50)
        for arm, energy, score in points:
            place, x = POSITIONS[kind_of(arm)], float(energy.value or 1.0)
            colour = look.colour(place)
            if score.interval is not None:
                ends = [min(100.0, max(0.0, end)) for end in score.interval]
                axes.plot([x, x], ends, color=colour, linewidth=1.2, alpha=0.6)
            y = float(score.value or 0.0)
            axes.plot([x], [y], marker=marker(place), color=colour, markersize=8, mew=0)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        sheet.caption(axes, "Bounded score")
        axes.set_xlabel("joules of a training", fontsize=sheet.text, color=look.muted, labelpad=6)
        if not narrow:
            key_column(sheet, axes, kinds, POSITIONS)
        return figure

    return Plot(name, title, description, draw, kinds)


def _along(
    results: ValueResults, along: str, title: str, group: str, label: str, description: str
) -> Plot:
    """Mean error along a label, for the arms that have a colour of their own."""
    lines = {
        arm: [
            (float(place), float(each.value or 0.0))
            for place, each in results.line("mean_error", arm, along, set=group)
        ]
        for arm in results.arms
        if arm in SHOWN
    }
    trained = 3.0 if along == "operands" else None
    return _lines(along, title, description, lines, label, "Mean error", trained)


def places(results: ValueResults) -> Plot:
    """How much an answer follows each of eight operands."""
    lines = {
        arm: [
            (float(place), float(each.value or 0.0))
            for place, each in results.line("sensitivity", arm, "place", operands=8)
        ]
        for arm in results.arms
        if arm in SHOWN
    }
    description = (
        "How much an answer to a sum of eight operands changes where one of them grows by one, its "
        "sign that of the true change, by the operand's place. 1 is right at every place; training "
        "has three operands alone (the line)."
    )
    return _lines(
        "places", "Which operands count", description, lines, "place of the operand", "Change", 3.0
    )


def _lines(
    name: str,
    title: str,
    description: str,
    lines: Lines,
    label: str,
    caption: str,
    trained: float | None,
) -> Plot:
    lines = {arm: line for arm, line in lines.items() if line}
    if not lines:
        return Plot(name, title, "", None, missing="No training has ended so far.")
    kinds = _kinds(list(lines))

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 320, look, True) if narrow else Sheet(1060, 420, look)
        figure = sheet.figure()
        axes = sheet.axes(figure, 50, 38, 14 if narrow else 210, 50)
        if trained is not None:
            axes.axvline(trained, color=look.muted, linewidth=1, linestyle=(0, (4, 4)))
        for arm, line in lines.items():
            place = POSITIONS[arm]
            axes.plot(
                *zip(*line, strict=True),
                color=look.colour(place),
                linewidth=1.6,
                marker=marker(place),
                markersize=6,
                markeredgewidth=0,
            )
        xs = [x for line in lines.values() for x, _ in line]
        axes.set_xlim(min(xs) - 0.3, max(xs) + 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        sheet.caption(axes, caption)
        axes.set_xlabel(label, fontsize=sheet.text, color=look.muted, labelpad=6)
        if not narrow:
            key_column(sheet, axes, kinds, POSITIONS)
        return figure

    return Plot(name, title, description, draw, kinds)


_TUNING = {
    "with_prompt": ("right tokens, prompt's among them", 11),
    "tokens": ("right tokens of answers", 2),
    "whole_answers": ("answers right throughout", 3),
    "exact": ("exact, written freely", 1),
}


def tuning(results: ValueResults) -> Plot:
    """Accuracy of a language model with the right tokens given, and by itself, epoch by epoch."""
    name, title = "tuning", "Tokens and answers while a language model is tuned"
    records = {key: list(results.language(key)) for key in _TUNING}
    ways = list(dict.fromkeys(str(r.labels["way"]) for r in records["exact"]))
    if not ways:
        return Plot(name, title, "", None, missing="No language model was tuned.")
    first = ways[0]
    description = (
        f"Shares on held-out sums by epoch ({first}): three where every earlier token of the right "
        "answer is given, one of what the model writes by itself."
    )

    def draw(look: Look, narrow: bool) -> Figure:
        sheet = Sheet(350, 300, look, True) if narrow else Sheet(1060, 380, look)
        figure = sheet.figure()
        axes = sheet.axes(figure, 60, 38, 14 if narrow else 280, 50)
        for key, (_, place) in _TUNING.items():
            line = [_point(r) for r in records[key] if r.labels["way"] == first]
            axes.plot(
                *zip(*line, strict=True),
                color=look.colour(place),
                marker=marker(place),
                markersize=5,
                linewidth=1.6,
                mew=0,
            )
        axes.set_ylim(0, 102)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        sheet.caption(axes, "Right")
        axes.set_xlabel("epoch", fontsize=sheet.text, color=look.muted, labelpad=6)
        if not narrow:
            key_column(sheet, axes, list(TUNING_POSITIONS), TUNING_POSITIONS)
        return figure

    return Plot(name, title, description, draw, tuple(TUNING_POSITIONS))


TUNING_POSITIONS = dict(_TUNING.values())


def _point(record: Record) -> tuple[float, float]:
    return float(record.labels["epoch"] or 0), 100 * float(record.value or 0.0)


def _kinds(arms: list[str]) -> tuple[str, ...]:
    found = dict.fromkeys(map(kind_of, arms))
    return tuple(sorted(found, key=lambda kind: POSITIONS[kind]))
