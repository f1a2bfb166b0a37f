"""Texts with a label for each word, in CoNLL's form: a word and its label a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
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
    """A word, its label, and the number of its line or row."""

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
    groups = [*_groups(lines, separator)]
    if groups[-1][2] == 1:
        raise DataError(f"{path} has one column: a line needs a word and its label")
    return sentences_of(str(path), [group[:2] for group in groups], skip_broken=skip_broken)


def sentences_of(
    source: str,
    groups: Iterable[tuple[Sequence[Word], Sequence[str]]],
    *,
    skip_broken: bool,
    unit: str = "line",
) -> Sentences:
    """The texts of words and their labels, each with what is broken in it; raises as above."""
    rows, broken, begins = [], list[str](), list[int]()
    marks = _Marks(unit)
    for words, faults in groups:
        faults = faults or [*filter(None, (marks.fault(word) for word in words))]
        broken += faults
        if not faults and words:
            rows.append(Sentence(tuple(w.text for w in words), tuple(w.label for w in words)))
            begins += _inside_first(words)
    if broken and not skip_broken:
        raise DataError(complaint(source, broken))
    if not rows:
        raise DataError(f"{source} holds no texts: it needs words with a label each")
    name = Path(source).name
    return Sentences(rows, (*_left_out(name, broken), *_noted(name, begins, unit)))


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

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.known: tuple[bool, Word] | None = None

    def fault(self, word: Word) -> str:
        """Why a word's label is none; empty if it is one."""
        label = word.label
        if label == OUTSIDE:
            return ""
        marked = parsed(label) != (False, label)
        if not label or (not marked and MARKED.fullmatch(label)):
            return f"{self.unit} {word.line} (label {quoted(label)}; O, B-TYPE, I-TYPE are known)"
        self.known = self.known or (marked, word)
        if marked == self.known[0]:
            return ""
        other = self.known[1]
        there = f"{self.unit} {other.line} {other.label}"
        return f"{self.unit} {word.line} (label {quoted(label)}, and on {there})"


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


def _left_out(name: str, broken: Sequence[str]) -> list[str]:
    if not broken:
        return []
    return [f"{name}: texts with broken lines left out: {', '.join(broken[:100])}"]


def _noted(name: str, lines: Sequence[int], unit: str) -> list[str]:
    if not lines:
        return []
    noun = "entity begins" if len(lines) == 1 else "entities begin"
    return [f"{name}: {len(lines)} {noun} with I- (the first on {unit} {lines[0]}) and count"]


def written(sentence: Sentence) -> str:
    """The lines of a text, for ``read_conll``; spaces inside a word become one without a tab."""
    pairs = zip(sentence.words, sentence.labels, strict=True)
    return "\n".join(f"{' '.join(word.split())}\t{label}" for word, label in pairs)
