"""The comparison table as data: the page, the command line and notebooks only lay it out."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.compare.page.costs import QUANTITIES, cost_cell, quantity_note
from sparing.compare.page.missing import missing_cell
from sparing.compare.page.results import Results
from sparing.core.record import Record
from sparing.report import wording
from sparing.report.cells import Cell, Column, Failed, Row, Tone
from sparing.report.facts import dense_name, metric_name
from sparing.report.run import Config


def table_columns(records: Sequence[Record], config: Config) -> list[Column]:
    """The columns of ``table_rows`` in order, with the size at which each was taken."""
    results = Results(records, config)
    chance = config["task"].get("chance")
    chance_note = f"chance {100 * chance:.3g} %" if isinstance(chance, (int, float)) else ""
    columns = [
        Column("accuracy", metric_name(config).capitalize(), chance_note),
        Column("difference", f"Against {dense_name(config)}", _margin_note(results)),
    ]
    columns += [Column(q.key, q.title, quantity_note(results, q)) for q in QUANTITIES]
    columns.insert(3, Column("crossover", f"Faster than {dense_name(config)}", "attention core"))
    return columns


def table_rows(records: Sequence[Record], config: Config, failed: Failed = ()) -> list[Row]:
    """The table: one row an arm, the baseline first; a pure function of the records.

    More than a dozen arms go by family, the fastest of each first.
    ``failed`` are the cells that ended in an error: they explain what is missing. Costs are ratios
    to the baseline, with direction and interval in words; ``Cell.value`` keeps the plain ratio.
    """
    results = Results(records, config)
    return [_row(results, arm, failed) for arm in results.ordered]


def _row(results: Results, arm: str, failed: Failed) -> Row:
    cells = {
        "accuracy": _accuracy_cell(results, arm, failed),
        "difference": _difference_cell(results, arm, failed),
        "crossover": _crossover_cell(results, arm, failed),
    }
    for quantity in QUANTITIES:
        cells[quantity.key] = cost_cell(results, arm, quantity, failed)
    params = results.value("params", arm=arm)
    note = "" if params is None else f"{params:,.0f} parameters"
    family, beaten_by = results.family(arm), ", ".join(results.beaten.get(arm, []))
    return Row(arm, arm == results.baseline, note, cells, family, beaten_by)


def _accuracy_cell(results: Results, arm: str, failed: Failed) -> Cell:
    found = results.accuracy(arm)
    if found is None:
        return missing_cell(results, arm, failed, "accuracy")
    value, interval = found
    seeds = wording.count_of(len(results.accuracies(arm)), "seed")
    if interval is None:
        return Cell(wording.share(value), (f"{seeds}, no interval",), value=value)
    low, high = (wording.share(end).removesuffix(" %") for end in interval)
    between = " to " if low.startswith(wording.MINUS) else wording.DASH
    notes = (f"{low}{between}{high}", seeds)
    return Cell(wording.share(value), notes, "neutral", value, interval, "measured")


def _difference_cell(results: Results, arm: str, failed: Failed) -> Cell:
    if arm == results.baseline:
        return Cell("baseline")
    found = results.find("accuracy_difference", arm=arm)
    if found is None or found.value is None:
        return missing_cell(results, arm, failed, "accuracy_difference")
    verdict = str(found.labels.get("verdict") or "undecided")
    tones: dict[str, Tone] = {"better": "gain", "worse": "loss", "undecided": "missing"}
    notes = [f"{wording.points(found.value, *(found.interval or ()))} points"]
    if found.interval:
        notes.append(wording.points_interval(found.value, found.interval))
    return Cell(
        verdict,
        tuple(notes),
        tones.get(verdict, "neutral"),
        found.value,
        found.interval,
        found.obtained,
    )


def _crossover_cell(results: Results, arm: str, failed: Failed) -> Cell:
    if arm == results.baseline:
        return Cell("baseline")
    found = results.crossover(arm)
    if found is None and results.curves_disturbed:
        return Cell("not decided", ("the machine was busy",), "missing")
    if found is None:
        return missing_cell(results, arm, failed, "crossover_tokens")
    if found.value is not None:
        return Cell(f"from {crossing_words(results, arm)}", (), "neutral", found.value)
    longest = found.labels.get("longest_tokens")
    until = (f"up to {wording.length(longest)}",) if isinstance(longest, int) else ()
    return Cell("never measured faster", until)


def crossing_words(results: Results, arm: str) -> str:
    """The length from which on an arm is faster; "about" where it lies between measured ones."""
    found = results.crossover(arm)
    tokens = None if found is None else found.value
    if tokens is None:
        return ""
    measured = tokens in results.lengths("latency_ms", arm=arm, scope="attention")
    return wording.length(tokens) if measured else f"about {wording.length(tokens)}"


def _margin_note(results: Results) -> str:
    found = results.find("accuracy_difference")
    margin = found.labels.get("margin") if found else None
    if not isinstance(margin, (int, float)):
        return ""
    return "margin " + wording.plain(100 * margin, "point")
