"""Which rows are the same text, and which share a whole text with each other."""

from __future__ import annotations

from collections.abc import Sequence


def plain(text: str) -> str:
    """A text with single spaces: two that differ only in white space are the same text."""
    return " ".join(text.split())


def distinct_rows(rows: Sequence[tuple[str, ...]]) -> list[int]:
    """The index of the first row of each group of equal rows, in order."""
    first: dict[tuple[str, ...], int] = {}
    for index, row in enumerate(rows):
        first.setdefault(tuple(map(plain, row)), index)
    return list(first.values())


def groups_of(rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """The rows that share a whole text, directly or over others, in order of their first row.

    Rows of single texts are one group where they are equal. Pairs are one group where any of their
    texts are equal, so no text is in two groups.
    """
    parents = list(range(len(rows)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        for text in row:
            ends = root(first.setdefault(plain(text), index)), root(index)
            parents[max(ends)] = min(ends)
    groups: dict[int, list[int]] = {}
    for index in range(len(rows)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())
