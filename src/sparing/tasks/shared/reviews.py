"""Film reviews in aclImdb's layout, or from the hub, for the tasks that use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparing.core.errors import DataError, listed, option
from sparing.tasks._archive import TEXT_BYTES, files_in, find_archive
from sparing.tasks.shared.files import data_folder, given_folder
from sparing.tasks.shared.hub import class_numbers, columns_of, from_hub
from sparing.tasks.shared.table import Row

LABELS = {"neg": "negative", "pos": "positive"}
LICENCE = "none stated; cite Maas et al. 2011"
SOURCE = "Large Movie Review Dataset (Maas et al. 2011), ai.stanford.edu/~amaas/data/sentiment"
PUBLISHED = 25000
SHOWN = 100  # names of reviews that a note lists
WANTED = "the folder aclImdb, or aclImdb_v1.tar.gz as published,"
REVIEW = r"(train|test)/(neg|pos)/([0-9]{1,18})_[0-9]{1,18}\.txt"
Reviews = dict[str, list[Row]]


def reviews(
    task: str, data: Path | None, *, skip_broken: bool, raw: bool
) -> tuple[Reviews, list[str]]:
    """Training and test reviews, and notes: which were left out, and whether it is a subset.

    Files are aclImdb/{train,test}/{pos,neg}/ID_RATING.txt, in a folder or in the archive, which is
    read without unpacking it; without a data folder they come from the hub. Line breaks written as
    ``<br />`` become spaces. ``raw`` keeps bytes that are not UTF-8, for reading as bytes.
    Otherwise such reviews are broken, as empty ones are: ``DataError``, unless ``skip_broken``.
    """
    if given_folder(data) is None:
        splits, notes = _from_hub(task)
    else:
        folder = data_folder(task, data, ("imdb",), WANTED)
        path = find_archive(task, folder, ("aclImdb",), WANTED)
        splits, notes = _from_files(path, skip_broken, raw)
    for split, rows in splits.items():
        if not rows:
            raise DataError(f"task {task}: there are no {split} reviews")
        there = {row.label for row in rows}
        for number, name in enumerate(LABELS.values()):
            if number not in there:
                raise DataError(f"task {task}: there are no {name} {split} reviews")
        if len(rows) < PUBLISHED * 0.99:
            notes.append(f"subset: {split} holds {len(rows)} of {PUBLISHED} published reviews")
    return splits, notes


def _from_files(path: Path, skip_broken: bool, raw: bool) -> tuple[Reviews, list[str]]:
    splits: dict[str, list[tuple[str, int, Row]]] = {"train": [], "test": []}
    empty, no_text = list[str](), list[str]()
    for match, content in files_in(path, REVIEW, TEXT_BYTES):
        split, side, number = match.groups()
        try:
            text = content.decode(errors="surrogateescape" if raw else "strict")
        except UnicodeDecodeError:
            no_text.append(match.group()[1:])
            continue
        text = text.replace("<br />", " ").strip()
        if text:
            row = Row((text,), list(LABELS).index(side))
            splits[split].append((side, int(number), row))
        else:
            empty.append(match.group()[1:])
    notes = _left_out(path, empty, no_text, skip_broken)
    # archives and file systems have other orders
    return {split: [row for *_, row in sorted(rows)] for split, rows in splits.items()}, notes


def _left_out(
    path: Path, empty: Sequence[str], no_text: Sequence[str], skip_broken: bool
) -> list[str]:
    """Notes on skipped reviews, empty or not UTF-8; an error unless skipping is requested."""
    remedy = f"leave such out with {option('skip_broken', True)}"
    if no_text and not skip_broken:
        raise DataError(
            f"{path}: {len(no_text)} reviews are not UTF-8 text: {listed(no_text)}; "
            f"{remedy}, or read bytes with {option('tokenizer', 'bytes')}"
        )
    if empty and not skip_broken:
        raise DataError(f"{path}: {len(empty)} reviews are empty: {listed(empty)}; {remedy}")
    kinds = (("empty reviews", empty), ("reviews that are not UTF-8 text", no_text))
    return [
        f"{len(names)} {kind} left out: {listed(names, SHOWN)}" for kind, names in kinds if names
    ]


def _from_hub(task: str) -> tuple[Reviews, list[str]]:
    instead = f"give --data or set SPARING_DATA, and put {WANTED} into its imdb/"
    hub = from_hub(task, "stanfordnlp/imdb", instead=instead)
    rows = {}
    for split in ("train", "test"):
        texts, labels = columns_of(task, hub, split, ("text", "label"))
        rows[split] = [
            Row((str(text).replace("<br />", " ").strip(),), number)
            for text, number in zip(
                texts, class_numbers(f"task {task}: the hub's {split}", labels, 2), strict=True
            )
        ]
    return rows, []
