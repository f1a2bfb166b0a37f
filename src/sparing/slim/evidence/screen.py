"""Which forms can be worth their answers: a few texts show those that are slower than float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparing.core.record import Label, Record
from sparing.measure.inputs import InputTimes, fastest, speed_up, time_inputs
from sparing.slim.engines import Runs
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate, Screened
from sparing.slim.search.choose import sample
from sparing.slim.steps import Steps, speed_record

# A form stays if it is slower than this by noise alone; timed on so many texts, in blocks.
SLOWER, SAMPLE, BLOCK, ROUNDS = 1.2, 24, 4, 3
EXACT, EXITS = "float32", "with exits"
Times = Mapping[str, InputTimes[Any]]


def screen(steps: Steps) -> tuple[tuple[Screened, ...], list[Record]]:
    """Every form with its speed at the first batch size, and whether it competes.

    A form does not compete if it is ``SLOWER`` there than the fastest float32 form of the same
    model: that one changes fewer answers, or as many. The speeds are recorded. The cuts of slim's
    fastest form compete too.
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
    return (*_with_cuts(steps, forms),), records


def _with_cuts(steps: Steps, forms: Sequence[Screened]) -> list[Screened]:
    """These forms and the cuts of slim's fastest one, each with its speed at the first batch size.

    The speed of that form with exits is measured too.
    """
    both, ours = steps.forms, [f for f in forms if f.candidate.model == OURS and f.competes]
    if not both.cuts:
        return list(forms)
    best = max(ours, key=lambda form: form.speed)
    cuts = [replace(best.candidate, layers=count) for count in sorted(both.cuts)]
    runs = {**both.runs(cuts), EXITS: both.exiting(best.candidate)}
    times = _time_few(steps, runs, steps.options.batches[0])
    whole = times[str(cuts[-1])]
    speeds = {name: best.speed * speed_up(taken, whole).value for name, taken in times.items()}
    listed = [replace(f, exits_speed=speeds[EXITS]) if f == best else f for f in forms]
    return [*listed, *(Screened(cut, speeds[str(cut)], True, False) for cut in cuts)]


def _time_few(steps: Steps, runs: Runs, batch: int) -> Times:
    """The times of a few choosing inputs."""
    inputs = sample(steps, steps.parts[0], max(2, SAMPLE // batch), batch)
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
