"""The comparison table as data: the page, the command line and notebooks only format it."""

from __future__ import annotations

from sparing.compare.page import lookups
from sparing.compare.page.costs import QUANTITIES, cost_cell, missing_cell, quantity_note
from sparing.compare.page.lineup import Lineup
from sparing.report import wording
from sparing.report.cells import Cell, Column, Row, Tone
from sparing.report.facts import dense_name, metric_heading
from sparing.report.run import Run

TONES: dict[str, Tone] = {"better": "gain", "worse": "loss", "undecided": "missing"}


def table_columns(run: Run) -> list[Column]:
    """The columns of ``table_rows`` in order, with the size at which each was taken."""
    chance, dense = run.config["task"].get("chance"), dense_name(run.config)
    chance_note = f"chance {100 * chance:.3g} %" if isinstance(chance, (int, float)) else ""
    columns = [
        Column("accuracy", metric_heading(run.config), chance_note),
        Column("difference", f"Against {dense}", _margin_note(run)),
        *(Column(q.key, q.title, quantity_note(run, q)) for q in QUANTITIES),
    ]
    columns.insert(3, Column("crossover", f"Faster than {dense}", "attention core"))
    return columns


def table_rows(run: Run, arms: Lineup) -> list[Row]:
    """The table: one row a variant, the baseline first; a pure function of the run.

    Costs are ratios to the baseline, with direction and interval in words; ``Cell.value`` keeps the
    plain ratio. Cells that ended in an error explain what is missing.
    """
    return [_row(run, arms, arm) for arm in arms.ordered]


def _row(run: Run, arms: Lineup, arm: str) -> Row:
    cells = {
        "accuracy": _accuracy_cell(run, arm),
        "difference": _difference_cell(run, arm),
        "crossover": _crossover_cell(run, arm),
        **{quantity.key: cost_cell(run, arm, quantity) for quantity in QUANTITIES},
    }
    params = run.table.value("params", arm=arm)
    note = "" if params is None else f"{params:,.0f} parameters"
    beaten_by = ", ".join(arms.beaten.get(arm, []))
    baseline = arm == run.config["baseline"]
    return Row(arm, baseline, note, cells, arms.families.get(arm, ""), beaten_by)


def _accuracy_cell(run: Run, arm: str) -> Cell:
    mean = lookups.accuracy(run, arm)
    if mean is None:
        return missing_cell(run, arm, "accuracy")
    value, interval = mean
    seeds = wording.count_of(len(lookups.accuracies(run, arm)), "seed")
    if interval is None:
        return Cell(wording.share(value), (f"{seeds}, no interval",), value=value)
    low, high = (wording.share(end).removesuffix(" %") for end in interval)
    between = " to " if low.startswith(wording.MINUS) else wording.DASH
    notes = (f"{low}{between}{high}", seeds)
    return Cell(wording.share(value), notes, "neutral", value, interval, "measured")


def _difference_cell(run: Run, arm: str) -> Cell:
    if arm == run.config["baseline"]:
        return Cell("baseline")
    record = run.table.find("accuracy_difference", arm=arm)
    if record is None or record.value is None:
        return missing_cell(run, arm, "accuracy_difference")
    verdict, value = str(record.labels.get("verdict") or "undecided"), record.value
    notes = [f"{wording.points(value, *(record.interval or ()))} points"]
    if record.interval:
        notes.append(wording.points_interval(value, record.interval))
    tone = TONES.get(verdict, "neutral")
    return Cell(verdict, tuple(notes), tone, value, record.interval, record.obtained)


def _crossover_cell(run: Run, arm: str) -> Cell:
    if arm == run.config["baseline"]:
        return Cell("baseline")
    record = lookups.crossover(run, arm)
    if record is None and lookups.curves_disturbed(run):
        return Cell("not decided", ("the machine was busy",), "missing")
    if record is None:
        return missing_cell(run, arm, "crossover_tokens")
    if record.value is not None:
        return Cell(f"from {crossing_words(run, arm)}", (), "neutral", record.value)
    longest = record.labels.get("longest_tokens")
    until = (f"up to {wording.length(longest)}",) if isinstance(longest, int) else ()
    return Cell("never measured faster", until)


def crossing_words(run: Run, arm: str) -> str:
    """The length from which on a variant is faster; "about" where it is between measured ones."""
    record = lookups.crossover(run, arm)
    if record is None or record.value is None:
        return ""
    measured = record.value in lookups.lengths(run, "latency_ms", arm=arm, scope="attention")
    return ("" if measured else "about ") + wording.length(record.value)


def _margin_note(run: Run) -> str:
    record = run.table.find("accuracy_difference")
    margin = record.labels.get("margin") if record else None
    if not isinstance(margin, (int, float)):
        return ""
    return "margin " + wording.plain(100 * margin, "point")
