"""The columns of the output: what is written for each kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparing.answers import Answers
from sparing.answers.classes import Classes
from sparing.answers.entities import Entities
from sparing.answers.numbers import Numbers
from sparing.answers.spans import Spans
from sparing.answers.vectors import Vectors
from sparing.core.errors import Unsupported

Values = dict[str, Any]
FILE, ROW, ERROR = "file", "row", "error"
ALL = "all_probabilities"


def _class(answers: Classes, index: int) -> Values:
    best = int(answers.logits[index].argmax())
    shares = answers.probabilities[index]
    return {"label": answers.labels[best], "probability": float(shares[best])}


def _labels(answers: Classes, index: int) -> Values:
    chosen = np.flatnonzero(answers.chosen[index])
    return {
        "labels": [answers.labels[column] for column in chosen],
        "probabilities": answers.probabilities[index][chosen].tolist(),
    }


def _number(answers: Numbers, index: int) -> Values:
    return {"number": float(answers.values[index])}


def _entities(answers: Entities, index: int) -> Values:
    texts = answers.texts[index]
    listed = []
    for one in answers.entities[index]:
        entity: Values = {"text": texts[one.part][one.start : one.end], "label": one.type}
        entity |= {"start": one.start, "end": one.end}
        listed.append(entity | ({"part": one.part} if len(texts) > 1 else {}))
    return {"entities": listed}


def _span(answers: Spans, index: int) -> Values:
    start, end = map(int, answers.places[index])
    values = {"answer": answers.words(index), "start": start, "end": end}
    return values | {"score": float(answers.scores[index])}


def _vector(answers: Vectors, index: int) -> Values:
    return {"vector": answers.values[index].astype(np.float32).tolist()}


READERS: dict[str, Callable[[Any, int], Values]] = {
    "class": _class,
    "labels": _labels,
    "number": _number,
    "entities": _entities,
    "span": _span,
    "vector": _vector,
}


def values_of(kind: str, answers: Answers, *, probabilities: bool) -> list[Values]:
    """The values of the answer columns for every row, by the kind of answer."""
    rows = [READERS[kind](answers, index) for index in range(len(answers))]
    if probabilities and isinstance(answers, Classes):
        for row, shares in zip(rows, answers.probabilities.tolist(), strict=True):
            row[ALL] = dict(zip(answers.labels, shares, strict=True))
    return rows


def answer_types(kind: str, labels: Sequence[str], *, pairs: bool, probabilities: bool) -> Any:
    """The arrow types of the answer columns, by name.

    Raises ``Unsupported`` for the probabilities of all classes where there are none, or where two
    have the same name.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    fields = {"text": text, "label": text, "start": whole, "end": whole}
    entity = pa.struct({**fields, "part": whole} if pairs else fields)
    types: dict[str, dict[str, Any]] = {
        "class": {"label": text, "probability": number},
        "labels": {"labels": pa.list_(text), "probabilities": pa.list_(number)},
        "number": {"number": number},
        "entities": {"entities": pa.list_(entity)},
        "span": {"answer": text, "start": whole, "end": whole, "score": number},
        "vector": {"vector": pa.list_(pa.float32())},
    }
    if not probabilities:
        return types[kind]
    if kind not in ("class", "labels"):
        raise Unsupported("probabilities are of models that give classes or labels")
    if len(set(labels)) < len(labels):
        raise Unsupported("probabilities need classes of different names in the configuration")
    return types[kind] | {ALL: pa.struct(dict.fromkeys(labels, number))}


def copied_names(names: Sequence[str], answers: Sequence[str]) -> list[str]:
    """The names of copied columns: ``input_`` goes before one that the output has itself."""
    taken = {FILE, ROW, ERROR, *answers}
    return [f"input_{name}" if name in taken else name for name in names]
