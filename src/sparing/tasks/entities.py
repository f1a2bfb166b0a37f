"""Your own texts with a label for each word: files in CoNLL's form, scored by entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sparing.core.errors import DataError, UsageError
from sparing.core.paths import expanded
from sparing.tasks._endings import CONLL, ends_with
from sparing.tasks._facts import Facts
from sparing.tasks.shared.conll import Sentence, read_conll
from sparing.tasks.shared.entities import entity_task
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Reading

FACTS = Facts(
    metrics=("entity_f1", "entity_precision", "entity_recall"),
    licence="your own",
    source="your own files",
    splits="test, else dev; what is missing is cut from train",
)
ENDINGS = (*CONLL, ".txt", ".txt.gz", ".tsv", ".tsv.gz")
STEMS = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}


def load(
    *,
    data: Path | None = None,
    source: str = "",
    train: str = "",
    validation: str = "",
    test: str = "",
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """A task of texts with labels such as B-person, I-person and O, scored by entities.

    ``source`` is a folder with train and test (or dev, or both) as .conll, .bio, .iob, .txt or
    .tsv, or one such file. Instead, ``train``, ``validation`` and ``test`` may be files. With both
    dev and test, dev is the validation split; dev alone is the test split. See ``read_conll`` for
    the form of a file, and ``Reading`` for the other options. An entity is right if its words and
    its type are. A word has the label of its first token. Raises ``DataError`` for broken lines;
    ``skip_broken`` leaves their texts out.
    """
    given = {"train": train, "validation": validation, "test": test}
    files = _files(source, {split: name for split, name in given.items() if name}, data)
    read = {split: read_conll(path, skip_broken=skip_broken) for split, path in files.items()}
    rows = {split: part.rows for split, part in read.items()}
    notes = [note for part in read.values() for note in part.notes]
    taken = "; ".join(f"{split}: {path.name}" for split, path in files.items())
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    facts = replace(FACTS, source=source or train)
    task = entity_task(Path(facts.source).stem, facts, _in_use(rows), reading, notes)
    return replace(task, source_note=taken)


def _in_use(rows: Mapping[str, list[Sentence]]) -> Mapping[str, list[Sentence]]:
    """The splits: a dev file alone is the test split."""
    if "test" in rows or "validation" not in rows:
        return rows
    return {"train": rows["train"], "test": rows["validation"]}


def _files(source: str, given: Mapping[str, str], data: Path | None) -> dict[str, Path]:
    if source and given:
        raise UsageError("entities: give source or the files of the splits, not both")
    if source:
        return _files_of(_path(source, data))
    if "train" not in given:
        raise UsageError("entities: give source (a folder or a file) or train (a file)")
    files = {split: _path(name, data) for split, name in given.items()}
    for path in files.values():
        if not path.is_file():
            raise DataError(f"task entities: there is no file {path}")
    return files


def _path(source: str, data: Path | None) -> Path:
    here = expanded(source)
    below = None if data is None else expanded(data) / source
    return below if below is not None and not here.exists() and below.exists() else here


def _files_of(path: Path) -> dict[str, Path]:
    """The files of a folder by split; one file alone is train."""
    if path.is_file():
        return {"train": path}
    if not path.is_dir():
        raise DataError(f"task entities: there is no file or folder {path}")
    there = {
        entry.name.lower(): entry
        for entry in sorted(path.iterdir())
        if ends_with(entry.name, ENDINGS) and entry.is_file()
    }
    files = {}
    for split, stems in STEMS.items():
        names = [stem + ending for stem in stems for ending in ENDINGS if stem + ending in there]
        if names:
            files[split] = there[names[0]]
    if "train" not in files:
        raise DataError(f"task entities: {path} has no train.conll (or .bio, .iob, .txt, .tsv)")
    return files
