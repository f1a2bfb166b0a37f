"""Rows with a list of words and a list of their labels: lines of JSON, parquet, data sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, listed, option, quoted
from sparing.tasks._frame import Frame, data_set_frame, read_frame
from sparing.tasks.shared.conll import Sentences, Word, sentences_of

WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "ner")


def read_rows(
    path: Path, words: str, label: str, names: Sequence[str], *, skip_broken: bool
) -> Sentences:
    """The texts of a file of rows; raises ``DataError`` as ``read_conll`` does."""
    frame = read_frame(
        path, encoding="utf-8", is_header=lambda first: True, fits=lambda first: True
    )
    return _sentences(frame, words, label, names, skip_broken=skip_broken)


def of_data_set(
    source: str, data_set: Any, split: str, words: str, label: str, *, skip_broken: bool
) -> Sentences:
    """The texts of one split of a data set of ``datasets``; its features name the labels."""
    frame = data_set_frame(source, data_set, split)
    feature = (getattr(data_set[split], "features", None) or {}).get(
        _column(frame, label, TAGS, "label")
    )
    names = getattr(getattr(feature, "feature", None), "names", None) or ()
    return _sentences(frame, words, label, tuple(names), skip_broken=skip_broken)


def _sentences(
    frame: Frame, words: str, label: str, names: Sequence[str], *, skip_broken: bool
) -> Sentences:
    texts = frame.column(_column(frame, words, WORDS, "words"))
    tags = frame.column(_column(frame, label, TAGS, "label"))
    groups = _groups(frame, texts, tags, names)
    return sentences_of(frame.source, groups, skip_broken=skip_broken, unit=frame.unit)


def _column(frame: Frame, given: str, known: Sequence[str], name: str) -> str:
    chosen = given or next((column for column in known if column in frame.names), "")
    if chosen not in frame.names:
        raise DataError(
            f"{frame.source} has no column {quoted(given) if given else ' or '.join(known)}; it "
            f"has {listed(frame.names, 8)}: say which with {option(name, 'NAME')}"
        )
    return chosen


def _groups(
    frame: Frame, texts: Sequence[Any], tags: Sequence[Any], names: Sequence[str]
) -> Iterator[tuple[list[Word], list[str]]]:
    """The words of each row, or why it cannot be used."""
    for number, words, labels in zip(frame.numbers, texts, tags, strict=True):
        reason = _fault(words, labels, names)
        if reason:
            yield [], [f"{frame.unit} {number} ({reason})"]
            continue
        written = [label if isinstance(label, str) else names[label] for label in labels]
        pairs = zip(words, written, strict=True)
        yield [Word(word.strip(), label, number) for word, label in pairs], []


def _fault(words: Any, labels: Any, names: Sequence[str]) -> str:
    if not isinstance(words, list) or not isinstance(labels, list):
        return "no list of words, or of labels"
    if len(words) != len(labels):
        return f"{len(words)} words and {len(labels)} labels"
    for word, label in zip(words, labels, strict=True):
        if not isinstance(word, str) or not word.strip():
            return f"the word {quoted(word)}"
        if isinstance(label, str):
            continue
        if type(label) is int and not names:
            return f"labels are numbers: name them with {option('names', 'O,B-PER,...')}"
        if type(label) is not int or not 0 <= label < len(names):
            return f"the label {quoted(label)}"
    return ""
