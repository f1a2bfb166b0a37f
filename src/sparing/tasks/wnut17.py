"""WNUT-17: which new and rare names are in a tweet or a comment? Scored by entities.

Source: Derczynski et al., 2017, doi 10.18653/v1/W17-4418. The texts of the three files are of
different sites, so validation and test scores are far from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sparing.core.errors import DataError
from sparing.tasks._facts import Facts
from sparing.tasks.shared.conll import Sentence, read_conll
from sparing.tasks.shared.entities import cut_parts, entity_task
from sparing.tasks.shared.files import data_folder, find, given_folder
from sparing.tasks.shared.hub import columns_of, from_hub
from sparing.tasks.shared.table import Row
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import Corpus, Reading, text_task
from sparing.tasks.shared.tokens import OUTSIDE, parsed

FACTS = Facts(
    metrics=("entity_f1", "entity_precision", "entity_recall"),
    licence="CC BY 4.0",
    source="WNUT 2017 (Derczynski et al. 2017), doi 10.18653/v1/W17-4418, github leondz",
    splits="the published test set",
    chance=0.0,
)
LABELS = Facts(
    metrics=("micro_f1", "macro_f1", "same_labels"),
    licence=FACTS.licence,
    source=FACTS.source,
    splits=FACTS.splits,
)
PUBLISHED = {"train": 3394, "validation": 1009, "test": 1287}
FILES = {"train": "train", "validation": "dev", "test": "test"}
TYPES = ("corporation", "creative-work", "group", "location", "person", "product")


def load(
    *,
    data: Path | None = None,
    answer: Literal["entities", "labels"] = "entities",
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 128,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Texts with six types of names, in the published splits.

    With ``answer`` ``labels`` the task is to say which of the types occur in a text. The other
    options are those of ``Reading``. Files are in wnut17/ below the data folder or in it; without
    one they come from the hub.
    """
    parts, notes = _from_hub() if given_folder(data) is None else _from_files(data)
    subset = [
        f"subset: {split} holds {len(rows)} of {PUBLISHED[split]} published texts"
        for split, rows in parts.items()
        if len(rows) != PUBLISHED[split]
    ]
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    notes = [*notes, *subset]
    if answer == "entities":
        return entity_task("wnut17", FACTS, parts, reading, notes, subset=bool(subset))
    rows, _ = cut_parts(parts, Reading())
    labelled = {split: [_types_in(row) for row in part] for split, part in rows.items()}
    corpus = Corpus(
        labelled["train"],
        labelled["test"],
        labelled["validation"],
        subset=bool(subset),
        notes=tuple(notes),
    )
    return text_task("wnut17", LABELS, TYPES, corpus, reading, "labels")


def _types_in(row: Sentence) -> Row:
    """The text, and for each type whether it occurs."""
    there = {parsed(label)[1] for label in row.labels}
    return Row((row.text,), flags=tuple(int(kind in there) for kind in TYPES))


def _from_files(data: Path | None) -> tuple[Mapping[str, list[Sentence]], list[str]]:
    needed = "train.conll, dev.conll and test.conll (or .gz)"
    folder = data_folder("wnut17", data, ("wnut17",), needed)
    read = {
        split: read_conll(find("wnut17", folder, (f"{name}.conll",)))
        for split, name in FILES.items()
    }
    notes = [note for part in read.values() for note in part.notes]
    return {split: _checked(part.rows, split) for split, part in read.items()}, notes


def _from_hub() -> tuple[Mapping[str, list[Sentence]], list[str]]:
    instead = "give --data or set SPARING_DATA, and put the files into its wnut17/"
    hub: Any = from_hub("wnut17", "leondz/wnut_17", instead=instead)
    parts = {}
    for split in FILES:
        names = hub[split].features["ner_tags"].feature.names
        columns = columns_of("wnut17", hub, split, ("tokens", "ner_tags"))
        rows = [
            Sentence(tuple(words), tuple(names[number] for number in numbers))
            for words, numbers in columns
            if words
        ]
        parts[split] = _checked(rows, split)
    return parts, []


def _checked(rows: list[Sentence], split: str) -> list[Sentence]:
    """The rows; raises ``DataError`` for a type that is none of the six."""
    for row in rows:
        for label in row.labels:
            if label != OUTSIDE and parsed(label)[1] not in TYPES:
                raise DataError(f"wnut17: {split} holds the label {label!r}")
    return rows
