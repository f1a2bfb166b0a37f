"""Every tested form with its time, agreement and score; slim and dense in each precision."""

from __future__ import annotations

from collections.abc import Callable

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.cells import Cell, Column, Row, Tone
from sparing.report.run import Run
from sparing.report.sections import Comparison, Section, Text
from sparing.report.table import Column as TableColumn
from sparing.report.table import table
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.page import lookups, prose
from sparing.slim.page.verdict import names, than
from sparing.slim.page.wording import (
    NOT_DECIDED,
    divergence_text,
    gap_text,
    labelless,
    record_speed,
    score_name,
    score_text,
    speed_cell,
    speed_interval,
)
from sparing.slim.promise import ENGINES, PRECISIONS, form_name, form_of, promise_of

MISSING = Cell("not measured", (), "missing")
BASELINE = Cell("baseline")
POSITIONS = {
    ("dense", "float32"): 0,
    ("dense", "bfloat16"): 4,
    ("dense", "int8"): 5,
    ("slim", "float32"): 1,
    ("slim", "bfloat16"): 3,
    ("slim", "int8"): 2,
}


def class_name(form: Candidate) -> str:
    """Model and precision, which share a colour."""
    return f"{form.model}, {PRECISIONS.get(form.precision, form.precision)}"


def position(form: Candidate) -> int:
    """The colour and marker of a form."""
    return POSITIONS.get((form.model, form.precision), 6)


def positions(run: Run) -> dict[str, int]:
    """Those of all tested forms, and of their classes, by name."""
    tested = lookups.forms(run)
    return {name(form): position(form) for form in tested for name in (form_name, class_name)}


def forms_section(run: Run) -> Section:
    """The table of all tested forms, one row each."""
    tested = lookups.forms(run)
    if not tested:
        return Section("forms", "Every tested form", (Text(prose("no-forms")),))
    columns = _columns(run)
    heads = [head for head, _ in columns]
    served = promise_of(run.table)
    rows = [
        Row(
            form_name(form),
            False,
            "served" if served and served.form == form else "",
            {head.key: cell(form) for head, cell in columns},
            class_name(form).partition(",")[0],
        )
        for form in tested
    ]
    threads = run.config.get("threads")
    pinned = f", {wording.count_of(threads, 'thread')}" if isinstance(threads, int) else ""
    words = " ".join([prose("forms", threads=pinned, counts=_counts(run)), *_tokenizer(run)])
    return Section(
        "forms", "Every tested form", (Text(words), Comparison(heads, rows, head="Form"))
    )


def _tokenizer(run: Run) -> list[str]:
    """What the tokenizer takes beside, and the served form's speed with it."""
    batch = lookups.batches(run)[0]
    taken = run.table.value("tokenizer_ms", batch=batch, of="mean")
    if taken is None:
        return []
    what = "one text" if batch == 1 else wording.count_of(batch, "text")
    words = [prose("tokenizer", time=wording.latency(taken), what=what)]
    speed = run.table.find("text_speed_up", batch=batch)
    if speed is None or speed.labels["form"] == speed.labels["against"]:
        return words
    return [*words, prose("with-tokenizer", speed=than(run, speed), batch=batch)]


def _columns(run: Run) -> list[tuple[Column, Callable[[Candidate], Cell]]]:
    columns: list[tuple[Column, Callable[[Candidate], Cell]]] = []
    for batch in lookups.batches(run):
        time = Column(f"time{batch}", f"Time, batch {batch}")
        speed = Column(f"speed{batch}", f"Speed, batch {batch}")
        columns += [
            (time, lambda form, batch=batch: _time(run, form, batch)),  # type: ignore[misc]
            (speed, lambda form, batch=batch: _speed(run, form, batch)),  # type: ignore[misc]
        ]
    columns.append((Column("agreement", "Agreement", "with dense"), lambda f: _agreement(run, f)))
    if not labelless(run):
        columns += [
            (Column("score", score_name(run), "test split"), lambda f: _score(run, f)),
            (Column("difference", "Difference", "to dense"), lambda f: _difference(run, f)),
        ]
    if run.table.all("peak_bytes"):
        columns.append((Column("memory", "Peak memory", "one call"), lambda f: _memory(run, f)))
    return columns


def _counts(run: Run) -> str:
    counted = []
    for batch in lookups.batches(run):
        timed = run.table.find("latency_ms", of="mean", batch=batch)
        if timed is not None:
            noun = "call" if batch > 1 else "input"
            counted.append(f"{wording.count_of(timed.count, noun)} at batch {batch}")
    return wording.listing(counted)


def _time(run: Run, form: Candidate, batch: int) -> Cell:
    taken = {
        of: run.table.value("latency_ms", **form.labels, batch=batch, of=of)
        for of in ("mean", "p50", "p99")
    }
    mean = taken.pop("mean")
    if mean is None:
        return MISSING
    known = {of: wording.latency(time) for of, time in taken.items() if time is not None}
    notes = tuple(f"{of} {time}".replace(" ", "\N{NO-BREAK SPACE}") for of, time in known.items())
    return Cell(wording.latency(mean), notes, value=mean, obtained="measured")


def _speed(run: Run, form: Candidate, batch: int) -> Cell:
    record = lookups.speed_up(run, form, batch)
    if record is None:
        return BASELINE if form == lookups.baseline(run, batch) else MISSING
    text, value, ends = record_speed(run, record), record.value or 0.0, record.interval
    tone: Tone = "gain" if text.endswith("faster") else "loss"
    tone = tone if text.endswith(("faster", "slower")) else "neutral"
    notes = () if text == NOT_DECIDED else (speed_interval(ends),)
    return Cell(text, notes, tone, value, ends, record.obtained)


def _agreement(run: Run, form: Candidate) -> Cell:
    record = run.table.find("agreement", **form.labels)
    far = record.labels.get("divergence") if record else None
    notes = [f"divergence {divergence_text(float(far))}"] if isinstance(far, int | float) else []
    return _cell(record, lambda value: wording.share(value, 2), *notes)


def _score(run: Run, form: Candidate) -> Cell:
    record = run.table.find("whole_score", **form.labels, primary=True)
    return _cell(record, lambda value: score_text(run, value))


def _difference(run: Run, form: Candidate) -> Cell:
    record = run.table.find("whole_difference", **form.labels, primary=True)
    return _cell(record, lambda _: gap_text(run, record))


def _memory(run: Run, form: Candidate) -> Cell:
    weights = run.table.value("weight_bytes", **form.labels)
    notes = [f"weights {wording.size_of_bytes(weights)}"] if weights else []
    return _cell(run.table.find("peak_bytes", **form.labels), wording.size_of_bytes, *notes)


def _cell(record: Record | None, text: Callable[[float], str], *notes: str) -> Cell:
    if record is None or record.value is None:
        return MISSING
    return Cell(text(record.value), notes, value=record.value, obtained=record.obtained)


def engines_block(run: Run) -> Block:
    """Slim beside dense within each precision, and which engines there were."""
    given = run.config.get("forms")
    known = given if isinstance(given, dict) else {}
    present, missing = (_listed(known.get(name)) for name in ("measured", "missing"))
    explain = prose("engines", measured="; ".join(present) or "not recorded")
    if missing:
        explain += f" {prose('engines-missing', missing='; '.join(missing))}"
    explain += _slower(run)
    named = names(run)

    def name(label: str) -> Callable[[Record], str]:
        return lambda record: named.get(
            str(record.labels.get(label)), str(record.labels.get(label))
        )

    columns = [
        TableColumn[Record]("Precision", lambda r: PRECISIONS.get(_text(r), _text(r))),
        TableColumn("Batch", lambda r: str(r.labels.get("batch"))),
        TableColumn("Slim", name("form")),
        TableColumn("Dense", name("against")),
        TableColumn("Slim over dense", lambda r: speed_cell(run, r)),
    ]
    speeds = run.table.all("class_speed_up")
    speeds.sort(key=lambda r: list(PRECISIONS).index(_text(r)) if _text(r) in PRECISIONS else 9)
    if speeds:
        explain += f" {prose('classes')}"
    return table("engines", "Engines and precisions", explain, speeds, columns)


def _slower(run: Run) -> str:
    """Which forms were left out as too slow, as a sentence."""
    batch = lookups.batches(run)[0]
    screened = run.table.all("screened_speed", batch=batch)
    slower = [form_name(form_of(record)) for record in screened if not record.labels["competes"]]
    if not slower:
        return ""
    count = wording.count_of(screened[0].count, "call" if batch > 1 else "input")
    return f" {prose('slower', count=count, forms='; '.join(slower))}"


def _text(record: Record) -> str:
    return str(record.labels.get("precision"))


def _listed(forms: object) -> list[str]:
    """Forms as the configuration has them, with the display names of engines and precisions."""
    shown = list(map(str, forms)) if isinstance(forms, list) else []
    for name, words in ENGINES.items():
        shown = [form.replace(f"{name} ", f"{words} ", form.startswith(name)) for form in shown]
    return [form.replace(" int8", " INT8", 1) for form in shown]
