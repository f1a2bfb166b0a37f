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
from sparing.tasks._table import Row, complaint, skipped_note
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
    them are asked with their own second half, the others with that of another of the same split and
    of like length, so that every half stands in one pair and lengths tell nothing. ``max_tokens``
    are those of both texts and their two class tokens; the longer text loses its end first. Lines
    without two texts and empty reviews raise ``DataError``, or are left out with ``skip_broken``.
    """
    require_choice("retrieval", "pairs", pairs, PAIRS)
    if pairs == "papers":
        corpus = _papers(data, skip_broken=skip_broken, raw=tokenizer == BYTES)
    else:
        rows, notes = reviews("retrieval", data, skip_broken=skip_broken, raw=tokenizer == BYTES)
        found = {split: halves(kept, seed) for split, kept in rows.items()}
        for split, made in found.items():
            if not made:
                raise DataError(f"task retrieval: no {split} review can be cut: none has a space")
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
    found = [Row(cut[place], 1) for place in order[::2]]
    # each takes the second half of the next longer one, the two of a couple each other's: nobody
    # gets its own, none is used twice, and halves are as alike in length as those of one review
    apart = sorted((cut[place] for place in order[1::2]), key=lambda both: len(both[1]))
    found += [
        Row((first, apart[number ^ 1][1]), 0)
        for number, (first, own) in enumerate(apart)
        if number ^ 1 < len(apart) and own != apart[number ^ 1][1]
    ]
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


def _papers(data: Path | None, *, skip_broken: bool, raw: bool) -> Corpus:
    folder = data_folder("retrieval", data, ("aan", "lra_release/lra_release/tsv_data"), WANTED)
    rows, notes = {}, list[str]()
    for split, name in FILES.items():
        path = folder / f"new_aan_pairs.{name}.tsv"
        rows[split], broken = _table(path, raw=raw)
        if broken and not skip_broken:
            raise DataError(complaint(path, broken))
        if not rows[split]:
            raise DataError(f"{path} holds no pairs")
        notes += skipped_note(path, broken)
    return Corpus(rows["train"], rows["test"], rows["validation"], notes=tuple(notes))


def _table(path: Path, *, raw: bool) -> tuple[list[Row], list[str]]:
    """Lines of label, two numbers and two texts, tabs between them; and which are broken."""
    if not path.is_file():
        raise DataError(f"task retrieval: there is no {path}; wanted is {WANTED}")
    try:
        text = read_bytes(path).decode(errors="surrogateescape" if raw else "strict")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text") from error
    found, broken = [], []
    # not splitlines: it would also break at marks that stand inside of papers
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), 1):
        parts = line.rstrip("\r").split("\t")
        if len(parts) != 5 or parts[0] not in ("0", "1", "0.0", "1.0"):
            broken.append(f"line {number} (not a label, two numbers and two texts)")
        elif not (parts[3].strip() and parts[4].strip()):
            broken.append(f"line {number} (a text is empty)")
        else:
            found.append(Row((parts[3], parts[4]), int(float(parts[0]))))
    return found, broken
