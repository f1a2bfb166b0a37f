"""All forms answer the choosing and the calibration texts, are timed, and are certified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sparing.core.errors import DataError
from sparing.core.record import Label, Record
from sparing.experiment.run import read_tensors, save_tensors
from sparing.measure.calibration import upper_bound
from sparing.measure.inputs import fastest, speed_up, time_inputs
from sparing.slim.engines import BothForms
from sparing.slim.evidence.answered import form_answers
from sparing.slim.evidence.between import candidates_between, may_come_between, staged
from sparing.slim.evidence.candidates import (
    DENSE,
    Candidate,
    Point,
    Screened,
    Timed,
    candidates_of,
    losses,
    shares_to_try,
    stages,
    taken,
    with_safer,
)
from sparing.slim.evidence.certified import certified_frontier
from sparing.slim.evidence.representative import representative
from sparing.slim.evidence.screen import screen
from sparing.slim.search.choose import sample
from sparing.slim.state import is_reference
from sparing.slim.steps import Steps

FILE = "form-answers.safetensors"
PARTS = ("choose", "calibrate")
# Texts that candidates are timed on, and how many in a row each of them runs.
SAMPLE, BLOCK, ROUNDS = 120, 12, 3
Logits = Mapping[Candidate, Tensor]


def answer_forms(steps: Steps) -> list[Record]:
    """The answers of every form that competes to the texts to choose and to calibrate on.

    Each form that may be certified answers the texts to calibrate on itself.
    """
    forms, records = screen(steps)
    keys = [form.candidate for form in forms if form.competes]
    stored = dict[str, Tensor]()
    for key, answers in form_answers(steps, keys, steps.parts, {PARTS.index("calibrate")}).items():
        stored |= {stored_name(key, part): made for part, made in zip(PARTS, answers, strict=True)}
        segments = answers[0].shape[1]
        records.append(Record("form_segments", segments, "segments", "modelled", key.labels))
    save_tensors(steps.models.folder / FILE, stored)
    steps.keep(forms=forms)
    return records


def time_candidates(steps: Steps) -> list[Record]:
    """Choose thresholds for every form, and time all candidates on the same choosing texts."""
    both = steps.forms
    logits, dense = answers_of(steps, both, "choose"), steps.dense_logits
    shares, plan = shares_to_try(*_promise(steps)), steps.plan()
    layers = (*plan.stops, plan.layers)
    listed = every_candidate(steps.state.forms, logits, layers, dense, shares)
    listed = [one for one in with_safer(listed, logits) if both.fits(one)]
    speeds = _speeds(steps, both, listed, _efforts(listed, logits))
    timed = [_timed(steps, one, stages(one, logits), speeds[one]) for one in listed]
    steps.keep(candidates=tuple(timed))
    return [_candidate_record(one, len(steps.parts[0])) for one in timed]


def every_candidate(
    forms: Sequence[Screened],
    answers: Logits,
    layers: Sequence[int],
    reference: Tensor,
    shares: Sequence[float],
) -> list[Candidate]:
    """The boldest candidates of these forms by their answers to the choosing texts.

    ``reference`` are the dense model's, (texts, classes), and ``layers`` as in ``costs_of``. Few
    should compete, as each that fails its certificate ends a sequence of tests. So a cut that can
    go by way of dense INT8 goes no other way.
    """
    listed = list[Candidate]()
    for key, made in answers.items():
        alone, *bolder = candidates_of(key, made, reference, shares)
        repeated = key.exits or key.layers == layers[-1]  # the whole plan alone is a key itself
        listed += [] if repeated else [alone]
        through = key.layers and may_come_between(key, answers)
        straight = key.model == DENSE or key.exits or (key.layers and not through)
        listed += bolder if straight else []
    return listed + candidates_between(staged(forms, answers, layers), reference, shares)


def _promise(steps: Steps) -> tuple[int, Sequence[float], float]:
    """The number of calibration texts, the shares to certify, and the error probability."""
    return len(steps.parts[1]), steps.epsilons, steps.options.delta


def certify(steps: Steps) -> list[Record]:
    """Certify the frontier on the calibration texts, which no training and no choice has seen.

    With ``agree`` it is one point, at the whole level ``delta``. Else its points hold together.
    Forms that lose more score than the floor allows where plans are chosen do not compete. Nor do
    those that are no faster than the dense model in float32, which changes nothing.
    """
    both = steps.forms
    choose, calibrate = (answers_of(steps, both, part) for part in PARTS)
    forms = (timed for timed in steps.state.candidates if not is_reference(timed))
    competing = [timed for timed in forms if timed.good and timed.speed > 1]
    points = _points(steps, competing, choose, calibrate)
    steps.keep(points=tuple(points))
    return [*(_point_record(steps, point) for point in points), *_guarantee(steps)]


def _points(
    steps: Steps, competing: Sequence[Timed], choose: Logits, calibrate: Logits
) -> list[Point]:
    """The certified frontier of these forms; without any form its points have none."""
    forms = [timed.candidate for timed in competing]
    if not forms:
        return [Point(epsilon, None, 1.0, 0, len(steps.parts[1])) for epsilon in steps.epsilons]
    certified = certified_frontier(
        losses(forms, calibrate, steps.calibration_logits, steps.answer),
        torch.tensor([timed.speed for timed in competing]).numpy(),
        losses(forms, choose, steps.dense_logits, steps.answer),
        torch.tensor([timed.divergence for timed in competing]).numpy(),
        steps.epsilons,
        steps.options.delta,
    )
    return [
        Point(
            one.epsilon,
            None if one.form is None else forms[one.form],
            1.0 if one.speed is None else one.speed,
            one.changed or 0,
            one.examples,
        )
        for one in certified
    ]


def answers_of(steps: Steps, both: BothForms, part: str) -> dict[Candidate, Tensor]:
    """The stored answers of the forms that compete to one part, as (texts, exits, classes).

    Raises ``DataError`` for a file that is missing or damaged, and ``UsageError`` if other engines
    are installed now.
    """
    stored = read_tensors(steps.models.folder / FILE)
    both.require({form.candidate for form in steps.state.whole})
    keys = [*steps.state.competing, *(timed.candidate.key for timed in steps.state.candidates)]
    names = {key: stored_name(key, part) for key in keys}
    cut = any(key.layers for key in keys)
    # a run that an earlier version began has no cuts, and exits under another name
    if cut != bool(both.cuts) or not set(names.values()) <= set(stored):
        raise DataError(f"{FILE} lacks answers: begin the run anew with --overwrite")
    return {key: stored[name] for key, name in names.items()}


def stored_name(key: Candidate, part: str) -> str:
    """The name of a form's answers to a part in ``FILE``."""
    end = [f"first {key.layers}"] if key.layers else ["exits"] if key.exits else []
    return "|".join((part, key.model, key.engine, key.precision, key.settings, *end))


def _efforts(listed: Sequence[Candidate], logits: Logits) -> Tensor:
    """How late each text exits in the mean over candidates, from 0 on."""
    exits = [taken(one, stages(one, logits))[1].double() for one in listed]
    return torch.stack(exits).mean(0)


def _speeds(
    steps: Steps, both: BothForms, listed: Sequence[Candidate], efforts: Tensor
) -> dict[Candidate, float]:
    """Each candidate's speed over the fastest dense form in float32.

    ``efforts`` is of the choosing texts: those that are timed are chosen by it.
    """
    runs, choose = both.runs(listed), steps.parts[0]
    chosen = representative(efforts, choose.lengths, SAMPLE)
    inputs = sample(steps, choose.subset(chosen), SAMPLE)
    rounds, threads = min(ROUNDS, steps.options.rounds), steps.engines.thread_count
    times = time_inputs(runs, inputs, rounds=rounds, threads=threads, block=BLOCK)
    exact = [str(o) for o in listed if (o.model, o.precision) == (DENSE, "float32")]
    baseline = times[fastest(times, exact)]
    return {one: speed_up(times[str(one)], baseline).value for one in listed}


def _timed(steps: Steps, one: Candidate, logits: Tensor, speed: float) -> Timed:
    answers, _ = taken(one, logits)
    reference, answer = steps.dense_logits, steps.answer
    changed, distance = answer.changed(answers, reference), answer.distance(answers, reference)
    return Timed(one, changed, distance, steps.keeps_floor(answers), speed)


def _candidate_record(timed: Timed, count: int) -> Record:
    numbers: dict[str, Label] = {
        "changed": timed.changed,
        "divergence": timed.divergence,
        "good": timed.good,
    }
    labels = {**timed.candidate.labels, **numbers}
    return Record("candidate_speed", timed.speed, "ratio", "measured", labels, count=count)


def _point_record(steps: Steps, point: Point) -> Record:
    """One point of the frontier; without a certified form its value is None."""
    labels: dict[str, Label] = {
        "epsilon": point.epsilon,
        "delta": steps.options.delta,
        "points": len(steps.epsilons),
        "changed": point.changed,
    }
    if point.candidate is None:
        return Record("certified_speed", None, "ratio", "measured", labels, count=point.count)
    labels |= point.candidate.labels
    return Record("certified_speed", point.speed, "ratio", "measured", labels, count=point.count)


def _guarantee(steps: Steps) -> list[Record]:
    """The served form's changed answers on the calibration texts, and what is promised."""
    one = steps.served()
    point = next(p for p in steps.state.points if p.epsilon == steps.epsilon)
    # else it is the dense model in float32, the reference itself
    certified = one == point.candidate
    changed, count = (point.changed if certified else 0), point.count
    alone = upper_bound(changed, count, steps.options.delta)
    labels: dict[str, Label] = {
        **one.labels,
        "epsilon": steps.epsilon,
        "delta": steps.options.delta,
        "disagreements": changed,
        "reference": not certified,
        "bound_alone": alone,
        **steps.answer.agrees_by,
    }
    return [Record("disagreement", changed / count, "share", "measured", labels, count=count)]
