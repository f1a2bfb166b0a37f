"""The table of forms: dense and slim in every engine and precision, time and score together."""

from __future__ import annotations

from sparing.report import wording
from sparing.report.cells import Cell, Column, Row, Tone
from sparing.slim.page.results import DENSE, Form, SlimResults
from sparing.slim.page.wording import (
    engine_name,
    record_speed,
    scale_of,
    score_name,
    speed_interval,
)

_APART = (
    " Forms timed apart ran later, beside a dense form timed with them: their speeds are against "
    "that one, and their milliseconds do not compare with the others'."
)
_POSITIONS = {"dense": 0, "slim": 1, "dense int8": 5, "slim int8": 6}


def form_columns(results: SlimResults) -> list[Column]:
    """The columns of ``form_rows``."""
    return [
        Column("mean", "Mean time", "of one call"),
        Column("p50", "p50"),
        Column("p99", "p99"),
        Column("speed", "Speed", "against the fastest dense"),
        Column("score", score_name(results).capitalize(), "test split"),
        Column("difference", "Difference", "to the fastest dense"),
    ]


def form_rows(results: SlimResults) -> list[Row]:
    """One row a form, by batch size; names are those of ``form_name``."""
    return [_row(results, form) for form in results.forms]


def form_name(form: Form) -> str:
    """A form's name: what and where it runs."""
    arm = form.arm.replace("int8", "INT8")
    return f"{arm}, {engine_name(form.engine)}"


def form_position(form: Form) -> int:
    """What gives a form its sign: the dense model is ink, the slim one has the front's colour."""
    if form.arm in _POSITIONS:
        return _POSITIONS[form.arm]
    return 7 + sum(map(ord, form.arm)) % 4


def form_words(results: SlimResults) -> str:
    """How the table came about."""
    form = next(iter(results.forms), None)
    if form is None:
        return "No form was timed in this run so far."
    threads = results.run.config.get("threads")
    pinned = f", {wording.count_of(threads, 'thread')}" if isinstance(threads, int) else ""
    counts = wording.listing([_count_words(results, b) for b in _batches(results)])
    return (
        f"Every form ran the same test inputs in turns, unpadded or grouped by length{pinned}: "
        f"{counts}. Scores come from the calls that were timed. Speed is the fastest dense form's "
        "time for all inputs over the form's own, with its 95 % interval over inputs. "
        "A difference has its 90 % interval, whose lower end is the one-sided 95 % bound."
        + (_APART if any(map(results.apart, results.forms)) else "")
    )


def _batches(results: SlimResults) -> list[int]:
    return sorted({form.batch for form in results.forms})


def _count_words(results: SlimResults, batch: int) -> str:
    form = next(form for form in results.forms if form.batch == batch)
    timed = results.all.find("latency_ms", of="mean", **form.labels)
    count = timed.count if timed else 0
    return wording.count_of(
        count,
        f"{'call' if batch > 1 else 'input'} at batch {batch}",
        (f"{'calls' if batch > 1 else 'inputs'} at batch {batch}"),
    )


def _row(results: SlimResults, form: Form) -> Row:
    cells = {of: _time_cell(results.latency(form, of)) for of in ("mean", "p50", "p99")}
    cells["speed"] = _speed_cell(results, form)
    cells["score"] = _score_cell(results, form)
    cells["difference"] = _difference_cell(results, form)
    note = "timed apart" if results.apart(form) else ""
    return Row(form_name(form), False, note, cells, f"batch {form.batch}")


def _time_cell(time_ms: float | None) -> Cell:
    if time_ms is None:
        return Cell("not measured", (), "missing")
    return Cell(wording.latency(time_ms), (), "neutral", time_ms, None, "measured")


def _speed_cell(results: SlimResults, form: Form) -> Cell:
    found = results.speed_up(form)
    if found is None or found.value is None:
        is_reference = form == results.reference(form.batch)
        return Cell("fastest dense") if is_reference else Cell("not measured", (), "missing")
    text = record_speed(results, found)
    clear = text.endswith(("faster", "slower"))
    tone: Tone = "neutral" if not clear else "gain" if found.value > 1 else "loss"
    notes = (speed_interval(found.interval),)
    return Cell(text, notes, tone, found.value, found.interval, found.obtained)


def _score_cell(results: SlimResults, form: Form) -> Cell:
    found = results.all.find("score", split="test", **form.labels)
    if found is None or found.value is None:
        return Cell("not measured", (), "missing")
    notes = (wording.count_of(found.count, "input"),)
    text = scale_of(results).text(found.value)
    return Cell(text, notes, "neutral", found.value, None, found.obtained)


def _difference_cell(results: SlimResults, form: Form) -> Cell:
    if form.arm == DENSE and form == results.reference(form.batch):
        return Cell("fastest dense")
    found = results.all.find("score_difference", split="test", **form.labels)
    if found is None or found.value is None:
        return Cell("not measured", (), "missing")
    scale = scale_of(results)
    if found.value == 0 and found.interval in (None, (0.0, 0.0)):
        return Cell("none", (), "neutral", 0.0, found.interval, found.obtained)
    notes = (scale.interval(found.value, found.interval),) if found.interval else ()
    clear = found.interval is not None and not found.interval[0] <= 0 <= found.interval[1]
    tone: Tone = "neutral" if not clear else "gain" if found.value > 0 else "loss"
    text = scale.difference(found.value, found.interval)
    return Cell(text, notes, tone, found.value, found.interval, found.obtained)
