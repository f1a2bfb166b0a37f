"""The first sentences of the page: the guarantee, the speed, and whether the choice was clear."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.figures.chart import Interval
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing.slim.evidence.candidates import DENSE, Candidate
from sparing.slim.page import lookups, prose
from sparing.slim.page.wording import (
    NOT_DECIDED,
    record_speed,
    speed_interval,
    speed_text,
)
from sparing.slim.promise import Promise, form_name, form_words, guarantee, promise_of


def verdict(run: Run) -> Verdict:
    """What is certified and how fast it is; before that, that there is no verdict yet."""
    promise = promise_of(run.table)
    if promise is None:
        stage = "failed" if run.failed else "running"
        return Verdict("No verdict yet", f": {prose(f'no-verdict-{stage}')}")
    lead, meaning = guarantee(promise)
    second = (meaning, _noise(run, promise), _goals(run))
    return Verdict(lead, f". {_speed(run, promise)}", tuple(filter(None, second)))


def _speed(run: Run, promise: Promise) -> str:
    """The served form and its speed over the best dense form that keeps as much."""
    form, batch = promise.form, lookups.batches(run)[0]
    served = "" if form.model == DENSE else f"{prose('served', form=form_words(form))} "
    record = run.table.find("served_speed_up", batch=batch)
    if record is None:
        return f"{served}{prose('not-tested')}"
    if record.labels.get("form") == record.labels.get("against"):
        return _of_dense(run, promise, batch)
    against = names(run).get(str(record.labels.get("against")), record.labels.get("against"))
    return served + prose("speed", batch=batch, speed=_than(run, record), against=against)


def _of_dense(run: Run, promise: Promise, batch: int) -> str:
    """The speed of a dense form that is the best one itself."""
    record = lookups.speed_up(run, promise.form, batch)
    if promise.reference or record is None:
        return prose("speed-best", batch=batch)
    return prose("speed-dense", batch=batch, speed=_than(run, record))


def _than(run: Run, record: Record) -> str:
    """A speed-up as the words before "the other form"."""
    words = record_speed(run, record)
    if words == NOT_DECIDED:
        return f"in a time {words}; it was compared with"
    if words == wording.SAME:
        return "as fast as"
    interval = speed_interval(record.interval)
    if words.endswith(("faster", "slower")):
        return f"{words} ({interval}) than"
    return f"neither clearly faster nor slower ({interval}) than"


def names(run: Run) -> dict[str, str]:
    """The display names of the tested forms by the names that records have."""
    return {str(form): form_name(form) for form in lookups.forms(run)}


def _noise(run: Run, promise: Promise) -> str:
    """That the runner-up may be as fast: their intervals of speed overlap."""
    batch = lookups.batches(run)[0]
    served = _interval(run, promise.form, batch)
    others = [form for form in lookups.safe(run) if form != promise.form]
    speeds = {form: _value(run, form, batch) for form in others}
    if served is None or not speeds:
        return ""
    second = max(others, key=lambda form: speeds[form])
    interval = _interval(run, second, batch)
    if interval is None or min(served[1], interval[1]) < max(served[0], interval[0]):
        return ""
    value = speed_text(speeds[second], interval)
    return prose(
        "noise", form=form_name(second), speed=value, ends=speed_interval(interval), batch=batch
    )


def _value(run: Run, form: Candidate, batch: int) -> float:
    record = lookups.speed_up(run, form, batch)
    if record is None:
        return 1.0 if form == lookups.baseline(run, batch) else 0.0
    return float(record.value or 0.0)


def _interval(run: Run, form: Candidate, batch: int) -> Interval:
    """The interval of a form's speed; the baseline has a speed of 1."""
    record = lookups.speed_up(run, form, batch)
    if record is None:
        return (1.0, 1.0) if form == lookups.baseline(run, batch) else None
    return record.interval


def _goals(run: Run) -> str:
    """Which of the goals that were declared are met."""
    words = {"True": "met", "False": "not met"}
    stated = [
        f"{goal.get('name')} {words.get(str(goal.get('met')), 'undecided')}"
        for goal in run.goals
        if goal.get("value") is not None
    ]
    return prose("goals-met", goals="; ".join(stated)) if stated else ""
