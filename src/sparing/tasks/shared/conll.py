"""Texts with a label for each word, in CoNLL's form: a word and its label a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparing.core.errors import DataError, quoted
from sparing.tasks.shared.table import complaint, text_of
from sparing.tasks.shared.tokens import OUTSIDE, parsed

COMMENT = re.compile(r"#\s*(?:id\s|[\w.:-]+\s*=)")
DOCUMENT = "-DOCSTART-"
MARKED = re.compile(r"[A-Za-z][-_].*")


class Word(NamedTuple):
    """A word, its label, and the line of the file."""

    text: str
    label: str
    line: int


@dataclass(frozen=True)
class Sentence:
    """The words of one text and their labels, such as B-person, I-person and O."""

    words: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(self.words)


@dataclass(frozen=True)
class Sentences:
    """The texts of a file, in their order, and notes on what was read otherwise than written."""

    rows: list[Sentence]
    notes: tuple[str, ...]


def read_conll(path: Path, *, skip_broken: bool = False) -> Sentences:
    """The texts of a file: a word, perhaps further columns, and the word's label a line.

    Columns are separated by tabs if there is any, else by spaces. Empty lines end a text; comments
    (``# id ...``, ``# name = value``) and ``-DOCSTART-`` are left out. Raises ``DataError`` for a
    file without texts and, with their numbers, for broken lines: fewer or more columns than the
    first, no word, or a label that is none. ``skip_broken`` leaves texts with such lines out.
    """
    lines = text_of(path).split("\n")
    separator = "\t" if any("\t" in line and line.strip() for line in lines) else None
    rows, broken, begins = [], list[str](), list[int]()
    marks, groups = _Marks(), [*_groups(lines, separator)]
    if groups[-1][2] == 1:
        raise DataError(f"{path} has one column: a line needs a word and its label")
    for words, faults, _ in groups:
        faults = faults or [*filter(None, (marks.fault(word) for word in words))]
        broken += faults
        if not faults and words:
            rows.append(Sentence(tuple(w.text for w in words), tuple(w.label for w in words)))
            begins += _inside_first(words)
    if broken and not skip_broken:
        raise DataError(complaint(path, broken))
    if not rows:
        raise DataError(f"{path} holds no texts: it needs a word and its label a line")
    return Sentences(rows, (*_left_out(path, broken), *_noted(path, begins)))


def _groups(
    lines: Sequence[str], separator: str | None
) -> Iterator[tuple[list[Word], list[str], int]]:
    """The words of each text, its broken lines, and how many columns the file has."""
    words, faults, width = list[Word](), list[str](), 0
    for number, line in enumerate(lines, start=1):
        bare = line.rstrip("\r")
        if COMMENT.match(bare):
            continue
        if not bare.strip() or bare.startswith(DOCUMENT):
            yield words, faults, width
            words, faults = [], []
            continue
        columns = bare.split(separator)
        width = width or len(columns)
        if len(columns) != width:
            noun = "column" if len(columns) == 1 else "columns"
            faults.append(f"line {number} ({len(columns)} {noun}, not {width})")
        elif not columns[0].strip():
            faults.append(f"line {number} (no word)")
        else:
            words.append(Word(columns[0].strip(), columns[-1].strip(), number))
    yield words, faults, width


class _Marks:
    """Whether labels begin with marks such as B- and I-: all of a file do, or none."""

    def __init__(self) -> None:
        self.known: tuple[bool, Word] | None = None

    def fault(self, word: Word) -> str:
        """Why a word's label is none; empty if it is one."""
        label = word.label
        if label == OUTSIDE:
            return ""
        marked = parsed(label) != (False, label)
        if not label or (not marked and MARKED.fullmatch(label)):
            return f"line {word.line} (label {quoted(label)}; O, B-TYPE and I-TYPE are known)"
        self.known = self.known or (marked, word)
        if marked == self.known[0]:
            return ""
        other = self.known[1]
        return f"line {word.line} (label {quoted(label)}, and on line {other.line} {other.label})"


def _inside_first(words: Sequence[Word]) -> list[int]:
    """The lines where an entity begins with a mark of its inside, such as I-."""
    before, lines = OUTSIDE, []
    for word in words:
        begins, kind = parsed(word.label)
        marked = (begins, kind) != (False, word.label)
        if marked and not begins and parsed(before)[1] != kind:
            lines.append(word.line)
        before = word.label
    return lines


def _left_out(path: Path, broken: Sequence[str]) -> list[str]:
    if not broken:
        return []
    return [f"{path.name}: texts with broken lines left out: {', '.join(broken[:100])}"]


def _noted(path: Path, lines: Sequence[int]) -> list[str]:
    if not lines:
        return []
    noun = "entity begins" if len(lines) == 1 else "entities begin"
    return [f"{path.name}: {len(lines)} {noun} with I- (the first on line {lines[0]}) and count"]
