"""The test inputs that the served form answers otherwise than the dense model, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.compressed import compressed_path, read_stored, stored_path
from sparing.core.errors import DataError
from sparing.core.reading import parse_json
from sparing.core.record import is_finite
from sparing.core.writing import write_atomically
from sparing.experiment.owned import CHANGED
from sparing.slim.answer import CLASS, Answer, Number, RowAnswer, Vector, cosines
from sparing.slim.inputs import texts_of
from sparing.tasks.shared.tokens import segments_in

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.answers import Answers
    from sparing.tasks import Examples, Task


@dataclass(frozen=True)
class Changed:
    """One test input with another answer: its row, its texts (of an image none), both answers.

    Both confidences are largest class probabilities; of several labels they are the probability of
    the surest decision in which the two differ.
    """

    index: int
    texts: tuple[str, ...]
    dense: str
    served: str
    dense_confidence: float
    served_confidence: float


@dataclass(frozen=True)
class Moved:
    """One test input with another vector: its row, its text, and the cosine of both vectors."""

    index: int
    texts: tuple[str, ...]
    cosine: float


@dataclass(frozen=True)
class Shifted:
    """One test input with a number that differs too much: its row, its texts, both numbers."""

    index: int
    texts: tuple[str, ...]
    dense: float
    served: float


@dataclass(frozen=True)
class Reread:
    """One test input with other entities, or another segment as its answer: its row, its texts.

    Both answers are words of the text; entities have their type behind them. ``parts`` is how many
    entities only one of the two gives, or 2 of a segment.
    """

    index: int
    texts: tuple[str, ...]
    dense: str
    served: str
    parts: int


One = Changed | Moved | Shifted | Reread
# A field that lines of this kind alone have.
KINDS = {"cosine": Moved, "dense_confidence": Changed, "parts": Reread}


def changed_of(
    task: Task, examples: Examples, served: Tensor, dense: Tensor, answer: Answer = CLASS
) -> Sequence[One]:
    """The inputs of a split whose answer differs between two tables.

    The one that the served form is most confident of comes first; of vectors the least cosine, of
    numbers the largest difference, of entities the most that only one gives.
    """
    rows = answer.differs(served, dense).nonzero().flatten().tolist()
    texts = {row: texts_of(task, examples, row) for row in rows}
    if isinstance(answer, Vector):
        cosine = cosines(served, dense)
        moved = [Moved(row, texts[row], float(cosine[row])) for row in rows]
        return sorted(moved, key=lambda one: one.cosine)
    if isinstance(answer, Number):
        shifted = [Shifted(row, texts[row], float(dense[row]), float(served[row])) for row in rows]
        return sorted(shifted, key=lambda one: -abs(one.served - one.dense))
    if not isinstance(answer, RowAnswer):
        reread = [_reread(task, examples, row, texts[row], served, dense) for row in rows]
        return sorted(reread, key=lambda one: -one.parts)
    before, now = (answer.read(logits, task.labels) for logits in (dense, served))
    changed = [
        Changed(
            *(row, texts[row], before.words(row), now.words(row)),
            *(_sure(before, now, row), _sure(now, before, row)),
        )
        for row in rows
    ]
    return sorted(changed, key=lambda one: -one.served_confidence)


def _reread(
    task: Task, examples: Examples, row: int, texts: tuple[str, ...], served: Tensor, dense: Tensor
) -> Reread:
    before, now = (segments_of(task, examples, row, answers[row]) for answers in (dense, served))
    words = [
        ", ".join(words + (f" [{kind}]" if kind else "") for words, _, kind in some) or "(none)"
        for some in (before, now)
    ]
    return Reread(row, texts, words[0], words[1], len({*before} ^ {*now}))


def segments_of(
    task: Task, examples: Examples, row: int, answer: Tensor
) -> list[tuple[str, int, str]]:
    """The segments of a text in an answer: their words, first token and type, empty of a span."""
    assert examples.words is not None
    if task.answer == "span":
        first, last = (int(end) for end in answer[:2])
        listed = [(first, last + 1, "")]
    else:
        listed = segments_in(answer, examples.words[row], task.labels)
    ids = examples.inputs[row]
    decode = task.tokenizer.decode
    return [(str(decode(ids[start:end].tolist())), start, kind) for start, end, kind in listed]


def _sure(one: Answers, other: Answers, row: int) -> float:
    sure = one.confidence(row, other)
    assert sure is not None  # classes and labels have probabilities
    return sure


def write_changed(folder: Path, changed: Sequence[One]) -> None:
    """Replace the file of a run: a line of JSON for each input."""
    compressed_path(folder / CHANGED).unlink(missing_ok=True)  # it is of an earlier run
    lines = (json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in changed)
    write_atomically(folder / CHANGED, "".join(lines).encode("utf-8", "replace"))


def read_changed(folder: Path) -> list[One] | None:
    """The lines of a run's file, compressed or not, in its order; None without a file.

    Raises ``DataError`` for a line that is damaged.
    """
    path = stored_path(folder / CHANGED)
    if path is None:
        return None
    changed: Any = []
    for number, line in enumerate(read_stored(path).splitlines(), 1):
        try:
            changed.append(_read(parse_json(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}: line {number} is not a changed answer") from error
    if len({type(one) for one in changed}) > 1:
        raise DataError(f"{path} holds several kinds of answers")
    return changed  # type: ignore[no-any-return]


def _read(line: Mapping[str, Any]) -> One:
    kind: Any = next((kind for field, kind in KINDS.items() if field in line), Shifted)
    one: One = kind(**{**line, "texts": tuple(line["texts"])})
    values = vars(one)
    words = ("dense", "served") if isinstance(one, Changed | Reread) else ()
    named = [*one.texts, *(values[name] for name in words)]
    numbers = [values[name] for name in values if name not in ("index", "texts", *words)]
    right = isinstance(line["texts"], list) and all(isinstance(text, str) for text in named)
    if not (right and type(one.index) is int and all(map(is_finite, numbers))):
        raise ValueError("its fields are of other types")
    return one
