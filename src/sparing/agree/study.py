"""``agree``: open the models, answer every distinct text, compare, and time them in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparing.agree.comparison import (
    agreement_of,
    changes_of,
    paired_difference,
)
from sparing.agree.model import TextModel, open_text_model
from sparing.agree.options import Options
from sparing.agree.outputs import (
    Encoder,
    Labels,
    answers_of,
    labels_of,
    outputs_of,
    require_batch,
)
from sparing.agree.result import Reference, Result, Speed
from sparing.answers import Answers, Settings
from sparing.answers.kinds import KINDS, require_settings
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
    threshold: float | None = None,
    least_cosine: float | None = None,
    most_difference: float | None = None,
    batch: int = 1,
    timed: int = 200,
    threads: int = 1,
) -> Result:
    """Compare the answers of two models on your texts, without labels.

    ``a``, ``b`` and ``reference`` are folders, .onnx or .xml files, hub names or models;
    ``reference`` is a third one, with which both are compared in pairs. ``texts`` is a file of
    texts, a data set, a list, a mapping or a data frame, and ``columns`` names its texts.
    ``tokenizer`` is for models without one. ``at_least`` is the share of equal answers to show
    with 95 % confidence. ``batch`` texts are answered at a time, ``timed`` texts are timed (0:
    none) with ``threads`` threads. Raises ``UsageError`` for models that do not fit each other.

    Answers are classes, labels, numbers, entities, segments of passages, or vectors. Labels are
    given from the probability ``threshold`` on (default 0.5). Vectors agree from ``least_cosine``
    on (default 0.99). Numbers agree if they differ by at most ``most_difference``. Without it they
    are relevance: the pairs with the same first text are a query and its documents, and a query
    agrees if their order is the same.

        print(sparing.agree("my-model", "fast.onnx", "texts.txt"))
    """
    settings = Settings(threshold, least_cosine, most_difference)
    options = Options(at_least, batch, timed, threads, settings)
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
    """Compare the answers of two models, A and B, on the distinct ones of these texts.

    With a ``reference`` both are compared with it too, in pairs. ``tokenizer`` (an object, a folder
    or a hub name) is for models without one. Raises ``DataError`` for fewer texts than ``at_least``
    needs, before anything is opened, and the errors of ``open_text_model``, ``labels_of``,
    ``outputs_of`` and of the kind of answer.
    """
    options = options or Options()
    _require_enough(texts, options.at_least)
    rows, distinct = [index + 1 for index in texts.distinct], texts.subset(texts.distinct)
    given = {A: first, B: second, **({DENSE: reference} if reference else {})}
    opened = _opened(given, options, on_progress)
    models = _completed(opened, tokenizer, options)
    answers, encoders, notes = _answered(models, distinct, options, on_progress)
    speed = _speed(models, encoders, len(distinct), options, on_progress)
    on_progress(1.0, "done")
    return Result(
        models[A].name,
        models[B].name,
        (models[A].engine, models[B].engine),
        texts.source,
        (answers[A].noun, answers[A].answer),
        agreement_of(answers[A].same(answers[B])),
        tuple(answers[A].findings(answers[B])),
        tuple(changes_of(distinct, rows, answers[A], answers[B])),
        speed,
        _reference(models, answers),
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
) -> dict[str, TextModel]:
    opened = {}
    for number, (role, model) in enumerate(models.items()):
        on_progress(0.02 * number, f"opening {role}")
        opened[role] = open_text_model(model, threads=options.threads)
        require_batch(opened[role], options.batch)
    return opened


def _completed(
    models: Mapping[str, TextModel], tokenizer: Any, options: Options
) -> dict[str, TextModel]:
    """Every model with a tokenizer and its kind of answer, from the others where it has none.

    Raises ``UsageError`` where none has a tokenizer, and where some give one class, some several.
    """
    named = isinstance(tokenizer, str | Path)
    other = fast_tokenizer(str(tokenizer)) if named and str(tokenizer) else tokenizer or None
    for model in models.values():
        other = other or model.tokenizer
    listed = " nor ".join(model.name for model in models.values())
    if other is None:
        raise UsageError(f"neither {listed} comes with a tokenizer: give one with --tokenizer")
    kinds = {one.kind: one.name for one in models.values() if one.kind is not None}
    if len(kinds) > 1:
        words = (f"{name} gives {kind.noun}" for kind, name in kinds.items())
        raise UsageError(f"answers of different kinds cannot be compared: {', '.join(words)}")
    kind = next(iter(kinds), KINDS["class"])
    require_settings(kind, options.settings)
    return {
        role: replace(one, tokenizer=one.tokenizer or other, kind=kind)
        for role, one in models.items()
    }


def _answered(
    models: Mapping[str, TextModel], texts: Texts, options: Options, on_progress: Progress
) -> tuple[dict[str, Answers], dict[str, Encoder], list[str]]:
    """The answers of each model to all texts, in A's order of labels."""
    answers: dict[str, Answers] = {}
    encoders, notes, labels = {}, list[str](), None
    for number, (role, model) in enumerate(models.items()):
        encoders[role] = encoder = Encoder(model, texts)
        encoded = [encoder.encode(index) for index in range(len(texts))]
        notes += encoder.notes(encoded)
        start, share = 0.1 + 0.7 * number / len(models), 0.7 / len(models)
        outputs = outputs_of(
            encoder,
            encoded,
            batch=options.batch,
            threads=options.threads,
            on_progress=_part(on_progress, start, share, f"answers of {model.name}"),
        )
        its_labels = Labels(())
        if model.answer.labelled:
            its_labels = labels_of(labels, outputs[0].shape[-1], model)
            labels = labels or its_labels
        answers[role] = answers_of(model, encoder, encoded, outputs, its_labels, options.settings)
        notes += its_labels.notes
    _require_inputs(answers[A], options.at_least)
    return answers, encoders, notes


def _require_inputs(answers: Answers, at_least: float) -> None:
    """Raise ``DataError`` for fewer queries than the required agreement needs."""
    needed = examples_needed(1 - at_least) if at_least else 1
    if answers.noun != "text" and len(answers) < needed:
        raise DataError(
            f"to show {at_least:g} with 95 % confidence, {needed:,} queries are needed, and there "
            f"are {len(answers):,} with several documents"
        )


def _part(on_progress: Progress, start: float, share: float, words: str) -> Callable[[float], None]:
    return lambda fraction: on_progress(start + share * fraction, words)


def _notes(models: Mapping[str, TextModel]) -> list[str]:
    """What differs between the models besides their answers, and what is assumed."""
    notes = []
    if len({model.limit for model in models.values()}) > 1:
        listed = ", ".join(f"{c.name} at {c.limit or 'no'} tokens" for c in models.values())
        spans = next(iter(models.values())).answer.name == "span"
        how = "longer passages are read in windows" if spans else "longer texts are cut"
        notes.append(f"{how}: {listed}")
    tokenizers = [c.tokenizer.get_vocab() for c in models.values() if c.tokenizer]
    if any(vocabulary != tokenizers[0] for vocabulary in tokenizers):
        notes.append("the models have different tokenizers; each reads the texts by its own")
    if all(model.kind is None for model in models.values()):
        notes.append("no configuration is beside the models: one class a text is assumed")
    return notes


def _reference(models: Mapping[str, TextModel], answers: Mapping[str, Answers]) -> Reference | None:
    if DENSE not in models:
        return None
    same = {role: answers[DENSE].same(answers[role]) for role in (A, B)}
    return Reference(
        models[DENSE].name,
        agreement_of(same[A]),
        agreement_of(same[B]),
        paired_difference(same[A], same[B]),
    )


def _speed(
    models: Mapping[str, TextModel],
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
        return lambda group: [models[role].run(one) for one in ready[role][group[0]]]

    def including(role: str) -> Callable[[list[int]], Any]:
        return lambda group: [models[role].run(one) for one in encoders[role].inputs(group)]

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
