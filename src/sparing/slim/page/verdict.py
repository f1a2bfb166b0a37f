"""The first sentences of the page: the guarantee, the speed, and whether the choice was clear."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.run import Run
from sparing.report.sections import Verdict
from sparing.slim.evidence.candidates import DENSE, Candidate
from sparing.slim.page import lookups, prose
from sparing.slim.page.wording import (
    record_speed,
    speed_interval,
)
from sparing.slim.promise import Promise, form_name, form_words, guarantee, promise_of


def verdict(run: Run) -> Verdict:
    """What is certified, how fast it is and what that means; or that nothing is certified yet."""
    promise = promise_of(run.table)
    if promise is None:
        stage = "failed" if run.failed else "running"
        return Verdict("No verdict yet", f": {prose(f'no-verdict-{stage}')}")
    lead, meaning = guarantee(promise)
    if promise.reference:
        because, second = meaning, [_uncertified(run, promise)]
    else:
        because, second = _speed(run, promise), [meaning, _noise(run, promise)]
    return Verdict(lead, f". {because}", tuple(filter(None, [*second, _goals(run)])))


def answer(run: Run) -> str:
    """The first sentences: what is certified, how fast it is, and what that means."""
    first, promise = verdict(run), promise_of(run.table)
    meaning = first.second[:1] if promise and not promise.reference else ()
    return " ".join((f"{first.lead}{first.because}", *meaning))


def _speed(run: Run, promise: Promise) -> str:
    """The served form and its speed over the best dense form that keeps as much."""
    form, batch = promise.form, lookups.batches(run)[0]
    served = "" if form.model == DENSE else f"{prose('served', form=form_words(form))} "
    record = run.table.find("served_speed_up", batch=batch)
    if record is None:
        return f"{served}{prose('not-tested')}"
    if run.table.disturbance(record):
        return f"{served}{prose('busy')}"
    if record.labels.get("form") == record.labels.get("against"):
        exact = lookups.speed_up(run, promise.form, batch)
        words = than(run, exact) if exact else ""
        return prose("speed-dense" if exact else "speed-best", batch=batch, speed=words)
    against = names(run).get(str(record.labels.get("against")), record.labels.get("against"))
    return served + prose("speed", batch=batch, speed=than(run, record), against=against)


def _uncertified(run: Run, promise: Promise) -> str:
    """The best dense form that is as near where forms are chosen, if it is clearly faster."""
    batch = lookups.batches(run)[0]
    record = run.table.find("served_speed_up", batch=batch)
    slower = record is not None and (record.interval or (1.0, 1.0))[1] < 1
    if record is None or not slower or run.table.disturbance(record):
        return ""
    form = names(run).get(str(record.labels.get("against")), record.labels.get("against"))
    speed = wording.ratio(1 / (record.value or 1.0), "slower", "faster")
    return prose("uncertified", form=form, speed=speed, batch=batch)


def than(run: Run, record: Record) -> str:
    """A speed-up as the words before "the other form"."""
    words = record_speed(run, record)
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
    """That the runner-up may be as fast: their intervals of speed overlap.

    A form that is certified for larger shares alone could not have been served.
    """
    batch, points = lookups.batches(run)[0], lookups.certified(run)
    certified = {form for share, form in points.items() if share <= promise.epsilon}
    looser = set(points.values()) - certified
    forms = [form for form in lookups.safe(run) if form not in looser]
    speeds = {form: _speed_of(run, form, batch) for form in forms}
    known = {form: speed for form, speed in speeds.items() if speed is not None}
    served = known.pop(promise.form, None)
    if served is None or not known:
        return ""
    second = max(known, key=lambda form: known[form][0])
    value, ends = known[second]
    low, high = served[1]
    if min(high, ends[1]) < max(low, ends[0]):
        return ""
    beside = f"{value:.2f}{wording.TIMES} ({ends[0]:.2f} to {ends[1]:.2f})"
    values = {"form": form_name(second), "beside": beside, "batch": batch}
    return prose(
        "noise", served=f"{served[0]:.2f}{wording.TIMES} ({low:.2f} to {high:.2f})", **values
    )


def _speed_of(run: Run, form: Candidate, batch: int) -> tuple[float, tuple[float, float]] | None:
    """A form's speed with its interval; the baseline has 1. None where nothing is decided."""
    record = lookups.speed_up(run, form, batch)
    if record is None:
        return (1.0, (1.0, 1.0)) if form == lookups.baseline(run, batch) else None
    if record.value is None or record.interval is None or run.table.disturbance(record):
        return None
    return record.value, record.interval


def _goals(run: Run) -> str:
    """Which of the goals that were declared are met."""
    words = {"True": "met", "False": "not met"}
    stated = [
        f"{goal.get('name')}: {words.get(str(goal.get('met')), 'undecided')}"
        for goal in run.goals
        if goal.get("value") is not None
    ]
    return prose("goals-met", goals="; ".join(stated)) if stated else ""
