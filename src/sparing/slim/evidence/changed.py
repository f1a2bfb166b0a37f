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
from sparing.slim.answer import CLASS, Answer, Vector, cosines
from sparing.slim.inputs import texts_of

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.tasks import Examples, Task


@dataclass(frozen=True)
class Changed:
    """One test input with another answer: its row, its texts (of an image none), both answers.

    Both confidences are largest class probabilities.
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


def changed_of(
    task: Task, examples: Examples, served: Tensor, dense: Tensor, answer: Answer = CLASS
) -> list[Changed] | list[Moved]:
    """The inputs of a split whose answer differs between two tables.

    The one that the served form is most confident of comes first; of vectors the least cosine.
    """
    if isinstance(answer, Vector):
        cosine, differs = cosines(served, dense), answer.differs(served, dense)
        rows = differs.nonzero().flatten().tolist()
        moved = [Moved(row, texts_of(task, examples, row), float(cosine[row])) for row in rows]
        return sorted(moved, key=lambda one: one.cosine)
    (sure, answers), (before, expected) = (x.softmax(-1).max(-1) for x in (served, dense))
    rows = (answers != expected).nonzero().flatten().tolist()
    changed = [
        Changed(
            row,
            texts_of(task, examples, row),
            str(task.labels[int(expected[row])]),
            str(task.labels[int(answers[row])]),
            float(before[row]),
            float(sure[row]),
        )
        for row in rows
    ]
    return sorted(changed, key=lambda one: -one.served_confidence)


def write_changed(folder: Path, changed: Sequence[Changed | Moved]) -> None:
    """Replace the file of a run: a line of JSON for each input."""
    compressed_path(folder / CHANGED).unlink(missing_ok=True)  # it is of an earlier run
    lines = (json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in changed)
    write_atomically(folder / CHANGED, "".join(lines).encode("utf-8", "replace"))


def read_changed(folder: Path) -> list[Changed] | list[Moved] | None:
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
        raise DataError(f"{path} holds classes and vectors")
    return changed  # type: ignore[no-any-return]


def _read(line: Mapping[str, Any]) -> Changed | Moved:
    return _moved(line) if "cosine" in line else _changed(line)


def _moved(line: Mapping[str, Any]) -> Moved:
    one = Moved(**{**line, "texts": tuple(line["texts"])})
    right = isinstance(line["texts"], list) and all(isinstance(text, str) for text in one.texts)
    if not (right and type(one.index) is int and is_finite(one.cosine)):
        raise ValueError("its fields are of other types")
    return one


def _changed(line: Mapping[str, Any]) -> Changed:
    one = Changed(**{**line, "texts": tuple(line["texts"])})
    named = (one.dense, one.served, *one.texts)
    sure = (one.dense_confidence, one.served_confidence)
    right = isinstance(line["texts"], list) and all(isinstance(text, str) for text in named)
    if not (right and type(one.index) is int and all(map(is_finite, sure))):
        raise ValueError("its fields are of other types")
    return one
