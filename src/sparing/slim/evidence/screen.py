"""Which forms can be worth their answers: a few texts show those that are slower than float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparing.core.record import Label, Record
from sparing.measure.inputs import InputTimes, fastest, time_inputs
from sparing.slim.engines import Runs
from sparing.slim.evidence.candidates import DENSE, OURS, SOME, Candidate, Screened
from sparing.slim.search.choose import sample
from sparing.slim.steps import Steps, speed_record

# A form stays if it is slower than this by noise alone; timed on so many texts, in blocks.
SLOWER, SAMPLE, BLOCK, ROUNDS = 1.2, 24, 4, 3
# Exits and cuts are chosen by small differences of their times.
MORE = 120
EXACT = "float32"
Times = Mapping[str, InputTimes[Any]]


def screen(steps: Steps) -> tuple[tuple[Screened, ...], list[Record]]:
    """Every form with its speed at the first batch size, and whether it competes.

    A form does not compete if it is ``SLOWER`` there than the fastest float32 form of the same
    model: that one changes fewer answers, or as many. Slim's fastest form also competes with its
    exits, and as each of its cuts. All speeds are recorded.
    """
    both = steps.forms
    keys = both.keys
    runs = both.runs(keys)
    near: dict[int, list[Candidate]] = {}
    records: list[Record] = []
    speeds: dict[Candidate, float] = {}
    for batch in steps.options.batches:
        times = _time_few(steps, runs, batch)
        near[batch] = competing(keys, times)
        baseline = times[fastest(times, _exact(keys, DENSE))]
        for key in keys:
            labels: dict[str, Label] = {**key.labels, "batch": batch}
            records.append(speed_record("screened_speed", times[str(key)], baseline, labels))
            speeds.setdefault(key, float(records[-1].value or 0))
    first = near[steps.options.batches[0]]
    somewhere = {key for some in near.values() for key in some}
    for record in records:
        record.labels["competes"] = Candidate.from_labels(record.labels) in first
    forms = [Screened(key, speeds[key], key in first, key in somewhere) for key in keys]
    more, more_records = _with_exits(steps, forms)
    return (*forms, *more), [*records, *more_records]


def _with_exits(steps: Steps, forms: Sequence[Screened]) -> tuple[list[Screened], list[Record]]:
    """Slim's fastest form with its exits, where no input leaves, and as each of its cuts."""
    both, plan = steps.forms, steps.plan()
    if not both.cuts:
        return [], []
    ours, dense = (fastest_of(forms, model).candidate for model in (OURS, DENSE))
    cuts = [replace(ours, layers=count) for count in sorted(both.cuts)]
    exiting = [replace(ours, threshold=SOME)] if plan.stops else []
    runs = both.runs([*cuts, dense]) | {str(key): both.without_leaving(key) for key in exiting}
    batch = steps.options.batches[0]
    times = _time_few(steps, runs, batch, MORE)
    listed, records = list[Screened](), list[Record]()
    for key in [*exiting, *cuts]:
        labels: dict[str, Label] = {**key.labels, "batch": batch, "competes": True}
        records.append(speed_record("screened_speed", times[str(key)], times[str(dense)], labels))
        listed.append(Screened(key, float(records[-1].value or 0), competes=True, near=False))
    return listed, records


def fastest_of(forms: Sequence[Screened], model: str) -> Screened:
    """Slim's fastest form that competes, or the fastest dense form in float32."""
    usable = [form for form in forms if form.competes and form.candidate.model == model]
    if model == DENSE:
        usable = [form for form in usable if form.candidate.precision == EXACT]
    return max(usable, key=lambda form: form.speed)


def _time_few(steps: Steps, runs: Runs, batch: int, count: int = SAMPLE) -> Times:
    """The times of a few choosing inputs."""
    inputs = sample(steps, steps.parts[0], max(2, count // batch), batch)
    threads = steps.engines.thread_count
    return time_inputs(runs, inputs, rounds=ROUNDS, threads=threads, block=BLOCK)


def competing(keys: Sequence[Candidate], times: Times) -> list[Candidate]:
    """The forms that are not much slower than the fastest float32 form of the same model."""
    limits = {
        model: SLOWER * _total(times, fastest(times, _exact(keys, model)))
        for model in {key.model for key in keys}
    }
    return [key for key in keys if _total(times, str(key)) <= limits[key.model]]


def _exact(keys: Sequence[Candidate], model: str) -> list[str]:
    return [str(key) for key in keys if (key.model, key.precision) == (model, EXACT)]


def _total(times: Times, name: str) -> float:
    return float(times[name].typical_ms.sum())
