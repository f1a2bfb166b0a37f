"""IMDB: is a film review positive or negative? Texts of a few hundred tokens.

Source: Maas et al., 2011, Learning Word Vectors for Sentiment Analysis, in aclImdb's layout. Read
in bytes it is the task Text of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006).
"""

from __future__ import annotations

from pathlib import Path

from sparing.tasks._facts import Facts
from sparing.tasks.shared.reviews import LABELS, LICENCE, SOURCE, reviews
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import BYTES, Corpus, Reading, text_task

FACTS = Facts(
    metrics=("accuracy",),
    licence=LICENCE,
    source=SOURCE,
    splits="the published test set",
    chance=0.5,
)


def load(
    *,
    data: Path | None = None,
    tokenizer: str | None = None,
    vocabulary: int = 8192,
    max_tokens: int = 512,
    examples: int | None = None,
    held_out: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """Two classes; the published test set, and validation cut from the published training set.

    Files are aclImdb/{train,test}/{pos,neg}/ID_RATING.txt, in a folder or in the archive, which is
    read without unpacking it. It is in imdb/ below the data folder or in it; without a data folder
    it comes from the hub. Line breaks written as ``<br />`` become spaces. The text options are
    those of ``Reading`` (``tokenizer="bytes"`` with ``max_tokens`` of 1,000 to 4,000 is the arena's
    task). A review longer than ``max_tokens`` loses its end, and the task's notes count these.
    Empty reviews raise ``DataError``, as do those that are not UTF-8 unless read as bytes;
    ``skip_broken`` leaves them out and adds a note. A note counts the test reviews that are
    training reviews too; they stay as published.
    """
    rows, notes = reviews("imdb", data, skip_broken=skip_broken, raw=tokenizer == BYTES)
    subset = any(note.startswith("subset") for note in notes)
    known = {row.texts[0] for row in rows["train"]}
    twice = sum(row.texts[0] in known for row in rows["test"])
    if twice:
        notes.append(f"test: {twice} of {len(rows['test'])} reviews are training reviews too")
    corpus = Corpus(rows["train"], rows["test"], subset=subset, notes=tuple(notes))
    reading = Reading(tokenizer, vocabulary, max_tokens, examples, seed, held_out=held_out)
    return text_task("imdb", FACTS, tuple(LABELS.values()), corpus, reading)
