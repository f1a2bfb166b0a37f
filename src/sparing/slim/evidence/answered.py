"""The answers of forms after every exit, to each example alone, and which of them are shared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sparing.core.errors import DataError
from sparing.export.engine import Chain
from sparing.slim.engines import cascade_precision
from sparing.slim.evidence.candidates import DENSE, SOME, Candidate
from sparing.slim.inputs import alone
from sparing.slim.steps import Steps
from sparing.tasks import Examples

EXACT = "float32"
# Engines in float32 share answers if those to so many examples differ by at most this.
COMPARED, CLOSE = 48, 1e-4
Answered = Mapping[Candidate, tuple[Tensor, ...]]


def form_answers(
    steps: Steps,
    keys: Iterable[Candidate],
    parts: Sequence[Examples],
    certified: Collection[int] = (),
) -> Answered:
    """The answers of forms without thresholds to each part, as (examples, exits, width).

    Examples are answered one at a time: INT8 scales that a whole batch shares would make an answer
    depend on its neighbours. Where a cascade may follow, the last answers are the dense model's.

    In float32 one engine answers for the others of its model, and an exit of slim's plan for the
    cut after it, if they answer ``COMPARED`` examples alike. To the parts numbered in ``certified``
    each form of slim gives its own answers: a certificate is of one form. Raises ``DataError`` for
    answers that are not finite.
    """
    done: dict[Candidate, tuple[Tensor, ...]] = {}
    for key in sorted(keys, key=_turn):
        done[key] = _answered(steps, key, parts, certified, done)
    return done


def _turn(key: Candidate) -> tuple[bool, ...]:
    """Whose answers others use go first: dense, whole, float32, and files, which run abreast."""
    cut = key.layers is not None
    return key.model != DENSE, cut, key.precision != EXACT, key.engine == "eager"


def _answered(
    steps: Steps,
    key: Candidate,
    parts: Sequence[Examples],
    certified: Collection[int],
    done: Answered,
) -> tuple[Tensor, ...]:
    """One form's answers to each part; ``done`` are those of the forms before it."""
    last = _end_of_cascade(steps, key, done)
    chain = steps.forms.chain(key, cascade=last is None and _may_cascade(steps, key))
    shared = _shared(steps, key, chain, parts[0], done)
    answers = []
    for number, examples in enumerate(parts):
        if shared and (key.model == DENSE or number not in certified):
            answers.append(shared[number].clone())
            continue
        made = torch.cat([*_one_by_one(steps, key, chain, examples)])
        if not made.isfinite().all():
            raise DataError(f"{key} gives answers that are not finite numbers")
        answers.append(made if last is None else torch.cat([made, done[last][number][:, -1:]], 1))
    return tuple(answers)


def _may_cascade(steps: Steps, key: Candidate) -> bool:
    return key.cascades and steps.answer.exits


def _end_of_cascade(steps: Steps, key: Candidate, done: Answered) -> Candidate | None:
    """The dense form at the end of a form's cascade, if its answers are known.

    In float32 all engines give the same answers, so that any of them serves.
    """
    if not _may_cascade(steps, key):
        return None
    precision = cascade_precision(key.precision)
    forms = _known(done, DENSE, precision)
    same = [one for one in forms if one.engine == key.engine]
    usable = same or (forms if precision == EXACT else [])
    return usable[0] if usable else None


def _known(done: Answered, model: str, precision: str) -> list[Candidate]:
    """The forms of a model and precision whose answers are known, in their order."""
    return [one for one in done if (one.model, one.precision) == (model, precision)]


def _shared(
    steps: Steps, key: Candidate, chain: Chain, examples: Examples, done: Answered
) -> Sequence[Tensor]:
    """The answers of another form that answers a few examples alike; empty where none does."""
    known = _at_exit(steps, key, done) if key.layers else _of_twin(key, done)
    if not known:
        return ()
    rows = list(range(0, len(examples), max(1, len(examples) // COMPARED)))[:COMPARED]
    made = torch.cat([*_one_by_one(steps, key, chain, examples.subset(rows))])
    alike = (made - known[0][rows, : made.shape[1]]).abs() <= CLOSE
    return known if bool(alike.all()) else ()


def _of_twin(key: Candidate, done: Answered) -> Sequence[Tensor]:
    """Those of the same model in float32 in another engine, with exits if this has some."""
    known = _known(done, key.model, EXACT) if key.precision == EXACT else []
    twins = [one for one in known if one.exits == key.exits]
    return done[twins[0]] if twins else ()


def _at_exit(steps: Steps, key: Candidate, done: Answered) -> Sequence[Tensor]:
    """Those after the exit behind a cut's layers, and the dense model's where it may follow."""
    known, ends = done.get(replace(key, layers=None, threshold=SOME), ()), sorted(steps.forms.cuts)
    exit_number = ends.index(key.layers or 0)
    return [made[:, [exit_number, *range(len(ends), made.shape[1])]] for made in known]


def _one_by_one(steps: Steps, key: Candidate, chain: Chain, examples: Examples) -> Iterator[Tensor]:
    """The answers (1, exits, width) to each example alone, in their order."""
    task, at_once = steps.task, steps.forms.at_once(key)
    for row, made in enumerate(alone(task, examples, chain.every_exit, at_once)):
        yield torch.stack([task.read(at.float(), examples, [row]) for at in made.unbind(1)], 1)
