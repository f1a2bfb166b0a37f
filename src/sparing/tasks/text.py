"""Your own texts: tables, JSON lines, parquet, or a data set, with a label for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sparing.core.errors import DataError, option, quoted
from sparing.tasks._columns import (
    LABEL,
    Columns,
    choose,
    in_order,
    like,
    require_single,
    rows_of,
)
from sparing.tasks._endings import TABLES
from sparing.tasks._facts import Facts
from sparing.tasks._frame import (
    Frame,
    data_set_frame,
    read_frame,
)
from sparing.tasks._own_files import OwnFiles
from sparing.tasks.shared.table import Row, complaint, number_between, skipped_note
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Corpus, Reading, cut_rows, text_task

FACTS = Facts(
    metrics=("accuracy", "matthews"),
    licence="your own",
    source="your own files, or a data set of the hub",
    splits="test, dev or validation, as given; else a fifth, cut from the rows",
)
METRICS = {
    "class": FACTS.metrics,
    "labels": ("micro_f1", "macro_f1", "same_labels"),
    "number": ("pearson", "spearman"),
    "ranking": ("map", "mrr", "ndcg@10"),
}
FILES = OwnFiles(
    "text",
    {"train": ("train",), "test": ("test", "dev"), "validation": ("validation", "valid")},
    TABLES,
    "no train.tsv or train.csv (or .jsonl, .parquet, .gz), and no folders of pictures",
)
Kind = Literal["class", "labels", "number", "ranking"]


def load(
    *,
    data: Path | None = None,
    source: str = "",
    train: str = "",
    validation: str = "",
    test: str = "",
    text: str = "",
    pair: str = "",
    label: str = LABEL,
    header: bool = True,
    answer: Kind = "class",
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    skip_broken: bool = False,
    encoding: str = "utf-8",
    seed: int = 0,
) -> Task:
    """A task of your own rows: one text or two, and a class, several labels, or a number.

    In a ``ranking`` they are a query, a document, and its relevance, from 0 on.
    ``source`` is a folder with train and test (or dev, and perhaps validation) as .tsv, .csv,
    .jsonl or .parquet, or one such file. Or a folder of ``save_to_disk``, or ``owner/name[:part]``
    of the hub. Instead, ``train``, ``test`` and ``validation`` may be files. Names are looked for
    here, then below ``data``. Where they are missing, a fifth is cut to test on, a tenth to
    validate. ``label``, ``text`` and ``pair`` are columns; see ``_columns.choose`` for how they are
    chosen otherwise, ``source_note`` of the task for the result. The other options are those of
    ``Reading``. Broken rows raise ``DataError``; ``skip_broken`` leaves them out and notes it.
    """
    columns = Columns(text, pair, label, header, answer, skip_broken, encoding)
    given = {"train": train, "test": test, "validation": validation}
    splits = _splits(source, {split: path for split, path in given.items() if path}, data, columns)
    labels, corpus = _labelled(splits, columns, seed)
    facts = replace(FACTS, metrics=METRICS[answer], source=source or train)
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    name = Path(facts.source).stem
    task = text_task(name, facts, labels, corpus, reading, answer)
    return replace(task, source_note="; ".join(splits.taken))


@dataclass
class _Splits:
    """Rows of each split; labels are numbered in order of appearance.

    ``taken`` lists the used parts of the files in words.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)


def _splits(source: str, given: Mapping[str, str], data: Path | None, columns: Columns) -> _Splits:
    """The rows of the files, or of a data set."""
    files, data_set = FILES.locate(source, given, data)
    return _read(files, columns) if data_set is None else _of_data_set(source, data_set, columns)


def _read(files: Mapping[str, Path], columns: Columns) -> _Splits:
    frames = {
        split: read_frame(
            path,
            encoding=columns.encoding,
            is_header=lambda first: columns.header,
            fits=columns.fits,
        )
        for split, path in files.items()
    }
    splits = _of_frames(frames, columns, lambda split: files[split].name)
    if columns.encoding.lower() != "utf-8":
        splits.taken.append(f"encoding: {columns.encoding}")
    return splits


def _of_frames(
    frames: Mapping[str, Frame], columns: Columns, name: Callable[[str], str]
) -> _Splits:
    """The rows of all splits; other splits have the columns of the first by name, in any order."""
    splits = _Splits()
    for split, frame in frames.items():
        chosen = choose(frame, columns)
        columns = like(columns, chosen)
        if not splits.taken:
            splits.taken += [chosen.note, *frame.assumed]
        for flag in chosen.flags:
            splits.numbers.setdefault(flag, len(splits.numbers))
        answer = _answer(splits.numbers, columns, fixed=split != "train")
        several = columns.answer == "labels"
        splits.rows[split], broken = rows_of(frame, chosen, answer, several=several)
        if broken and not columns.skip_broken:
            raise DataError(complaint(frame.source, broken))
        if not splits.rows[split]:
            raise DataError(f"{frame.source} holds no rows")
        splits.notes += skipped_note(name(split), broken)
    return splits


def _answer(numbers: dict[str, int], columns: Columns, *, fixed: bool) -> Any:
    """How labels are read: numbers, or names that only training rows may add to."""
    if columns.answer in ("number", "ranking"):
        import torch

        most = torch.finfo(torch.float32).max  # the type of labels
        return number_between(0.0 if columns.answer == "ranking" else -most, most)
    if columns.answer == "labels":
        return lambda names: _numbered(numbers, names, fixed=fixed)
    if fixed:
        return numbers.get
    return lambda text: numbers.setdefault(text, len(numbers)) if text else None


def _numbered(numbers: dict[str, int], names: Any, *, fixed: bool) -> tuple[int, ...] | None:
    """The numbers of several labels; None for what is no list of known names."""
    if not isinstance(names, list) or (fixed and not numbers.keys() >= {*names}):
        return None
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def _of_data_set(source: str, data_set: Any, columns: Columns) -> _Splits:
    """The rows of a data set of ``datasets``; its splits have the names of the files."""
    names = FILES.splits_in(source, data_set)
    frames = {split: data_set_frame(source, data_set, name) for split, name in names.items()}
    return _of_frames(frames, columns, lambda split: f"{source} {names[split]}")


def _labelled(splits: _Splits, columns: Columns, seed: int) -> tuple[tuple[str, ...], Corpus]:
    """The classes in order, and the rows with their numbers; a missing test split is cut."""
    labels: tuple[str, ...] = ("value",)
    rows = splits.rows
    if columns.answer == "ranking" and any(len(part[0].texts) < 2 for part in rows.values()):
        raise DataError("task text: a ranking needs two columns of texts, a query and a document")
    if columns.answer in ("class", "labels"):
        labels, rows = (_sorted if columns.answer == "class" else _with_flags)(splits)
    train, test = rows["train"], rows.get("test")
    if test is None:
        share = len(train) // 5
        if not share:
            raise DataError(f"task text: {len(train)} rows are too few to cut a test split from")
        splits.taken.append(f"test: a fifth, {share} of {len(train)} rows")
        test, train = cut_rows(train, (share, len(train) - share), seed, columns.answer)
        splits.notes.append(f"test: {share} rows cut from the training file")
    return labels, Corpus(train, test, rows.get("validation"), notes=tuple(splits.notes))


def _sorted(splits: _Splits) -> tuple[tuple[str, ...], dict[str, list[Row]]]:
    require_single("task text", list(splits.numbers))
    labels, number_of = _in_sequence(splits)
    return labels, {
        split: [row._replace(label=number_of[int(row.label)]) for row in rows]
        for split, rows in splits.rows.items()
    }


def _with_flags(splits: _Splits) -> tuple[tuple[str, ...], dict[str, list[Row]]]:
    """The labels in order, and the rows with a 1 for each label that holds."""
    labels, number_of = _in_sequence(splits)

    def flags(numbers: tuple[int, ...]) -> tuple[int, ...]:
        there = {number_of[number] for number in numbers}
        return tuple(int(number in there) for number in range(len(labels)))

    return labels, {
        split: [row._replace(flags=flags(row.flags)) for row in rows]
        for split, rows in splits.rows.items()
    }


def _in_sequence(splits: _Splits) -> tuple[tuple[str, ...], dict[int, int]]:
    """The labels in order, and the number in it of each number in order of appearance."""
    labels, count = in_order(list(splits.numbers)), len(splits.rows["train"])
    if len(labels) < 2 or len(labels) > max(20, count // 2):
        such = f", such as {quoted(labels[0])}" if labels else ""
        raise DataError(
            f"task text: {count} training rows have {len(labels)} different labels{such}: is this "
            f"the column of the labels? ({option('answer', 'number')} for numbers)"
        )
    return labels, {splits.numbers[label]: number for number, label in enumerate(labels)}
