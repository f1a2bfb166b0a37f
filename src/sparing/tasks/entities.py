"""Your own texts with a label for each word: files in CoNLL's form, scored by entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sparing.tasks._endings import CONLL, LINES, ends_with
from sparing.tasks._facts import Facts
from sparing.tasks._own_files import OwnFiles
from sparing.tasks._tagged import of_data_set, read_rows
from sparing.tasks.shared.conll import Sentence, Sentences, read_conll, written
from sparing.tasks.shared.entities import entity_task
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Reading

FACTS = Facts(
    metrics=("entity_f1", "entity_precision", "entity_recall"),
    licence="your own",
    source="your own files",
    splits="test, else dev; what is missing is cut from train",
)
ROWS = (*LINES, *(f"{ending}.gz" for ending in LINES), ".parquet")
ENDINGS = (*CONLL, ".txt", ".txt.gz", ".tsv", ".tsv.gz", *ROWS)
FILES = OwnFiles(
    "entities",
    {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)},
    ENDINGS,
    "no train.conll (or .bio, .iob, .txt, .tsv, .jsonl)",
)


def load(
    *,
    data: Path | None = None,
    source: str = "",
    train: str = "",
    validation: str = "",
    test: str = "",
    words: str = "",
    label: str = "",
    names: str = "",
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """A task of texts with labels such as B-person, I-person and O, scored by entities.

    ``source`` is a folder with train and test (or dev, or both) as .conll, .bio, .iob, .txt, .tsv,
    .jsonl or .parquet, or one such file. Or a folder of ``save_to_disk``, or ``owner/name[:part]``
    of the hub. Instead, ``train``, ``validation`` and ``test`` may be files. With both dev and
    test, dev is the validation split; dev alone is the test split. See ``read_conll`` for the form
    of a file. Rows have lists in the columns ``words`` (tokens, words) and ``label`` (ner_tags,
    tags, labels); ``names`` are those of labels that are numbers. The other options are those of
    ``Reading``. Raises ``DataError`` for broken lines; ``skip_broken`` leaves their texts out.
    """
    given = {"train": train, "validation": validation, "test": test}
    form = Form(words, label, tuple(part for part in names.split(",") if part), skip_broken)
    read, taken = _read(source, {split: name for split, name in given.items() if name}, data, form)
    rows = {split: part.rows for split, part in read.items()}
    notes = [note for part in read.values() for note in part.notes]
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    facts = replace(FACTS, source=source or train)
    task = entity_task(Path(facts.source).stem, facts, _in_use(rows), reading, notes)
    return replace(task, source_note=taken)


class Form(NamedTuple):
    """The columns of rows with lists, and whether broken texts are left out."""

    words: str
    label: str
    names: tuple[str, ...]
    skip_broken: bool

    def read(self, path: Path) -> Sentences:
        """The texts of a file, by its ending."""
        if ends_with(path.name, ROWS):
            return read_rows(path, self.words, self.label, self.names, skip_broken=self.skip_broken)
        return read_conll(path, skip_broken=self.skip_broken)


def _read(
    source: str, given: Mapping[str, str], data: Path | None, form: Form
) -> tuple[dict[str, Sentences], str]:
    """The texts of each split, and what was read, in words."""
    files, data_set = FILES.locate(source, given, data)
    if data_set is None:
        taken = {split: path.name for split, path in files.items()}
        read = {split: form.read(path) for split, path in files.items()}
    else:
        taken = FILES.splits_in(source, data_set)
        columns = (form.words, form.label)
        read = {
            split: of_data_set(source, data_set, stem, *columns, skip_broken=form.skip_broken)
            for split, stem in taken.items()
        }
    return read, "; ".join(f"{split}: {name}" for split, name in taken.items())


def lines_of(data_set: Any, split: str, words: str, label: str) -> str:
    """One split of a data set of ``datasets`` in CoNLL's form; raises ``DataError`` as above."""
    read = of_data_set("the data set", data_set, split, words, label, skip_broken=False)
    return "\n\n".join(map(written, read.rows)) + "\n"


def _in_use(rows: Mapping[str, list[Sentence]]) -> Mapping[str, list[Sentence]]:
    """The splits: a dev file alone is the test split."""
    if "test" in rows or "validation" not in rows:
        return rows
    return {"train": rows["train"], "test": rows["validation"]}
