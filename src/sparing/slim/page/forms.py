"""The table of forms: dense and slim in every engine and precision, time and score together."""

from __future__ import annotations

from sparing.report import wording
from sparing.report.cells import Cell, Column, Row, Tone
from sparing.report.run import Run
from sparing.slim.page import prose
from sparing.slim.page.lookups import DENSE, Form, apart, forms, latency, reference, speed_up
from sparing.slim.page.wording import (
    form_name,
    record_speed,
    scale_of,
    score_name,
    speed_interval,
)

POSITIONS = {"dense": 0, "slim": 1, "dense int8": 5, "slim int8": 6}
MISSING = Cell("not measured", (), "missing")


def form_columns(run: Run) -> list[Column]:
    """The columns of ``form_rows``."""
    return [
        Column("mean", "Mean time", "of one call"),
        Column("p50", "p50"),
        Column("p99", "p99"),
        Column("speed", "Speed", "against the fastest dense"),
        Column("score", score_name(run).capitalize(), "test split"),
        Column("difference", "Difference", "to the fastest dense"),
    ]


def form_rows(run: Run) -> list[Row]:
    """One row a form, by batch size; names are those of ``form_name``."""
    return [_row(run, form) for form in forms(run)]


def form_positions(run: Run) -> dict[str, int]:
    """The colour of each form: dense is ink, slim has the frontier's colour."""
    return {
        form_name(form.arm, form.engine): POSITIONS.get(form.arm, 7 + sum(map(ord, form.arm)) % 4)
        for form in forms(run)
    }


def form_words(run: Run) -> str:
    """How the forms were timed and scored."""
    timed = forms(run)
    if not timed:
        return prose("no-forms")
    threads = run.config.get("threads")
    pinned = f", {wording.count_of(threads, 'thread')}" if isinstance(threads, int) else ""
    first = {form.batch: form for form in reversed(timed)}
    counts = wording.listing([_count_words(run, first[batch]) for batch in sorted(first)])
    words = prose("forms", threads=pinned, counts=counts)
    return f"{words} {prose('forms-apart')}" if any(apart(run, form) for form in timed) else words


def _count_words(run: Run, form: Form) -> str:
    timed = run.table.find("latency_ms", of="mean", **form.labels)
    noun = "call" if form.batch > 1 else "input"
    return f"{wording.count_of(timed.count if timed else 0, noun)} at batch {form.batch}"


def _row(run: Run, form: Form) -> Row:
    cells = {of: _time_cell(latency(run, form, of)) for of in ("mean", "p50", "p99")}
    cells["speed"] = _speed_cell(run, form)
    cells["score"] = _score_cell(run, form)
    cells["difference"] = _difference_cell(run, form)
    note = "timed separately" if apart(run, form) else ""
    name = form_name(form.arm, form.engine)
    return Row(name, False, note, cells, f"batch {form.batch}")


def _time_cell(time_ms: float | None) -> Cell:
    if time_ms is None:
        return MISSING
    return Cell(wording.latency(time_ms), value=time_ms, obtained="measured")


def _tone(clear: bool, gain: bool) -> Tone:
    return "neutral" if not clear else "gain" if gain else "loss"


def _speed_cell(run: Run, form: Form) -> Cell:
    record = speed_up(run, form)
    if record is None or record.value is None:
        return Cell("fastest dense") if form == reference(run, form.batch) else MISSING
    text, interval = record_speed(run, record), record.interval
    tone = _tone(text.endswith(("faster", "slower")), record.value > 1)
    return Cell(text, (speed_interval(interval),), tone, record.value, interval, record.obtained)


def _score_cell(run: Run, form: Form) -> Cell:
    record = run.table.find("score", split="test", **form.labels)
    if record is None or record.value is None:
        return MISSING
    notes = (wording.count_of(record.count, "input"),)
    text = scale_of(run).text(record.value)
    return Cell(text, notes, value=record.value, obtained=record.obtained)


def _difference_cell(run: Run, form: Form) -> Cell:
    if form.arm == DENSE and form == reference(run, form.batch):
        return Cell("fastest dense")
    record = run.table.find("score_difference", split="test", **form.labels)
    if record is None or record.value is None:
        return MISSING
    scale, value, interval = scale_of(run), record.value, record.interval
    if value == 0 and interval in (None, (0.0, 0.0)):
        return Cell("none", (), "neutral", 0.0, interval, record.obtained)
    tone = _tone(interval is not None and not interval[0] <= 0 <= interval[1], value > 0)
    notes = (scale.interval(value, interval),) if interval else ()
    return Cell(scale.difference(value, interval), notes, tone, value, interval, record.obtained)
