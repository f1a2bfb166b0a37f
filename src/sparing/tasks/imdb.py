"""IMDB: is a film review positive or negative? Texts of a few hundred tokens.

Source: Maas et al., 2011, Learning Word Vectors for Sentiment Analysis, in aclImdb's layout.
"""

from __future__ import annotations

from pathlib import Path

from sparing.core.errors import DataError
from sparing.tasks._archive import files_in, find_archive
from sparing.tasks._facts import Facts
from sparing.tasks._files import data_folder, given_folder
from sparing.tasks._hub import columns_of, from_hub
from sparing.tasks._table import Row
from sparing.tasks._task import Task
from sparing.tasks._text import Corpus, Reading, text_task

FACTS = Facts(
    metrics=("accuracy",),
    licence="none stated; cite Maas et al. 2011",
    source="Large Movie Review Dataset (Maas et al. 2011), ai.stanford.edu/~amaas/data/sentiment",
    splits="the published test set",
    chance=0.5,
)
LABELS = {"neg": "negative", "pos": "positive"}
PUBLISHED = 25000
WANTED = "the folder aclImdb, or aclImdb_v1.tar.gz as published,"


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 512,
    examples: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """Two classes; the published test set, and validation cut from the published training set.

    Files are aclImdb/{train,test}/{pos,neg}/ID_RATING.txt, in a folder or in the archive, which is
    read without unpacking it, in imdb/ below the data folder or in it; without a data folder the
    hub is asked. Line breaks written as ``<br />`` become spaces. The text options are those of
    ``Reading``; a review longer than ``max_tokens`` loses its end, and the task's notes count
    these. Empty reviews raise ``DataError``, or are left out and noted with ``skip_broken``.
    """
    if given_folder(data) is None:
        rows, notes = _from_hub()
    else:
        folder = data_folder("imdb", data, ("imdb",), WANTED)
        place = find_archive("imdb", folder, ("aclImdb",), WANTED)
        rows, notes = _from_files(place, skip_broken)
    subset = False
    for split, found in rows.items():
        if not found:
            raise DataError(f"task imdb: there are no {split} reviews")
        if len(found) < PUBLISHED * 0.99:
            subset = True
            notes.append(f"subset: {split} holds {len(found)} of {PUBLISHED} published reviews")
    corpus = Corpus(rows["train"], rows["test"], subset=subset, notes=tuple(notes))
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed)
    return text_task("imdb", FACTS, tuple(LABELS.values()), corpus, reading)


def _from_files(place: Path, skip_broken: bool) -> tuple[dict[str, list[Row]], list[str]]:
    found: dict[str, list[tuple[str, int, Row]]] = {"train": [], "test": []}
    broken = []
    for match, content in files_in(place, r"(train|test)/(neg|pos)/(\d+)_\d+\.txt"):
        split, side, number = match.groups()
        try:
            text = content.decode().replace("<br />", " ").strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{place}: {match.group()} is not UTF-8 text") from error
        if text:
            row = Row((text,), list(LABELS).index(side))
            found[split].append((side, int(number), row))
        else:
            broken.append(match.group()[1:])
    if broken and not skip_broken:
        raise DataError(
            f"{place}: {len(broken)} reviews are empty: {', '.join(broken[:5])}; leave such out "
            "with skip_broken=True"
        )
    notes = [f"{len(broken)} empty reviews left out: {', '.join(broken)}"] if broken else []
    # archives and file systems have orders of their own
    return {split: [row for *_, row in sorted(rows)] for split, rows in found.items()}, notes


def _from_hub() -> tuple[dict[str, list[Row]], list[str]]:
    instead = f"give --data or set SPARING_DATA, and put {WANTED} into its imdb/"
    hub = from_hub("imdb", "stanfordnlp/imdb", instead=instead)
    rows = {}
    for split in ("train", "test"):
        texts, labels = columns_of("imdb", hub, split, ("text", "label"))
        rows[split] = [
            Row((text.replace("<br />", " ").strip(),), label)
            for text, label in zip(texts, labels, strict=True)
        ]
    return rows, []
