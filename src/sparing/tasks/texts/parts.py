"""Disjoint parts of texts: to train on, to choose by, to calibrate a promise, to test the result.

A promise needs independent rows that nothing else has seen. So rows that share a whole text go to
one part, and all parts but training have one row of each such group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sparing.core.errors import DataError, UsageError, require_choice
from sparing.tasks._splits import hashed_order
from sparing.tasks.texts.distinct import groups_of, plain
from sparing.tasks.texts.reading import Texts

LOGGER = logging.getLogger(__name__)
FEWEST, MOST, SHARE = 100, 5_000, 5  # rows of a part; a fifth of all, within these bounds
LARGE_GROUP = 10  # pairs that are linked by shared texts; larger groups may be 1 % of all rows


@dataclass(frozen=True)
class Sizes:
    """Rows of each part; all other rows are for training."""

    choose: int
    calibrate: int
    test: int

    @property
    def held_out(self) -> int:
        """Rows that are not for training."""
        return self.choose + self.calibrate + self.test


@dataclass(frozen=True)
class Parts:
    """Disjoint parts of the same texts, and notes on their sizes and on rows in none of them."""

    train: Texts
    choose: Texts
    calibrate: Texts
    test: Texts
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Texts]]:
        """The parts by name."""
        for name in ("train", "choose", "calibrate", "test"):
            yield name, getattr(self, name)


def default_sizes(count: int, needed: int = FEWEST) -> Sizes:
    """The sizes for so many distinct rows: a fifth for each part, from 100 to 5,000 rows.

    Calibration has at least ``needed`` rows. The rest, at least 100 rows, is for training.
    """
    size = max(FEWEST, min(MOST, count // SHARE))
    return Sizes(size, max(size, needed), size)


def fewest_rows(needed: int = FEWEST) -> int:
    """The fewest distinct rows that ``parts_of`` can divide."""
    return max(FEWEST, needed) + 3 * FEWEST


def parts_of(
    texts: Texts,
    *,
    seed: int,
    hold_out: str = "random",
    sizes: Sizes | None = None,
    needed: int = FEWEST,
) -> Parts:
    """Divide texts into four disjoint parts; the same seed gives the same parts.

    Rows that share a whole text, up to white space, are on one side. Choosing, calibration and
    test have distinct rows only, one of each group of rows that share a text. With ``hold_out``
    "last" the newest rows, those at the end, are for test, and those before them for calibration;
    older rows that share a text with them are left out. ``sizes`` replaces the rule of
    ``default_sizes``. ``needed`` is the fewest rows for the promise: see
    ``measure.calibration.examples_needed``. Raises ``DataError`` for fewer rows than that takes
    and ``UsageError`` for impossible sizes.
    """
    require_choice("parts_of", "hold_out", hold_out, ("random", "last"))
    groups = groups_of(texts.rows)
    sizes = _sizes(texts, len(groups), sizes, needed)
    ranked, always = _ranked(texts, groups, seed)
    held_out = sizes.calibrate + sizes.test
    if hold_out == "last":
        newest = sorted(ranked, key=lambda group: -group[-1])[:held_out]
        taken = {group[0] for group in newest}
        ranked = [*newest, *(group for group in ranked if group[0] not in taken)]
    ends = (sizes.test, held_out, sizes.held_out)
    if len(ranked) < sizes.held_out:
        raise _too_few_free(texts, len(ranked), sizes.held_out)
    pick = -1 if hold_out == "last" else 0
    test, calibrate, choose = (
        sorted(group[pick] for group in ranked[start:end])
        for start, end in zip((0, *ends), ends, strict=False)
    )
    train = sorted(index for group in (*ranked[ends[-1] :], *always) for index in group)
    parts = Parts(
        texts.subset(train), texts.subset(choose), texts.subset(calibrate), texts.subset(test)
    )
    return _noted(texts, parts, hold_out, len(always))


def _sizes(texts: Texts, count: int, sizes: Sizes | None, needed: int) -> Sizes:
    """The sizes for so many groups; raises where there are too few of them."""
    chosen = sizes or default_sizes(count, needed)
    if min(chosen.choose, chosen.calibrate, chosen.test) < 1:
        raise UsageError(f"every part needs at least 1 row; got {chosen}")
    if chosen.calibrate < needed:
        raise UsageError(
            f"calibration on {chosen.calibrate:,} rows is not enough: this promise needs {needed:,}"
        )
    fewest = chosen.held_out + 1 if sizes else fewest_rows(needed)
    if count < fewest:
        train = 1 if sizes else FEWEST
        raise DataError(
            f"{texts.source} holds {count:,} texts that share nothing ({len(texts):,} rows), and "
            f"this promise needs at least {fewest:,}: {train} to train on, "
            f"{chosen.choose:,} to choose by, {chosen.calibrate:,} to calibrate, "
            f"{chosen.test:,} to test"
        )
    if not sizes and chosen.held_out + FEWEST > count:  # calibration needs more than a fifth
        rest = (count - FEWEST - chosen.calibrate) // 2
        chosen = Sizes(rest, chosen.calibrate, rest)
    return chosen


def _ranked(
    texts: Texts, groups: Sequence[list[int]], seed: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The groups by hash, and those that are always trained on: chains of very many pairs."""
    limit = max(LARGE_GROUP, len(texts) // 100) if texts.are_pairs else len(texts)
    free = [group for group in groups if len(group) <= limit]
    keys = ["\t".join(map(plain, texts.rows[group[0]])) for group in free]
    ranked = [free[number] for number in hashed_order(keys, seed)]
    return ranked, [group for group in groups if len(group) > limit]


def _too_few_free(texts: Texts, count: int, needed: int) -> DataError:
    return DataError(
        f"{texts.source}: most pairs share a text with many others, and {count:,} groups are left "
        f"for choosing, calibration and test, which need {needed:,}"
    )


def _noted(texts: Texts, parts: Parts, hold_out: str, always: int) -> Parts:
    """The parts with their notes, which are logged too."""
    sizes = ", ".join(f"{name} {len(part):,}" for name, part in parts)
    how = "the newest rows are calibrate and test" if hold_out == "last" else "sampled by the seed"
    notes = [f"parts of {Path(texts.source).name}: {sizes} rows ({how})"]
    left = len(texts) - sum(len(part) for _, part in parts)
    if left:
        notes.append(
            f"{left:,} rows that share a text with a row to choose by, to calibrate or to test on "
            "are left out"
        )
    if always:
        noun = "group" if always == 1 else "groups"
        notes.append(
            f"{always:,} {noun} of pairs linked by many shared texts are for training only"
        )
    for note in notes:
        LOGGER.info("%s", note)
    return replace(parts, notes=tuple(notes))
