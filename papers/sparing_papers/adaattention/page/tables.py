"""The tables of the AdaAttention page: every printed figure beside the measured one, and speeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sparing.core.record import Label, Record
from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE, interval_text, value_text
from sparing.report.table import Column, table
from sparing_papers.adaattention.findings import (
    lengths_of,
    number,
    ours_beside,
    speed_at,
    speeds_by_length,
)
from sparing_papers.adaattention.names import FULL, LAMBDA, SHAPE, name_of_arm
from sparing_papers.adaattention.page.texts import (
    TEXT,
    factor,
    longer,
    of_full,
    points_words,
    two_digits,
    whole_share,
)

TITLES = {
    "Table IV": "Table IV: components",
    "Table V": "Table V: the size of the scorer",
    "Table VI": f"Table VI: the weight {LAMBDA} of the loss",
    "Section III.D": "Section III.D: length, uniform widths, INT8",
    "Section IV.B": "Section IV.B: cost of training",
    "Table I": "Table I: GLUE",
    "Table II": "Table II: SQuAD",
    "Table III": "Table III: ImageNet",
}
# Several tables share this variant; each gives it the name of its row.
_OWN_NAMES = {
    ("Table V", "adaptive"): "scorer d/4, the adaptive variant",
    ("Table VI", "adaptive"): f"{LAMBDA} 0.01, the adaptive variant",
}
LENGTHS = ("10-50", "50-200", "200+")
MAIN, REST = tuple(TITLES)[:5], tuple(TITLES)[5:]
"""The main tables, and those further down the page."""


def printed_blocks(
    records: RecordTable, tasks: Sequence[str], sources: Sequence[str]
) -> list[Block]:
    """A table for each source: rows as printed, columns in pairs, printed and measured.

    ``tasks`` are those that run every variant.
    """
    printed = {
        source: [record for record in records.claims if record.labels.get("source") == source]
        for source in sources
    }
    return [_block(records, tasks, source, rows) for source, rows in printed.items() if rows]


def _block(
    records: RecordTable, tasks: Sequence[str], source: str, printed: Sequence[Record]
) -> Block:
    ours = {_cell(record): ours_beside(records, tasks, record) for record in printed}
    by_cell = {_cell(record): record for record in printed}

    def paper(column: str, row: str) -> str:
        return _label(by_cell[row, column], "printed") if (row, column) in by_cell else NONE

    def beside(column: str, row: str) -> str:
        cell = row, column
        return here(by_cell[cell], ours[cell]) if cell in by_cell else NONE

    key = source.lower().replace(" ", "-").replace(".", "-")
    if source == "Table I":  # too many columns for pairs, so one line for each figure
        lines: list[Column[Record]] = [
            Column("Row", lambda record: name_of_arm(_label(record, "row"))),
            Column("Column", lambda record: _label(record, "column")),
            Column("Paper", lambda record: _label(record, "printed")),
            Column("Here", lambda record: here(record, ours[_cell(record)])),
        ]
        return table(key, TITLES[source], _reasons(source, printed), printed, lines)
    columns = [Column[str]("Row", lambda row: _OWN_NAMES.get((source, row), name_of_arm(row)))]
    for name in dict.fromkeys(column for _, column in by_cell):
        columns.append(Column(f"{name}, paper", partial(paper, name)))
        columns.append(Column("here", partial(beside, name)))
    rows = dict.fromkeys(row for row, _ in by_cell)
    return table(key, TITLES[source], _reasons(source, printed), rows, columns)


def _label(record: Record, name: str) -> str:
    return str(record.labels.get(name, ""))


def _cell(printed: Record) -> tuple[str, str]:
    """The row and column of a printed figure."""
    return _label(printed, "row"), _label(printed, "column")


def _reasons(source: str, printed: Sequence[Record]) -> str:
    """Why the figures differ: each reason once, with its columns."""
    columns: dict[str, dict[str, None]] = {}
    for record in printed:
        column = _label(record, "column")
        if column.startswith("speed,"):
            column = "speed"
        elif source == "Table I":
            column = "accuracy"
        columns.setdefault(_label(record, "reason"), {})[column] = None
    sentences = [f"{wording.listing([*names])}: {reason}." for reason, names in columns.items()]
    reasons = " ".join(text[0].upper() + text[1:] for text in sentences)
    return TEXT("reasons", reasons=reasons)


def here(printed: Record, ours: Record | None) -> str:
    """The measured figure, in the form of its kind."""
    if printed.name == "speed_up" and printed.labels.get("arm") == FULL:
        return "baseline"
    if ours is None or ours.value is None:
        return "not run"
    if ours.name == "speed_up":
        tokens = ours.labels.get("tokens")
        at = f" at {tokens} tokens" if isinstance(tokens, int) else ""
        return interval_text(ours, factor) + at
    if ours.name == "score":
        stand_in = _label(ours, "stand_in")
        on = f" on {stand_in} instead" if stand_in not in ("", "squad") else ""
        return f"{wording.share(ours.value)}{on}"
    if ours.name == "score_difference":
        return points_words(ours)
    if ours.name in ("train_step_ratio", "train_time_ratio"):
        ends = " to ".join(map(longer, ours.interval or ()))
        return f"{longer(ours.value)} % longer" + (f" ({ends})" if ends else "")
    forms = {"scorer_params": "{:,.0f} in each layer".format, "memory_ratio": of_full}
    return forms.get(ours.name, two_digits)(ours.value)


def length_block(records: RecordTable, tasks: Sequence[str]) -> Block:
    """Speeds on the tasks' inputs by their length: a row for each variant on each task."""
    speeds = speeds_by_length(records, tasks, LENGTHS)

    def cell(length: str, row: tuple[str, Label]) -> str:
        return interval_text(speeds[row].get(length), factor)

    columns = [Column[tuple[str, Label]]("Variant", lambda row: name_of_arm(row[1]))]
    if len({task for task, _ in speeds}) > 1:
        columns.insert(0, Column("Task", lambda row: row[0]))
    known = [name for name in LENGTHS if any(name in row for row in speeds.values())]
    columns += [Column(f"{name} tokens", partial(cell, name)) for name in known]
    return table("lengths", "By length of the inputs", TEXT("lengths"), speeds, columns)


def impossible_block(records: RecordTable) -> Block:
    """The printed figures that are impossible."""
    columns: list[Column[Record]] = [
        Column("Where", lambda record: _label(record, "source")),
        Column("Printed", lambda record: _label(record, "printed")),
        Column("Computed", lambda record: _label(record, "found")),
        Column("Why", lambda record: _label(record, "because")),
    ]
    rows = records.all("impossible")
    return table("impossible", "Impossible figures", TEXT("impossible"), rows, columns)


def shape_block(records: RecordTable) -> Block:
    """Speeds, times and memory at BERT-base's shape."""
    lengths = lengths_of(records)
    longest = max(lengths, default=0)

    def speed(tokens: int, form: str) -> str:
        return (
            "baseline" if form == FULL else interval_text(speed_at(records, form, tokens), factor)
        )

    def at_longest(name: str, form: str, **labels: Label) -> Record | None:
        return records.find(name, arm=form, shape=SHAPE, tokens=longest, **labels)

    def time(of: str, form: str) -> str:
        return value_text(at_longest("latency_ms", form, of=of), wording.latency)

    columns = [
        Column("Form", name_of_arm),
        *(Column(f"{tokens} tokens", partial(speed, tokens)) for tokens in lengths),
        Column(f"p50 at {longest}", partial(time, "p50")),
        Column(f"p99 at {longest}", partial(time, "p99")),
        Column(
            "Peak of a call",
            lambda form: value_text(at_longest("peak_bytes", form), wording.size_of_bytes),
        ),
        Column("With weights", lambda form: value_text(at_longest("memory_ratio", form), of_full)),
    ]
    timed = [str(record.labels["arm"]) for record in records.all("latency_ms", shape=SHAPE)]
    rows = dict.fromkeys(timed) if lengths else ()
    title = "Speed and memory at the shape of BERT-base"
    return table("shape", title, TEXT("shape"), rows, columns)


def certificate_block(records: RecordTable) -> Block:
    """The bound from discarded singular values beside the true error."""

    def value(name: str, share: float) -> float:
        return records.value(name, kept_share=share) or 0.0

    columns: list[Column[float]] = [
        Column("Width kept", whole_share),
        Column(
            "Score error of its bound",
            lambda at: f"{value('score_error', at):.2f} of {value('score_error_bound', at):.1f}",
        ),
        Column(
            "Output error of its bound",
            lambda at: " of ".join(
                whole_share(value(name, at)) for name in ("output_error", "output_error_bound")
            ),
        ),
        Column(
            "Bound over error", lambda at: wording.factor(max(1.0, value("bound_over_error", at)))
        ),
        Column("Bound says nothing", lambda at: whole_share(value("bound_saturated", at))),
        Column(
            "Under 10 %: certified of true",
            lambda at: " of ".join(
                wording.share(value(name, at)) for name in ("certified", "truly_small")
            ),
        ),
    ]
    shares = dict.fromkeys(number(r, "kept_share") for r in records.all("bound_over_error"))
    title = "The certificate from discarded singular values is vacuous"
    return table("certificate", title, TEXT("certificate"), shares, columns)
