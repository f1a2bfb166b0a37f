"""Retrieval: do two documents belong together? Read byte by byte.

Source: the task Retrieval of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006), on pairs of
papers of the ACL Anthology Network (Radev et al., 2013). What differs: the arena cuts each document
to 4,000 bytes, encodes the two separately, without attention between them, and classifies the
outputs of both towers. Here one sequence holds both, attention goes across, and ``max_tokens``
bounds them together. Without the papers, pairs are made of film reviews: two halves of one or of
two.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from sparing.core.errors import DataError, option, require_choice
from sparing.tasks._facts import Facts
from sparing.tasks._splits import hashed_order
from sparing.tasks.shared.files import data_folder
from sparing.tasks.shared.reviews import SOURCE, reviews
from sparing.tasks.shared.table import Row, complaint, skipped_note
from sparing.tasks.shared.task import Task
from sparing.tasks.shared.text import BYTES, Corpus, Reading, text_task

FACTS = Facts(
    metrics=("accuracy",),
    licence="none stated; cite Radev et al. 2013, or Maas et al. 2011 for reviews",
    source=f"ACL Anthology Network in the Long Range Arena's files; or {SOURCE}",
    splits="the published test set",
    chance=0.5,
)
LABELS = ("apart", "together")
LINE_BYTES = 2**26
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

    With "reviews" each film review of ``imdb`` is cut at the space nearest to its middle, after
    runs of white space became single spaces. Half of them are paired with their own second half.
    The others get that of another review of the same split and of like length, so every half is in
    one pair and lengths reveal nothing. Training reviews that repeat the text of a test review or
    of an earlier one are left out, and noted.

    ``max_tokens`` are those of both texts and their two class tokens; the longer text loses its end
    first. 8,000 is nearest to the arena's length. Read as bytes, papers are cut to ``max_tokens``
    each as they are read, before ``examples`` chooses among them. Broken lines and reviews (without
    two texts, empty, not UTF-8 unless read as bytes) raise ``DataError``, or are left out with
    ``skip_broken``.
    """
    require_choice("retrieval", "pairs", pairs, PAIRS)
    raw = tokenizer == BYTES
    if pairs == "papers":
        corpus = _papers(data, skip_broken=skip_broken, most=max_tokens if raw else None)
    else:
        corpus = _halved(data, skip_broken=skip_broken, raw=raw, seed=seed)
    reading = Reading(tokenizer, max_tokens=max_tokens, examples=examples, seed=seed)
    return text_task("retrieval", FACTS, LABELS, corpus, reading)


def _halved(data: Path | None, *, skip_broken: bool, raw: bool, seed: int) -> Corpus:
    """Pairs of halves of reviews."""
    rows, notes = reviews("retrieval", data, skip_broken=skip_broken, raw=raw)
    subset = any(note.startswith("subset") for note in notes)
    fresh = _unshared(rows["train"], rows["test"])
    fewer = len(rows["train"]) - len(fresh)
    if fewer:
        notes.append(f"train: {fewer} reviews that are also test reviews, or occur twice, left out")
    parts = {"train": halves(fresh, seed), "test": halves(rows["test"], seed)}
    for split, made in parts.items():
        if not made:
            raise DataError(f"task retrieval: no {split} review can be cut: none has a space")
    all_notes = (*notes, "pairs are halves of film reviews, not papers")
    return Corpus(parts["train"], parts["test"], subset=subset, notes=all_notes)


def _unshared(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The reviews that are not among the others, without duplicates."""
    taken = {_joined(row.texts[0]) for row in others}
    unshared = []
    for row in rows:
        text = _joined(row.texts[0])
        if text not in taken:
            unshared.append(row)
            taken.add(text)
    return unshared


def halves(rows: Sequence[Row], seed: int) -> list[Row]:
    """Pairs of halves: every other review with its own second half, the rest with another's.

    The split into pairs follows from the texts and the seed. Reviews without a space are left out.
    """
    cut = [both for row in rows if all(both := _cut(row.texts[0]))]
    order = hashed_order([first for first, _ in cut], seed)
    pairs = [Row(cut[index], 1) for index in order[::2]]
    # Two reviews next in length exchange their second halves, so no review gets its own half. None
    # is used twice, and lengths differ as little as those of the halves of one review.
    apart = sorted((cut[index] for index in order[1::2]), key=lambda both: len(both[1]))
    pairs += [
        Row((first, apart[number ^ 1][1]), 0)
        for number, (first, second) in enumerate(apart)
        if number ^ 1 < len(apart) and second != apart[number ^ 1][1]
    ]
    return pairs


def _cut(text: str) -> tuple[str, str]:
    """The text before and after the space nearest to its middle."""
    text = _joined(text)
    middle = len(text) // 2
    before, after = text.rfind(" ", 0, middle + 1), text.find(" ", middle)
    positions = [position for position in (before, after) if position >= 0]
    if not positions:
        return text, ""
    position = min(positions, key=lambda candidate: abs(candidate - middle))
    return text[:position], text[position + 1 :]


def _joined(text: str) -> str:
    """The text with single spaces: double ones at paragraph ends would reveal matching halves."""
    return " ".join(text.split())


def _papers(data: Path | None, *, skip_broken: bool, most: int | None) -> Corpus:
    """The arena's pairs; texts cut to ``most`` bytes, or whole and in UTF-8 where it is None."""
    folder = data_folder("retrieval", data, ("aan", "lra_release/lra_release/tsv_data"), WANTED)
    rows, notes = {}, list[str]()
    for split, name in FILES.items():
        path = folder / f"new_aan_pairs.{name}.tsv"
        rows[split], broken = _table(path, most)
        if broken and not skip_broken:
            raise DataError(complaint(path, broken))
        if not rows[split]:
            raise DataError(f"{path} holds no pairs")
        notes += skipped_note(path.name, broken)
    return Corpus(rows["train"], rows["test"], rows["validation"], notes=tuple(notes))


def _table(path: Path, most: int | None) -> tuple[list[Row], list[str]]:
    """Lines of label, two numbers and two texts, tabs between them; and which are broken.

    Read line by line, because the published training file has 8 GB.
    """
    rows, broken = [], []
    for number, line in _lines(path):
        parts = line.split(b"\t")
        if len(parts) != 5 or parts[0] not in (b"0", b"1", b"0.0", b"1.0"):
            broken.append(f"line {number} (not a label, two numbers and two texts)")
        elif not (parts[3].strip() and parts[4].strip()):
            broken.append(f"line {number} (a text is empty)")
        else:
            errors = "strict" if most is None else "surrogateescape"
            try:
                first, second = (part[:most].decode(errors=errors) for part in parts[3:])
            except UnicodeDecodeError:
                broken.append(
                    f"line {number} (not UTF-8 text, which {option('tokenizer', BYTES)} can read)"
                )
                continue
            rows.append(Row((first, second), int(float(parts[0]))))
    return rows, broken


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines and their numbers, without the empty ones at the end.

    Only new lines end them: other line separators occur inside papers.
    """
    if not path.is_file():
        raise DataError(f"task retrieval: there is no {path}; put {WANTED} there")
    empty = list[int]()
    try:
        with path.open("rb") as file:
            lines = iter(functools.partial(file.readline, LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, 1):
                if len(line) > LINE_BYTES:
                    raise DataError(f"{path}: line {number} has more than {LINE_BYTES:,} bytes")
                content = line.rstrip(b"\r\n")
                if not content:
                    empty.append(number)
                    continue
                yield from ((before, b"") for before in empty)
                empty.clear()
                yield number, content
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
