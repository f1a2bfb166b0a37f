"""Retrieval: do two documents belong together? Read byte by byte.

Source: the task Retrieval of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006), on pairs of
papers of the ACL Anthology Network (Radev et al., 2013). What differs: where those are not at hand,
pairs are made of film reviews, two halves of one or of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparing.core.errors import DataError, require_choice
from sparing.tasks._facts import Facts
from sparing.tasks._files import data_folder, read_bytes
from sparing.tasks._reviews import SOURCE, reviews
from sparing.tasks._splits import hashed_order
from sparing.tasks._table import Row
from sparing.tasks._task import Task
from sparing.tasks._text import BYTES, Corpus, Reading, text_task

FACTS = Facts(
    metrics=("accuracy",),
    licence="none stated; cite Radev et al. 2013, or Maas et al. 2011 for reviews",
    source=f"ACL Anthology Network in the Long Range Arena's files; or {SOURCE}",
    splits="the published test set",
    chance=0.5,
)
LABELS = ("apart", "together")
PAIRS = ("reviews", "papers")
FILES = {"train": "train", "validation": "eval", "test": "test"}
WANTED = "the folder tsv_data of the arena with new_aan_pairs.{train,eval,test}.tsv"


def load(
    *,
    data: Path | None = None,
    pairs: str = "reviews",
    tokenizer: str = BYTES,
    max_tokens: int = 4000,
    examples: int | None = None,
    skip_broken: bool = False,
    seed: int = 0,
) -> Task:
    """Two classes. ``pairs`` "papers" reads the arena's tables in aan/ below the data folder.

    With "reviews" each film review of ``imdb`` is cut at the space nearest to its middle. Half of
    them are asked with their own second half, the others with that of another of the same split, so
    that every text stands in one pair and no length tells. ``max_tokens`` are those of both texts
    and their two class tokens; the longer text loses its end first.
    """
    require_choice("retrieval", "pairs", pairs, PAIRS)
    if pairs == "papers":
        corpus = _papers(data)
    else:
        rows, notes = reviews("retrieval", data, skip_broken=skip_broken, raw=tokenizer == BYTES)
        found = {split: halves(kept, seed) for split, kept in rows.items()}
        subset = any(note.startswith("subset") for note in notes)
        told = (*notes, "pairs are halves of film reviews, not papers")
        corpus = Corpus(found["train"], found["test"], subset=subset, notes=told)
    reading = Reading(tokenizer, max_tokens=max_tokens, examples=examples, seed=seed)
    return text_task("retrieval", FACTS, LABELS, corpus, reading)


def halves(rows: Sequence[Row], seed: int) -> list[Row]:
    """Pairs of halves: every other review with its own second half, the rest with another's.

    Which goes where follows from the texts and the seed. Reviews without a space are left out.
    """
    cut = [
        (first, second)
        for row in rows
        if (first := _cut(row.texts[0])[0]) and (second := _cut(row.texts[0])[1])
    ]
    order = hashed_order([first for first, _ in cut], seed)
    together, apart = order[::2], order[1::2]
    found = [Row(cut[place], 1) for place in together]
    # each takes the next one's second half: nobody gets its own, and none is used twice
    for place, other in zip(apart, [*apart[1:], *apart[:1]], strict=True):
        if place != other:
            found.append(Row((cut[place][0], cut[other][1]), 0))
    return found


def _cut(text: str) -> tuple[str, str]:
    """The text before and after the space nearest to its middle."""
    middle = len(text) // 2
    before, after = text.rfind(" ", 0, middle + 1), text.find(" ", middle)
    places = [place for place in (before, after) if place >= 0]
    if not places:
        return text, ""
    place = min(places, key=lambda each: abs(each - middle))
    return text[:place].strip(), text[place:].strip()


def _papers(data: Path | None) -> Corpus:
    folder = data_folder("retrieval", data, ("aan", "lra_release/lra_release/tsv_data"), WANTED)
    rows = {split: _table(folder / f"new_aan_pairs.{name}.tsv") for split, name in FILES.items()}
    return Corpus(rows["train"], rows["test"], rows["validation"])


def _table(path: Path) -> list[Row]:
    """Lines of label, two numbers and two texts, tabs between them."""
    if not path.is_file():
        raise DataError(f"task retrieval: there is no {path}; wanted is {WANTED}")
    found = []
    text = read_bytes(path).decode(errors="surrogateescape")
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split("\t")
        if len(parts) != 5 or parts[0] not in ("0", "1", "0.0", "1.0"):
            raise DataError(f"{path}, line {number}: not a label, two numbers and two texts")
        found.append(Row((parts[3], parts[4]), int(float(parts[0]))))
    return found
