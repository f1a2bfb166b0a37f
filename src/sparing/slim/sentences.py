"""The sentences of a task of pairs as texts for an embedding model, scored by the pairs' labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from sparing.core.errors import UsageError
from sparing.core.paths import expanded
from sparing.experiment.inputs.fit import is_classifier
from sparing.foreign.sentences import sentences_in
from sparing.tasks import Task
from sparing.tasks.shared.compared import Compared
from sparing.tasks.texts import Parts, Texts, task_of_texts
from sparing.tasks.texts.distinct import groups_of

Pair = tuple[str, ...]
INSTEAD = "give --texts FILE and use sparing evaluate"
WORDS = ("to train on", "to choose by", "to calibrate", "to test")


def embeds(model: str) -> bool:
    """Whether a path is an embedding model of sentence-transformers."""
    folder = expanded(model) if model else None
    if folder is None or not folder.is_dir():
        return False
    return sentences_in(folder) is not None and not is_classifier(model)


def sentences_task(task: Task, model: str, needed: int) -> Task:
    """The sentences of a task of pairs, in four parts that share none; their labels are not used.

    The test part has every sentence of the test pairs, whose labels score every form at the end by
    the cosine of both vectors. Validation pairs are halved to choose and to calibrate. A group of
    pairs that share a sentence gives one: those of a pair are not independent. Sentences to train
    on are in none of these pairs; case and marks make no difference.
    Raises ``UsageError`` for a task without such pairs, or with fewer than ``needed`` sentences to
    calibrate.
    """
    held = {name: task.split(name) for name in ("train", "validation", "test")}
    if task.answer != "number" or any(part.pairs is None for part in held.values()):
        raise UsageError(
            f"task {task.name} has no pairs of texts with a number, which score an embedding "
            f"model: take sts or stsb, or {INSTEAD}"
        )
    task.require_labels("test")
    train, validation, test = (part.pairs or () for part in held.values())
    parts, notes = _parts(task.name, train, validation, test)
    if len(parts.calibrate) < needed:
        raise UsageError(
            f"task {task.name} has {len(parts.calibrate):,} independent sentences to calibrate, "
            f"and this promise needs at least {needed:,}: {INSTEAD}"
        )
    made = task_of_texts(parts, model)
    number = {row[0]: index for index, row in enumerate(parts.test.rows)}
    rows = torch.tensor([[number[text] for text in pair] for pair in test])
    compared = Compared(rows, task.truth(held["test"]))
    # texts that were cut as pairs are read alone here
    said = (note for note in task.notes if not note.endswith("were cut"))
    return replace(
        made,
        name=task.name,
        test=replace(made.test, compared=compared),
        metrics=(made.metric, *task.metrics),
        licence=task.licence,
        source=task.source,
        subset=task.subset,
        notes=(*said, *notes, *made.notes),
    )


def _parts(
    name: str, train: Sequence[Pair], validation: Sequence[Pair], test: Sequence[Pair]
) -> tuple[Parts, list[str]]:
    """The parts, and notes on sentences that are left out."""
    tested = [*dict.fromkeys(text for pair in test for text in pair)]
    taken = {spelled(text) for text in tested}
    free = [pair for pair in validation if taken.isdisjoint(map(spelled, pair))]
    groups = groups_of([tuple(map(spelled, pair)) for pair in free])
    generator = np.random.default_rng(0)
    order, sides = generator.permutation(len(groups)), generator.integers(2, size=len(groups))
    drawn = [free[groups[number][0]][side] for number, side in zip(order, sides, strict=True)]
    middle = len(drawn) // 2
    taken |= {spelled(text) for pair in validation for text in pair}
    trained = {spelled(text): text for pair in train for text in pair}
    left = [text for key, text in trained.items() if key not in taken]
    parts = (left, drawn[:middle], drawn[middle:], tested)
    counts = ", ".join(f"{len(part):,} {words}" for part, words in zip(parts, WORDS, strict=True))
    notes = [
        f"sentences: {counts}",
        f"{len(trained) - len(left):,} sentences of train are in held-out pairs too: left out",
        f"{len(validation) - len(free):,} validation pairs share a sentence with test: left out; "
        "the others give one sentence of each group of pairs that share one",
    ]
    made = [_texts(name, part) for part in parts]
    return Parts(made[0], made[1], made[2], made[3]), notes


def _texts(name: str, sentences: Iterable[str]) -> Texts:
    return Texts(name, tuple((text,) for text in sentences))


def spelled(text: str) -> str:
    """A text's words in lower case, without marks; the text itself where it has none."""
    return " ".join(re.findall(r"\w+", text.lower())) or text
