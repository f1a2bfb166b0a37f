"""``agree``: open the classifiers, answer every distinct text, compare, and time them in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparing.agree.answers import Answers, Encoder, logits_of, require_batch, with_labels
from sparing.agree.classifier import Classifier, open_classifier
from sparing.agree.comparison import (
    agreement_of,
    changes_of,
    paired_difference,
    same_answers,
    shift_of,
)
from sparing.agree.options import Options
from sparing.agree.result import Reference, Result, Speed
from sparing.core.errors import DataError, UsageError
from sparing.core.progress import Progress
from sparing.experiment.inputs.task import drawn_order
from sparing.measure.calibration import examples_needed
from sparing.measure.inputs import speed_up, time_inputs
from sparing.tasks.shared.text import fast_tokenizer
from sparing.tasks.texts import Texts, read_texts

A, B, DENSE = "A", "B", "reference"
ROUNDS = 3
Same = NDArray[np.bool_]


def agree(
    a: Any,
    b: Any,
    texts: Any,
    *,
    reference: Any = "",
    tokenizer: Any = None,
    columns: str | Sequence[str] | None = None,
    at_least: float = 0.0,
    threshold: float = 0.5,
    batch: int = 1,
    timed: int = 200,
    threads: int = 1,
) -> Result:
    """Compare the answers of two classifiers on your texts, without labels.

    ``a``, ``b`` and ``reference`` are folders, .onnx or .xml files, hub names or models;
    ``reference`` is a third one, with which both are compared in pairs. ``texts`` is a file of
    texts, a data set, a list, a mapping or a data frame, and ``columns`` names its texts.
    ``tokenizer`` is for classifiers without one. ``at_least`` is the share of equal answers to show
    with 95 % confidence. ``threshold`` is for several labels. ``batch`` texts are answered at a
    time, ``timed`` texts are timed (0: none) with ``threads`` threads. Raises ``UsageError`` for
    models that do not fit each other.

        print(sparing.agree("my-model", "fast.onnx", "texts.txt"))
    """
    options = Options(at_least, threshold, batch, timed, threads)
    rows = read_texts(texts, columns=columns)
    return run(a, b, rows, options, reference=reference, tokenizer=tokenizer)


def run(
    first: Any,
    second: Any,
    texts: Texts,
    options: Options | None = None,
    *,
    reference: Any = "",
    tokenizer: Any = None,
    on_progress: Progress = lambda fraction, text: None,
) -> Result:
    """Compare the answers of two classifiers, A and B, on the distinct ones of these texts.

    With a ``reference`` both are compared with it too, in pairs. ``tokenizer`` (an object, a folder
    or a hub name) is for classifiers without one. Raises ``DataError`` for fewer
    texts than ``at_least`` needs, before anything is opened, and the errors of ``open_classifier``,
    ``with_labels`` and ``logits_of``.
    """
    options = options or Options()
    _require_enough(texts, options.at_least)
    rows, distinct = [index + 1 for index in texts.distinct], texts.subset(texts.distinct)
    models = {A: first, B: second, **({DENSE: reference} if reference else {})}
    opened = _opened(models, options, on_progress)
    classifiers = _completed(opened, tokenizer, options)
    answers, encoders, notes = _answered(classifiers, distinct, options, on_progress)
    changes = changes_of(distinct, rows, answers[A], answers[B])
    speed = _speed(classifiers, encoders, len(distinct), options, on_progress)
    on_progress(1.0, "done")
    return Result(
        classifiers[A].name,
        classifiers[B].name,
        (classifiers[A].engine, classifiers[B].engine),
        texts.source,
        agreement_of(same_answers(answers[A], answers[B])),
        shift_of(answers[A], answers[B]),
        tuple(changes),
        speed,
        _reference(classifiers, answers),
        options,
        (*texts.notes, *_notes(opened), *notes),
    )


def _require_enough(texts: Texts, at_least: float) -> None:
    texts.require_distinct(2, "a comparison")
    if at_least:
        needed = examples_needed(1 - at_least)
        texts.require_distinct(needed, f"to show {at_least:g} with 95 % confidence, it")


def _opened(
    models: Mapping[str, Any], options: Options, on_progress: Progress
) -> dict[str, Classifier]:
    opened = {}
    for number, (role, model) in enumerate(models.items()):
        on_progress(0.02 * number, f"opening {role}")
        opened[role] = open_classifier(model, threads=options.threads)
        require_batch(opened[role], options.batch)
    return opened


def _completed(
    classifiers: Mapping[str, Classifier], tokenizer: Any, options: Options
) -> dict[str, Classifier]:
    """Every classifier with a tokenizer and its kind of answer, from the others where it has none.

    Raises ``UsageError`` where none has a tokenizer, and where some give one class, some several.
    """
    named = isinstance(tokenizer, str | Path)
    other = fast_tokenizer(str(tokenizer)) if named and str(tokenizer) else tokenizer or None
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


def _reference(
    classifiers: Mapping[str, Classifier], answers: Mapping[str, Answers]
) -> Reference | None:
    if DENSE not in classifiers:
        return None
    same = {role: same_answers(answers[DENSE], answers[role]) for role in (A, B)}
    return Reference(
        classifiers[DENSE].name,
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
