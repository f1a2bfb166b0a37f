"""GLUE's nine sets: from a folder in the distributed tsv format, or from the hub.

Source: Wang et al., 2018, arXiv 1804.07461. What differs: GLUE's labelled dev set is the test
split (its test sets have no labels), and validation is cut from the training set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sparing.core.errors import DataError, UsageError, quoted
from sparing.tasks._facts import Facts
from sparing.tasks._splits import kept_together
from sparing.tasks.shared.files import data_folder, find, given_folder
from sparing.tasks.shared.hub import class_numbers, columns_of, from_hub
from sparing.tasks.shared.table import (
    Answer,
    Row,
    Table,
    classes,
    number_between,
    read_table,
    skipped_note,
)
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Corpus, Reading, text_task

GLUE = "GLUE (Wang et al. 2018), arXiv 1804.07461"
# Pairs of STS-B's training and dev files, and the range of their scores.
ALIKE, ALIKE_VALUES = Table(("sentence1", "sentence2"), "score"), (0.0, 5.0)
TestSplit = Literal["dev", "labelled"]


@dataclass(frozen=True)
class Labelled:
    """A labelled test file beside GLUE's own: its names, folders, table format and rows."""

    files: tuple[str, ...]
    table: Table
    rows: int
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Glue:
    """One of GLUE's sets.

    ``labels`` are the classes in the hub's order, ``written`` their names in the files (where they
    differ), ``values`` the range where the label is a number. ``dev`` are the names of the dev
    file, ``more`` further dev files by split name. ``rows`` is how many rows were published in each
    file; ``hub`` are the columns there. ``tokenised`` texts already have spaces around their
    punctuation.
    """

    name: str
    folder: str
    facts: Facts
    labels: tuple[str, ...]
    table: Table
    hub: tuple[str, ...]
    rows: Mapping[str, int]
    written: tuple[str, ...] = ()
    values: tuple[float, float] | None = None
    dev: tuple[str, ...] = ("dev.tsv",)
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labelled: Labelled | None = None
    tokenised: bool = False

    @property
    def answer(self) -> Answer:
        """How a label is read."""
        return number_between(*self.values) if self.values else classes(self.written or self.labels)

    def reading(
        self,
        tokenizer: str | None,
        vocabulary: int,
        max_tokens: int,
        examples: int | None,
        seed: int,
    ) -> Reading:
        """The options for reading its texts."""
        return Reading(tokenizer, vocabulary, max_tokens, examples, seed, self.tokenised)

    @property
    def needed_files(self) -> str:
        """The files, in words."""
        dev = [names[0] for names in (self.dev, *self.more.values())]
        return f"GLUE's train.tsv and {' and '.join(dev)} (or .gz)"


def dev_loader(glue: Glue) -> Callable[..., Task]:
    """The ``load`` of a set that is tested on its dev file and has no options of its own."""

    def load(
        *,
        data: Path | None = None,
        tokenizer: str | None = None,
        vocabulary: int = 8192,
        max_tokens: int = 128,
        examples: int | None = None,
        skip_broken: bool = False,
        seed: int = 0,
    ) -> Task:
        """GLUE's dev set is the test split; validation is cut from train.

        The text options are those of ``Reading``. Broken rows raise ``DataError`` with their lines;
        ``skip_broken`` leaves them out and adds a note to the task. Files are looked for in the
        set's folder in glue/ below the data folder; without a data folder they come from the hub.
        """
        reading = glue.reading(tokenizer, vocabulary, max_tokens, examples, seed)
        return glue_task(glue, data, reading, test="dev", skip_broken=skip_broken)

    return load


def labelled_loader(glue: Glue) -> Callable[..., Task]:
    """The ``load`` of a set that also has a labelled test file."""

    def load(
        *,
        data: Path | None = None,
        tokenizer: str | None = None,
        vocabulary: int = 8192,
        max_tokens: int = 128,
        examples: int | None = None,
        test: TestSplit = "dev",
        skip_broken: bool = False,
        seed: int = 0,
    ) -> Task:
        """As ``dev_loader``'s; ``test="labelled"`` uses the set's labelled test file.

        The dev set then becomes the further split ``dev``.
        """
        reading = glue.reading(tokenizer, vocabulary, max_tokens, examples, seed)
        return glue_task(glue, data, reading, test=test, skip_broken=skip_broken)

    return load


def cut_loader(glue: Glue) -> Callable[..., Task]:
    """The ``load`` of a set that may lack its training file because of its size."""

    def load(
        *,
        data: Path | None = None,
        tokenizer: str | None = None,
        vocabulary: int = 8192,
        max_tokens: int = 128,
        examples: int | None = None,
        cut_dev: bool = False,
        skip_broken: bool = False,
        seed: int = 0,
    ) -> Task:
        """As ``dev_loader``'s; ``cut_dev`` cuts all splits from the dev file."""
        reading = glue.reading(tokenizer, vocabulary, max_tokens, examples, seed)
        return glue_task(glue, data, reading, test="dev", skip_broken=skip_broken, cut_dev=cut_dev)

    return load


def glue_task(
    one: Glue,
    data: Path | None,
    reading: Reading,
    *,
    test: TestSplit,
    skip_broken: bool,
    cut_dev: bool = False,
) -> Task:
    """The task of one of GLUE's sets; dev is its test split unless ``test`` is "labelled".

    With the labelled test set the dev set is the further split ``dev``. ``cut_dev`` makes all
    splits from the dev file, where there is no training file. Raises ``UsageError`` for a test set
    that does not exist, ``DataError`` for files that are missing or broken.
    """
    if test not in ("dev", "labelled") or (test == "labelled" and one.labelled is None):
        other = " or 'labelled'" if one.labelled else ""
        raise UsageError(f"{one.name}: test must be 'dev'{other}; got {quoted(test)}")
    if given_folder(data) is None:
        source: _Hub | _Files = _Hub(one)
    else:
        folders = (f"glue/{one.folder}", one.folder)
        folder = data_folder(one.name, data, folders, one.needed_files)
        source = _Files(one, folder, given_folder(data) or folder, skip_broken)
    rows = [] if cut_dev else source.part("train", ("train.tsv",))
    dev = source.part("dev", one.dev)
    more = {split: source.part(split, names) for split, names in one.more.items()}
    tested, validation, train = dev, None, rows
    if cut_dev:
        tested, validation, train = _three_parts(dev, reading.seed)
        source.subset = True
        source.notes.append("subset: train, validation and test are all cut from the dev file")
    if test == "labelled":
        more["dev"], tested = tested, source.labelled()
    corpus = Corpus(train, tested, validation, more, source.subset, tuple(source.notes))
    kind: Literal["class", "number"] = "number" if one.values else "class"
    return text_task(one.name, one.facts, one.labels, corpus, reading, kind)


def _three_parts(rows: list[Row], seed: int) -> list[list[Row]]:
    """Four tenths to test on, one to validate, the rest to train; no text is in two of them.

    QNLI has its questions in pairs of rows with opposite labels: a pair across splits would leak
    the answer.
    """
    sizes = (len(rows) * 4 // 10, len(rows) // 10)
    parts = kept_together([row.texts for row in rows], sizes, seed)
    if not all(parts):
        raise DataError("the dev file cannot be cut: too many of its rows share a text")
    return [[rows[index] for index in part] for part in parts]


class _Source:
    """A source of rows, with notes on them."""

    def __init__(self, one: Glue) -> None:
        self.one = one
        self.notes: list[str] = []
        self.subset = False

    def noted(self, part: str, rows: list[Row], published: int, skipped: int = 0) -> list[Row]:
        """The rows; a note is added if they are a part of the published ones."""
        if len(rows) + skipped < published:
            self.subset = True
            self.notes.append(f"subset: {part} holds {len(rows)} of {published} published rows")
        return rows


class _Files(_Source):
    def __init__(self, one: Glue, folder: Path, root: Path, skip_broken: bool) -> None:
        super().__init__(one)
        self.folder, self.root, self.skip_broken = folder, root, skip_broken

    def part(self, part: str, names: tuple[str, ...]) -> list[Row]:
        """The rows of train, dev or a further dev file."""
        path = find(self.one.name, self.folder, names)
        return self._read(path, self.one.table, part, self.one.rows[part])

    def labelled(self) -> list[Row]:
        """The rows of the labelled test file."""
        labelled = self.one.labelled
        assert labelled is not None
        candidates = [self.root / candidate for candidate in labelled.folders]
        folder = next((candidate for candidate in candidates if candidate.is_dir()), self.folder)
        path = find(self.one.name, folder, labelled.files)
        return self._read(path, labelled.table, "labelled test", labelled.rows)

    def _read(self, path: Path, table: Table, part: str, published: int) -> list[Row]:
        rows, broken = read_table(path, table, self.one.answer, skip_broken=self.skip_broken)
        self.notes += skipped_note(path.name, broken)
        return self.noted(part, rows, published, len(broken))


class _Hub(_Source):
    def __init__(self, one: Glue) -> None:
        super().__init__(one)
        self.instead = (
            f"give --data or set SPARING_DATA, and put {one.needed_files} into glue/{one.folder}/"
        )
        self.data_set: Any = from_hub(one.name, "nyu-mll/glue", one.name, instead=self.instead)

    def part(self, part: str, names: tuple[str, ...]) -> list[Row]:
        """The rows of train, dev or a further dev split."""
        split = "validation" if part == "dev" else part
        if self.one.more and part != "train":
            split = f"validation_{'matched' if part == 'dev' else part}"
        return self.noted(part, self._rows(split), self.one.rows[part])

    def labelled(self) -> list[Row]:
        """The rows of the test split, where the hub has labels for it."""
        rows = self._rows("test", unlabelled=True)
        if any(row.label < 0 for row in rows):
            labelled = self.one.labelled
            assert labelled is not None
            raise DataError(
                f"task {self.one.name}: the hub's test split has no labels; {self.instead}, with "
                f"{labelled.files[0]} beside"
            )
        return rows

    def _rows(self, split: str, *, unlabelled: bool = False) -> list[Row]:
        """The rows of a split; with ``unlabelled`` their labels may all be -1."""
        where = f"task {self.one.name}: the hub's split {split}"
        *texts, labels = columns_of(self.one.name, self.data_set, split, (*self.one.hub, "label"))
        checked = labels
        if not (unlabelled and all(label == -1 for label in labels)):
            checked = self._labels(where, labels)
        rows = [
            Row(tuple(pair), label)
            for pair, label in zip(zip(*texts, strict=True), checked, strict=True)
        ]
        if not rows or not all(isinstance(text, str) for row in rows for text in row.texts):
            raise DataError(f"{where} has rows without a text, or none at all")
        return rows

    def _labels(self, where: str, labels: Sequence[Any]) -> Sequence[int | float]:
        if self.one.values is None:
            return class_numbers(where, labels, len(self.one.labels))
        low, high = self.one.values
        for label in labels:
            if type(label) is not float or not low <= label <= high:
                raise DataError(f"{where} has the label {quoted(label)}, not {low} to {high}")
        return labels
