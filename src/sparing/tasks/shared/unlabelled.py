"""More training texts without labels: distillation needs only a teacher's answers."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.core.paths import expanded
from sparing.tasks._endings import TABLES, ends_with
from sparing.tasks.shared.files import given_folder
from sparing.tasks.shared.task import UNLABELLED, Examples, Task
from sparing.tasks.texts.reading import read_texts

Segment = tuple[int, ...]


def with_unlabelled(
    task: Task, sources: Sequence[str], *, most: int = 0, seed: int = 0, data: Path | None = None
) -> Task:
    """The task with more training rows that have no label, for distillation.

    A source is the name of another task of texts (without its training labels) or a file of texts,
    see ``read_texts``. Of each source ``most`` rows are used, sampled with ``seed`` (0: all). Rows
    that share a whole text, cut or not, with a held-out split of the task are left out and counted
    in its notes. Texts are cut to the task's longest. Raises ``UsageError`` for a task that was not
    read with a pretrained tokenizer, or has another answer than a class. It raises it too for
    sources that have no texts, or pairs where the task has none. Raises ``DataError`` for files
    that are missing or broken.
    """
    if not sources:
        return task
    if task.tokenizer is None or task.answer != "class":
        raise UsageError(
            f"task {task.name} takes no unlabelled texts: that needs classes to answer with and a "
            "pretrained model's tokenizer"
        )
    held_out = _Texts(task, (name for name in task.splits if name != "train"))
    parts, notes = [task.train], []
    for source in sources:
        rows = _rows_of(source, task, data)
        drawn = _drawn(rows, most, seed)
        clean = [index for index, row in enumerate(drawn.inputs) if not held_out.share(row)]
        parts.append(drawn.subset(clean))
        notes.append(_note(source, len(clean), len(drawn)))
    return replace(task, train=_joined(parts), notes=(*task.notes, *notes))


def _note(source: str, used: int, drawn: int) -> str:
    note = f"{used:,} texts of {source} are distilled from without their labels"
    if used < drawn:
        note += f"; {drawn - used:,} that share a text with a held-out split were left out"
    return note


def _drawn(rows: Examples, most: int, seed: int) -> Examples:
    if not most or len(rows) <= most:
        return rows
    return rows.subset(sorted(random.Random(seed).sample(range(len(rows)), most)))


def _joined(parts: Sequence[Examples]) -> Examples:
    """The first part unchanged, then the others' inputs without labels."""
    first, rest = parts[0], parts[1:]
    inputs: list[Tensor] = [row for part in parts for row in part.inputs]
    count = sum(len(part) for part in rest)
    labels = torch.cat((first.labels, first.labels.new_full((count,), UNLABELLED)))
    types = None
    if first.token_types is not None:
        types = [row for part in parts for row in part.token_types or ()]
    return Examples("input_ids", inputs, labels, types)


def _rows_of(source: str, task: Task, data: Path | None) -> Examples:
    """All rows of a source in the task's tokens; their labels have no meaning."""
    from sparing.tasks import load_task

    if ends_with(source, TABLES):
        rows = _encoded(task, read_texts(_file_of(source, data)).rows)
    else:
        name = task.tokenizer.name_or_path
        rows = load_task(source, data=data, tokenizer=name, max_tokens=task.tokens).train
    if not len(rows):
        raise DataError(f"{source} has no texts")
    # not every tokenizer separates a pair's texts by token types
    texts = [len(_segments(task, part.inputs[0])) for part in (rows, task.train)]
    if texts[0] != texts[1] or (rows.token_types is None) != (task.train.token_types is None):
        raise UsageError(
            f"{source} and {task.name} differ: one has pairs of texts, the other single texts"
        )
    return rows


def _file_of(source: str, data: Path | None) -> Path:
    root = given_folder(data)
    paths = [expanded(source), *([root / source] if root else [])]
    for path in paths:
        if path.is_file():
            return path
    raise DataError(f"there is no file {source} of unlabelled texts")


def _encoded(task: Task, rows: Sequence[Sequence[str]]) -> Examples:
    texts = [list(column) for column in zip(*rows, strict=True)]
    encoded: Any = task.tokenizer(*texts, truncation=True, max_length=task.tokens)
    types = encoded.get("token_type_ids") if len(texts) > 1 else None
    return Examples(
        "input_ids",
        [torch.tensor(row) for row in encoded["input_ids"]],
        torch.full((len(rows),), UNLABELLED),
        None if types is None else [torch.tensor(row) for row in types],
    )


class _Texts:
    """The texts of some splits, and whether a row shares one of them, cut in either or not.

    A row as long as the task's limit may have been cut at the end of its longest text: that text is
    compared as far as it goes.
    """

    def __init__(self, task: Task, splits: Iterable[str]) -> None:
        self.task = task
        self.whole: set[Segment] = set()
        self.begun: dict[int, set[Segment]] = defaultdict(set)
        for name in splits:
            for row in task.split(name).inputs:
                whole, begun = self._read(row)
                self.whole.update(whole)
                for segment in begun:
                    self.begun[len(segment)].add(segment)
        self.sorted = sorted(self.whole)

    def _read(self, row: Tensor) -> tuple[list[Segment], list[Segment]]:
        """The row's texts, and those of them that may have been cut."""
        segments = _segments(self.task, row)
        longest = max(map(len, segments), default=0)
        if len(row) < self.task.tokens:
            return segments, []
        return segments, [segment for segment in segments if len(segment) >= longest - 1]

    def share(self, row: Tensor) -> bool:
        """Whether one of the row's texts is among these."""
        segments, begun = self._read(row)
        if not self.whole.isdisjoint(segments):
            return True
        if any(segment[:size] in cut for segment in segments for size, cut in self.begun.items()):
            return True
        return any(map(self._begins, begun))

    def _begins(self, segment: Segment) -> bool:
        index = bisect_left(self.sorted, segment)
        return index < len(self.sorted) and self.sorted[index][: len(segment)] == segment


def _segments(task: Task, row: Tensor) -> list[Segment]:
    """The texts of a row: the tokens between the tokenizer's own marks."""
    marks = set(task.tokenizer.all_special_ids) - {task.tokenizer.unk_token_id}
    segments: list[list[int]] = [[]]
    for token in row.tolist():
        if token not in marks:
            segments[-1].append(token)
        elif segments[-1]:
            segments.append([])
    return [tuple(segment) for segment in segments if segment]
