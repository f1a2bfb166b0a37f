"""A trained arm's answers on a test split, kept for differences example by example.

They lie in the run's folder, and in its records, which go further than the folder does: a run
whose records alone were kept goes on with its other tasks and tells the same differences.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.core.record import Label, Record
from sparing.experiment.run import save_tensors
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.cells.scores import Answers

ANSWERS = "answers"
# How a record holds them: which class each example was given to, or all numbers of an answer.
CLASSES, NUMBERS = "classes", "numbers"
_TYPES: dict[str, np.dtype[Any]] = {CLASSES: np.dtype("<u2"), NUMBERS: np.dtype("<f4")}


def keep(work: Work, arm: str, seed: int, found: Answers) -> Record:
    """Leave the answers in the run's folder, and return the record of them.

    Of classes the record has the likeliest alone, which is what differences ask for.
    """
    save_tensors(_place(work, arm, seed), {"logits": found})
    kind = CLASSES if work.task.answer == "class" else NUMBERS
    told = found.argmax(-1) if kind == CLASSES else found
    packed = base64.b64encode(told.numpy().astype(_TYPES[kind]).tobytes()).decode()
    labels: dict[str, Label] = {"arm": arm, "task": work.name, "seed": seed, "kind": kind}
    labels |= {"columns": found.shape[-1], "packed": packed}
    return Record(ANSWERS, None, "", "measured", labels, count=len(found))


def kept_answers(work: Work, arm: str, seed: int) -> Tensor | None:
    """The test answers of a trained arm; None where its cell has not come to its end."""
    place = _place(work, arm, seed)
    return load_file(place)["logits"] if place.is_file() else None


def answers_of(record: Record) -> Answers:
    """The answers that a record holds, classes as one where they are and zero elsewhere.

    Raises ``DataError`` where it holds none.
    """
    try:
        kind, columns = str(record.labels["kind"]), int(record.labels["columns"] or 0)
        raw = base64.b64decode(str(record.labels["packed"]), validate=True)
        told = torch.from_numpy(np.frombuffer(raw, _TYPES[kind]).astype(np.float32))
        if kind == CLASSES:
            found = torch.nn.functional.one_hot(told.long(), columns).float()
        else:
            found = told.reshape(record.count, columns)
    except (KeyError, TypeError, ValueError, RuntimeError, binascii.Error) as error:
        raise DataError(f"a record of {ANSWERS} does not hold what was answered") from error
    if len(found) != record.count:
        raise DataError(f"a record of {ANSWERS} tells of {len(found)} of {record.count} examples")
    return found


def restore(works: Sequence[Work], records: Iterable[Record], finished: set[str]) -> None:
    """Put the answers that the records hold into the run's folder, where they are not there.

    Raises ``UsageError`` where those of a finished training are in neither: what the run told
    of them could not be told again.
    """
    by_name = {work.name: work for work in works}
    for record in records:
        work = by_name.get(str(record.labels.get("task")))
        if record.name != ANSWERS or work is None:
            continue
        place = _place(work, str(record.labels["arm"]), int(record.labels["seed"] or 0))
        if not place.is_file():
            save_tensors(place, {"logits": answers_of(record)})
    for key in sorted(finished):
        task, *rest = key.rsplit("/", 3)
        work = by_name.get(task)
        if work is None or rest[:1] != ["train"]:
            continue
        if kept_answers(work, rest[1], int(rest[2])) is None:
            raise UsageError(
                f"{work.folder} has the records of {key} without its answers, as older versions "
                "wrote them: it can be shown (sparing report) but not go on; choose another folder"
            )


def _place(work: Work, arm: str, seed: int) -> Path:
    name = f"{work.name.replace('/', '-')}-{arm.replace(' ', '-')}-{seed}"
    return work.folder / ANSWERS / f"{name}.safetensors"
