"""Every kind of answer: which models give it, by which outputs, and how outputs become answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparing.answers.base import Answers, Array, Encoded, Settings
from sparing.answers.classes import Classes
from sparing.answers.entities import Entities, entities_in
from sparing.answers.numbers import Numbers, Rankings, queries_of
from sparing.answers.spans import Spans, require_pairs, span_of
from sparing.answers.vectors import LEAST_COSINE, Vectors, texts_of
from sparing.core.errors import DataError, Unsupported, UsageError
from sparing.foreign.kinds import answer_kind, by_token

THRESHOLD = 0.5
SEQUENCE = ("ForSequenceClassification", "AdaptiveClassifier")


@dataclass(frozen=True)
class Rows:
    """The outputs of one model for all rows, and what is needed to read answers off them.

    An output is (labels,) for a whole row, (tokens, labels) for its tokens, (tokens, 2) for the
    first and last token of a span, (dimensions,) for a vector.
    """

    outputs: Sequence[Array]
    encoded: Sequence[Encoded]
    texts: Sequence[tuple[str, ...]]
    source: str
    labels: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True)
class Kind:
    """One kind of answer.

    ``outputs`` are the names of a model's outputs, joined along the last axis where there are
    several. ``by_token`` says whether each token has an output. ``truncation`` is the tokenizer's.
    ``settings`` are the names of the settings that it takes.
    """

    name: str
    noun: str
    outputs: tuple[str, ...]
    read: Callable[[Rows], Answers]
    by_token: bool = False
    labelled: bool = False
    truncation: str = "longest_first"
    settings: tuple[str, ...] = ()

    def require_rows(self, rows: Sequence[tuple[str, ...]], source: str) -> None:
        """Raise ``DataError`` for rows without an answer of this kind, such as a vector of two."""
        if self.name == "span":
            require_pairs(rows, source)
        elif self.name == "vector":
            texts_of(rows, source)

    def encode(
        self, tokenizer: Any, row: Sequence[str], limit: int | None, where: str, **options: Any
    ) -> Any:
        """The tokens of one row by its tokenizer, cut to ``limit`` as this kind needs.

        Raises ``DataError``, which names the row by ``where``, if nothing is left of a passage.
        """
        if limit is not None:
            cut = self.truncation if len(row) > 1 else "longest_first"
            options = {"truncation": cut, "max_length": limit, **options}
        try:
            return tokenizer(*row, **options)
        except Exception as error:  # the tokenizer's own is no more special
            if "Truncation error" not in str(error):
                raise
            raise DataError(f"{where}: the question leaves the passage no token") from error


def _classes(rows: Rows) -> Answers:
    return Classes(np.stack(rows.outputs), rows.labels, False)


def _several(rows: Rows) -> Answers:
    threshold = rows.settings.threshold or THRESHOLD
    return Classes(np.stack(rows.outputs), rows.labels, True, threshold)


def _numbers(rows: Rows) -> Answers:
    width = len(rows.outputs[0])
    if width != 1:
        raise Unsupported(f"a model of numbers gives one a text here, and this one gives {width}")
    values, most = np.concatenate(rows.outputs), rows.settings.most_difference
    if most is None:
        return Rankings(values, queries_of(rows.texts))
    return Numbers(values, most)


def _entities(rows: Rows) -> Answers:
    pairs = zip(rows.outputs, rows.encoded, strict=True)
    listed = tuple(entities_in(logits, encoded, rows.labels) for logits, encoded in pairs)
    return Entities(listed, tuple(rows.texts))


def _spans(rows: Rows) -> Answers:
    require_pairs(rows.texts, rows.source)
    pairs = zip(rows.outputs, rows.encoded, strict=True)
    spans = [span_of(logits, encoded) for logits, encoded in pairs]
    places = np.array([span[:2] for span in spans])
    scores = np.array([span[2] for span in spans])
    return Spans(places, scores, tuple(row[1] for row in rows.texts))


def _vectors(rows: Rows) -> Answers:
    least = rows.settings.least_cosine
    texts = texts_of(rows.texts, rows.source)
    return Vectors(np.stack(rows.outputs), texts, LEAST_COSINE if least is None else least)


LOGITS, ENDS = ("logits",), ("start_logits", "end_logits")
KINDS: Mapping[str, Kind] = {
    "class": Kind("class", "one class", LOGITS, _classes, labelled=True),
    "labels": Kind(
        "labels", "several labels", LOGITS, _several, labelled=True, settings=("threshold",)
    ),
    "number": Kind("number", "a number", LOGITS, _numbers, settings=("most_difference",)),
    "entities": Kind(
        "entities", "a label for each token", LOGITS, _entities, by_token=True, labelled=True
    ),
    "span": Kind(
        "span", "a segment of a passage", ENDS, _spans, by_token=True, truncation="only_second"
    ),
    "vector": Kind(
        "vector", "a vector", ("sentence_embedding",), _vectors, settings=("least_cosine",)
    ),
}


def kind_of_model(name: str, config: Any) -> Kind | None:
    """The kind of answer of a model, by the name of its class and its configuration.

    None for a class with answers of no kind here, such as a language model.
    """
    answer = by_token(name)
    if answer is not None:
        return KINDS[answer]
    if not name.endswith(SEQUENCE):
        return None
    return KINDS[answer_kind(config)]


def kind_of_outputs(ranks: Mapping[str, int]) -> Kind | None:
    """The kind of answer of a file, by its outputs' names and numbers of axes.

    None where they leave it open: rows of logits may be one class, several labels or a number.
    """
    if "sentence_embedding" in ranks:
        return KINDS["vector"]
    if set(ENDS) <= set(ranks):
        return KINDS["span"]
    return KINDS["entities"] if ranks.get("logits") == 3 else None


def require_settings(kind: Kind, settings: Settings) -> None:
    """Raise ``UsageError`` for a setting that is for another kind of answer."""
    for name in settings.given():
        if name not in kind.settings:
            takes = next(other for other in KINDS.values() if name in other.settings)
            raise UsageError(f"{name} is for models that give {takes.noun}; these give {kind.noun}")


def joined(outputs: Sequence[Array]) -> Array:
    """A model's outputs as one array: several are joined along a new last axis."""
    return outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
