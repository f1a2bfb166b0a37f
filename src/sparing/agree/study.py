"""``agree``: open the classifiers, answer every distinct text, compare, and time them in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparing.agree.answers import Answers, Encoder, logits_of, require_batch, with_labels
from sparing.agree.classifier import Classifier, open_classifier
from sparing.agree.comparison import (
    agreement_of,
    changes_of,
    counts_of,
    paired_difference,
    same_answers,
    shift_of,
)
from sparing.agree.result import Reference, Result, Speed
from sparing.core.errors import DataError, UsageError
from sparing.core.progress import Progress
from sparing.experiment.inputs.task import drawn_order
from sparing.measure.calibration import examples_needed
from sparing.measure.inputs import speed_up, time_inputs
from sparing.tasks.shared.text import fast_tokenizer
from sparing.tasks.texts import Texts

A, B, DENSE = "A", "B", "reference"
ROUNDS = 3
Same = NDArray[np.bool_]


@dataclass(frozen=True)
class Options:
    """How two classifiers are compared.

    ``at_least`` is the share of equal answers that is required (0: none). ``threshold`` is the
    probability from which a label is given, by a classifier of several labels. ``batch`` texts are
    answered at a time. ``timed`` texts, sampled evenly, are timed (0: none). ``threads`` compute.
    ``tokenizer`` is for classifiers that come without one.
    """

    at_least: float = 0.0
    threshold: float = 0.5
    batch: int = 1
    timed: int = 200
    threads: int = 1
    tokenizer: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.at_least < 1:
            raise UsageError(f"at_least must be from 0 to below 1, got {self.at_least:g}")
        if not 0 < self.threshold < 1:
            raise UsageError(f"threshold must be between 0 and 1, got {self.threshold:g}")
        for name, least in (("batch", 1), ("timed", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")


def run(
    first: str,
    second: str,
    texts: Texts,
    options: Options | None = None,
    *,
    reference: str = "",
    on_progress: Progress = lambda fraction, text: None,
) -> Result:
    """Compare the answers of two classifiers, A and B, on the distinct ones of these texts.

    With a ``reference`` both are compared with it too, in pairs. Raises ``DataError`` for fewer
    texts than ``at_least`` needs, before anything is opened, and the errors of ``open_classifier``,
    ``with_labels`` and ``logits_of``.
    """
    options = options or Options()
    _require_enough(texts, options.at_least)
    rows = [index + 1 for index in texts.distinct]
    distinct = texts.subset(texts.distinct)
    names = {A: first, B: second, **({DENSE: reference} if reference else {})}
    opened = _opened(names, options, on_progress)
    classifiers = _completed(opened, options)
    notes = _notes(opened)
    answers, encoders, more = _answered(classifiers, distinct, options, on_progress)
    changes = changes_of(distinct, rows, answers[A], answers[B])
    speed = _speed(classifiers, encoders, len(distinct), options, on_progress)
    on_progress(1.0, "done")
    return Result(
        a=first,
        b=second,
        engines=(classifiers[A].engine, classifiers[B].engine),
        source=texts.source,
        agreement=agreement_of(same_answers(answers[A], answers[B])),
        shift=shift_of(answers[A], answers[B]),
        changes=tuple(changes),
        counts=tuple(counts_of(changes)),
        speed=speed,
        reference=_reference(reference, answers),
        at_least=options.at_least,
        batch=options.batch,
        threads=options.threads,
        notes=(*texts.notes, *notes, *more),
    )


def _require_enough(texts: Texts, at_least: float) -> None:
    texts.require_distinct(2, "a comparison")
    if at_least:
        needed = examples_needed(1 - at_least)
        texts.require_distinct(needed, f"to show {at_least:g} with 95 % confidence, it")


def _opened(
    names: Mapping[str, str], options: Options, on_progress: Progress
) -> dict[str, Classifier]:
    opened = {}
    for number, (role, name) in enumerate(names.items()):
        on_progress(0.02 * number, f"opening {name}")
        opened[role] = open_classifier(name, threads=options.threads)
        require_batch(opened[role], options.batch)
    return opened


def _completed(classifiers: Mapping[str, Classifier], options: Options) -> dict[str, Classifier]:
    """Every classifier with a tokenizer and its kind of answer, from the others where it has none.

    Raises ``UsageError`` where none has a tokenizer, and where some give one class, some several.
    """
    other: Any = fast_tokenizer(options.tokenizer) if options.tokenizer else None
    for classifier in classifiers.values():
        other = other or classifier.tokenizer
    listed = " nor ".join(classifier.name for classifier in classifiers.values())
    if other is None:
        raise UsageError(f"neither {listed} comes with a tokenizer: give one with --tokenizer")
    kinds = {c.several: c.name for c in classifiers.values() if c.several is not None}
    if len(kinds) > 1:
        raise UsageError(f"{kinds[True]} gives several labels a text, {kinds[False]} one class")
    several = next(iter(kinds), False)
    if not several and options.threshold != Options.threshold:
        raise UsageError("threshold is for classifiers of several labels; these give one class")
    return {
        role: replace(one, tokenizer=one.tokenizer or other, several=several)
        for role, one in classifiers.items()
    }


def _answered(
    classifiers: Mapping[str, Classifier], texts: Texts, options: Options, on_progress: Progress
) -> tuple[dict[str, Answers], dict[str, Encoder], list[str]]:
    """The answers of each classifier to all texts, in A's order of labels."""
    answers: dict[str, Answers] = {}
    encoders, notes = {}, list[str]()
    for number, (role, classifier) in enumerate(classifiers.items()):
        encoders[role] = encoder = Encoder(classifier, texts)
        encoded = [encoder.encode(index) for index in range(len(texts))]
        notes += encoder.notes(encoded)
        start, share = 0.1 + 0.7 * number / len(classifiers), 0.7 / len(classifiers)
        logits = logits_of(
            encoder,
            encoded,
            batch=options.batch,
            threads=options.threads,
            on_progress=_part(on_progress, start, share, f"answers of {classifier.name}"),
        )
        answers[role], more = with_labels(answers.get(A), logits, classifier, options.threshold)
        notes += more
    return answers, encoders, notes


def _part(on_progress: Progress, start: float, share: float, words: str) -> Callable[[float], None]:
    return lambda fraction: on_progress(start + share * fraction, words)


def _notes(classifiers: Mapping[str, Classifier]) -> list[str]:
    """What differs between the classifiers besides their answers, and what is assumed."""
    notes = []
    if len({classifier.limit for classifier in classifiers.values()}) > 1:
        listed = ", ".join(f"{c.name} at {c.limit or 'no'} tokens" for c in classifiers.values())
        notes.append(f"longer texts are cut: {listed}")
    tokenizers = [c.tokenizer.get_vocab() for c in classifiers.values() if c.tokenizer]
    if any(vocabulary != tokenizers[0] for vocabulary in tokenizers):
        notes.append("the classifiers have different tokenizers; each reads the texts by its own")
    if all(classifier.several is None for classifier in classifiers.values()):
        notes.append("no configuration is beside the models: one class a text is assumed")
    return notes


def _reference(name: str, answers: Mapping[str, Answers]) -> Reference | None:
    if not name:
        return None
    same = {role: same_answers(answers[DENSE], answers[role]) for role in (A, B)}
    return Reference(
        name,
        agreement_of(same[A]),
        agreement_of(same[B]),
        paired_difference(same[A], same[B]),
    )


def _speed(
    classifiers: Mapping[str, Classifier],
    encoders: Mapping[str, Encoder],
    count: int,
    options: Options,
    on_progress: Progress,
) -> Speed | None:
    """B's speed over A's on a sample of the texts, without and with the tokenizer."""
    if not options.timed:
        return None
    starts = range(0, count - options.batch + 1, options.batch)
    sampled = sorted(drawn_order(len(starts))[: max(1, options.timed // options.batch)])
    groups = [list(range(starts[n], starts[n] + options.batch)) for n in sampled]
    if not groups:
        raise DataError(f"{count} distinct texts are fewer than one batch of {options.batch}")
    ready = {role: {group[0]: encoders[role].inputs(group) for group in groups} for role in (A, B)}

    def without(role: str) -> Callable[[list[int]], Any]:
        return lambda group: classifiers[role].run(ready[role][group[0]])

    def including(role: str) -> Callable[[list[int]], Any]:
        return lambda group: classifiers[role].run(encoders[role].inputs(group))

    calls = {role: without(role) for role in (A, B)}
    calls |= {f"{role} with tokenizer": including(role) for role in (A, B)}
    times = time_inputs(
        calls,
        groups,
        rounds=ROUNDS,
        threads=options.threads,
        on_progress=_part(on_progress, 0.8, 0.2, "times"),
    )
    return Speed(
        speed_up(times[B], times[A]),
        speed_up(times["B with tokenizer"], times["A with tokenizer"]),
        {role: float(times[role].typical_ms.mean()) for role in calls},
        times[A].load,
    )
