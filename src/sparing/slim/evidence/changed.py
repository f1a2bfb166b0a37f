"""The test inputs that the served form answers otherwise than the dense model, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.compressed import compressed_path, read_stored, stored_path
from sparing.core.errors import DataError
from sparing.core.reading import parse_json
from sparing.core.record import is_finite
from sparing.core.writing import write_atomically
from sparing.experiment.owned import CHANGED
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


def changed_of(task: Task, examples: Examples, served: Tensor, dense: Tensor) -> list[Changed]:
    """The inputs of a split whose class differs between two tables of logits.

    The one that the served form is most confident of comes first.
    """
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


def write_changed(folder: Path, changed: list[Changed]) -> None:
    """Replace the file of a run: a line of JSON for each input."""
    compressed_path(folder / CHANGED).unlink(missing_ok=True)  # it is of an earlier run
    lines = (json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in changed)
    write_atomically(folder / CHANGED, "".join(lines).encode("utf-8", "replace"))


def read_changed(folder: Path) -> list[Changed] | None:
    """The lines of a run's file, compressed or not, in its order; None without a file.

    Raises ``DataError`` for a line that is damaged.
    """
    path = stored_path(folder / CHANGED)
    if path is None:
        return None
    changed = []
    for number, line in enumerate(read_stored(path).splitlines(), 1):
        try:
            changed.append(_changed(parse_json(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}: line {number} is not a changed answer") from error
    return changed


def _changed(line: Mapping[str, Any]) -> Changed:
    one = Changed(**{**line, "texts": tuple(line["texts"])})
    named = (one.dense, one.served, *one.texts)
    sure = (one.dense_confidence, one.served_confidence)
    right = isinstance(line["texts"], list) and all(isinstance(text, str) for text in named)
    if not (right and type(one.index) is int and all(map(is_finite, sure))):
        raise ValueError("its fields are of other types")
    return one
