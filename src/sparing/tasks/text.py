"""Your own texts: tsv or csv files, or a data set of the hub, with a label for each row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sparing.core.errors import DataError, UsageError, nearest
from sparing.core.paths import expanded
from sparing.tasks._facts import Facts
from sparing.tasks._hub import columns_of, from_hub
from sparing.tasks._table import Row, Table, lines_of, number_between, read_table, skipped_note
from sparing.tasks._task import Task
from sparing.tasks._text import Corpus, Reading, cut_rows, text_task

FACTS = Facts(
    metrics=("accuracy", "matthews"),
    licence="your own",
    source="your own files, or a data set of the hub",
    splits="test, dev or validation, as given; else a fifth, cut from the rows",
)
METRICS = {"class": FACTS.metrics, "number": ("pearson", "spearman")}
SPLITS = {"train": ("train",), "test": ("test", "dev"), "validation": ("validation", "valid")}
ENDINGS = (".tsv", ".csv", ".tsv.gz", ".csv.gz", ".txt")
LABEL = "label"
Kind = Literal["class", "number"]


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
    seed: int = 0,
) -> Task:
    """A task of your own rows: one text or two, and a class, or with ``answer="number"`` a number.

    Either ``source``, which is a folder with train and test (or dev, and perhaps validation) as
    .tsv or .csv, or one such file, or ``owner/name`` (or ``owner/name:part``) of the hub; or the
    files ``train``, ``test`` and ``validation``. A name is looked for here, then below ``data``.
    What is missing is cut: a fifth to test on, a tenth to validate. The first line names the
    columns: ``label`` is the label's, ``text`` and ``pair`` those of the texts (without them: the
    other columns, of which there are one or two). With ``header=False`` columns are called 1, 2 and
    so on, and the last is the label unless another is named. In tsv quotes are literal, in csv they
    quote. The classes are the labels of the training rows, sorted. The other options are those of
    ``Reading``. Broken rows raise ``DataError`` with their lines; ``skip_broken`` leaves them out
    and notes it.
    """
    wanted = _Columns(text, pair, label, header, answer, skip_broken)
    given = {"train": train, "test": test, "validation": validation}
    found = _found(source, {split: path for split, path in given.items() if path}, data, wanted)
    labels, corpus = _labelled(found, wanted, seed)
    facts = replace(FACTS, metrics=METRICS[answer], source=source or train)
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return text_task(Path(facts.source).stem, facts, labels, corpus, reading, answer)


@dataclass(frozen=True)
class _Columns:
    text: str
    pair: str
    label: str
    header: bool
    answer: Kind
    skip_broken: bool


@dataclass
class _Found:
    """Rows of each split, whose labels are numbered in the order in which they came."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _found(source: str, given: Mapping[str, str], data: Path | None, wanted: _Columns) -> _Found:
    """The rows of the files, or of the hub where there are none of that name."""
    if source and given:
        raise UsageError("text: give source or the files of the splits, not both")
    if source and not _is_here(source, data):
        return _from_hub(source, wanted)
    if source:
        return _read(_files_of(_place(source, data)), wanted)
    if "train" not in given:
        raise UsageError("text: give source (a folder, a file, a hub name) or train (a file)")
    return _read({split: _file(path, data) for split, path in given.items()}, wanted)


def _is_here(source: str, data: Path | None) -> bool:
    return _place(source, data).exists() or not _looks_like_hub(source)


def _looks_like_hub(source: str) -> bool:
    owner, slash, rest = source.partition("/")
    return bool(owner and slash and rest) and "/" not in rest and not owner.startswith((".", "~"))


def _place(source: str, data: Path | None) -> Path:
    here = expanded(source)
    below = None if data is None else expanded(data) / source
    return below if below is not None and not here.exists() and below.exists() else here


def _file(path: str, data: Path | None) -> Path:
    place = _place(path, data)
    if not place.is_file():
        raise DataError(f"task text: there is no file {path}")
    return place


def _files_of(place: Path) -> dict[str, Path]:
    """The files of a folder by split; one file alone is train."""
    if place.is_file():
        return {"train": place}
    if not place.is_dir():
        raise DataError(f"task text: there is no file or folder {place}")
    found = {}
    for split, stems in SPLITS.items():
        names = [stem + ending for stem in stems for ending in ENDINGS]
        here = [place / name for name in names if (place / name).is_file()]
        if here:
            found[split] = here[0]
    if "train" not in found:
        raise DataError(f"task text: {place} has no train.tsv or train.csv (or .gz)")
    return found


def _read(files: Mapping[str, Path], wanted: _Columns) -> _Found:
    found = _Found()
    for split, path in files.items():
        table = _table(path, wanted)
        wanted = _like_the_first(table, wanted)
        answer = _answer(found.numbers, wanted, fixed=split != "train")
        found.rows[split], broken = read_table(path, table, answer, skip_broken=wanted.skip_broken)
        found.notes += skipped_note(path, broken)
    return found


def _like_the_first(table: Table, wanted: _Columns) -> _Columns:
    """The columns that training took, by name: in other files they may stand in another order."""
    if not wanted.header:
        return wanted
    first, *rest = table.texts
    return replace(wanted, text=first, pair=rest[0] if rest else "")


def _answer(numbers: dict[str, int], wanted: _Columns, *, fixed: bool) -> Any:
    """How labels are read: numbers, or classes that only training rows may add to."""
    if wanted.answer == "number":
        import torch

        most = torch.finfo(torch.float32).max  # what labels are kept in
        return number_between(-most, most)
    if fixed:
        return numbers.get
    return lambda text: numbers.setdefault(text, len(numbers)) if text else None


def _table(path: Path, wanted: _Columns) -> Table:
    """Which columns hold what, from the file's first line and what was asked for."""
    comma = path.name.removesuffix(".gz").endswith(".csv")
    table = Table((), "", separator="," if comma else "\t")
    first = next(lines_of(path, table), (0, [""]))[1]
    if not wanted.header:
        names = tuple(str(number) for number in range(1, len(first) + 1))
        label = names[-1] if wanted.label == LABEL else wanted.label
        if label not in names:
            raise DataError(
                f"{path}: without a header columns are numbers from 1 to {len(names)}, and "
                f"{label!r} is none"
            )
        texts = _texts(path, names, replace(wanted, label=label))
        return replace(table, texts=texts, label=label, names=names)
    if wanted.label not in first:
        raise DataError(
            f"{path}: the first line names no column {wanted.label!r}{nearest(wanted.label, first)}"
            "; say which with label=NAME, or header=False where the first line is a row"
        )
    return replace(table, texts=_texts(path, tuple(first), wanted), label=wanted.label)


def _texts(place: Path | str, names: Sequence[str], wanted: _Columns) -> tuple[str, ...]:
    """The columns of the texts: those that were asked for, else all but the label's."""
    if wanted.text:
        chosen = tuple(name for name in (wanted.text, wanted.pair) if name)
    else:
        chosen = tuple(name for name in names if name != wanted.label)
    for name in chosen:
        if name not in names:
            raise DataError(f"{place} has no column {name!r}{nearest(name, names)}")
    if len(chosen) not in (1, 2):
        raise DataError(
            f"{place} has {len(names)} columns: say which hold the texts with text=NAME (and "
            f"pair=NAME); there are {', '.join(names)}"
        )
    return chosen


def _from_hub(source: str, wanted: _Columns) -> _Found:
    name, _, part = source.partition(":")
    instead = f"there is no file or folder {source} here either"
    hub = from_hub("text", *(each for each in (name, part) if each), instead=instead)
    found = _Found()
    for split, stems in (("train", ("train",)), *list(SPLITS.items())[1:]):
        there = next((stem for stem in stems if stem in hub), None)
        if there is not None:
            found.rows[split] = _hub_rows(source, hub, there, wanted, found)
    if "train" not in found.rows:
        raise DataError(f"task text: {source} has no split train")
    return found


def _hub_rows(source: str, hub: Any, split: str, wanted: _Columns, found: _Found) -> list[Row]:
    names = list(hub[split].column_names)
    texts = _texts(source, names, wanted)
    *columns, labels = columns_of("text", hub, split, (*texts, wanted.label))
    answer = _answer(found.numbers, wanted, fixed=split != "train")
    rows, broken = [], []
    for number, (pair, label) in enumerate(
        zip(zip(*columns, strict=True), labels, strict=True), start=1
    ):
        value = None if label is None else answer(str(label))
        if value is None or not all(isinstance(text, str) and text.strip() for text in pair):
            broken.append(f"row {number} (label {str(label)[:40]!r})")
        else:
            rows.append(Row(tuple(pair), value))
    if broken and not wanted.skip_broken:
        raise DataError(f"{source}: {len(broken)} broken rows in {split}: {', '.join(broken[:5])}")
    found.notes += skipped_note(Path(f"{source} {split}"), broken)
    return rows


def _labelled(found: _Found, wanted: _Columns, seed: int) -> tuple[tuple[str, ...], Corpus]:
    """The classes in order, and the rows with their numbers; a missing test split is cut."""
    labels: tuple[str, ...] = ("value",)
    rows = found.rows
    if wanted.answer == "class":
        labels, rows = _sorted(found)
    train, test = rows["train"], rows.get("test")
    if test is None:
        share = len(train) // 5
        if not share:
            raise DataError(f"task text: {len(train)} rows are too few to cut a test split from")
        test, train = cut_rows(train, (share, len(train) - share), seed, wanted.answer)
        found.notes.append(f"test: {share} rows cut from the training file")
    return labels, Corpus(train, test, rows.get("validation"), notes=tuple(found.notes))


def _sorted(found: _Found) -> tuple[tuple[str, ...], dict[str, list[Row]]]:
    whole = [re.fullmatch("[+-]?[0-9]+", label) is not None for label in found.numbers]
    labels = tuple(sorted(found.numbers, key=int if all(whole) else None))
    count = len(found.rows["train"])
    if len(labels) < 2 or len(labels) > max(20, count // 2):
        raise DataError(
            f"task text: {count} training rows have {len(labels)} different labels, such as "
            f"{labels[0][:40]!r}: is this the column of the labels? (answer=number for numbers)"
        )
    place = {found.numbers[label]: number for number, label in enumerate(labels)}
    return labels, {
        split: [row._replace(label=place[int(row.label)]) for row in rows]
        for split, rows in found.rows.items()
    }
