"""Fixed splits: the same on every machine and with every version of every library."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from sparing.core.errors import UsageError


def hashed_order(keys: Sequence[str], seed: int) -> list[int]:
    """The indices of ``keys`` in an order that depends only on the keys and the seed.

    Sorting by a hash needs no random generator: a library may change its stream. Equal keys are
    adjacent, so a cut separates at most one of them from its equals.
    """

    def key(index: int) -> tuple[bytes, int]:
        text = f"{seed}:{keys[index]}".encode(errors="surrogateescape")
        return hashlib.blake2b(text, digest_size=8).digest(), index

    return sorted(range(len(keys)), key=key)


def stratified(
    labels: Sequence[Hashable], keys: Sequence[str], sizes: Sequence[int], seed: int
) -> list[list[int]]:
    """Disjoint parts of the given sizes, each with the classes in their common proportion.

    ``keys`` name the examples and, with the seed, decide their parts. Within a part the indices are
    in the hashed order, classes mixed.
    """
    if any(size < 0 for size in sizes):
        raise UsageError(f"a split cannot have {min(sizes)} examples")
    if sum(sizes) > len(labels):
        raise UsageError(f"{sum(sizes)} examples requested, but there are {len(labels)}")
    order = hashed_order(keys, seed)
    # Spread each class evenly over [0, 1): any interval then holds all classes in proportion.
    ranks: dict[Hashable, int] = defaultdict(int)
    counts = Counter(labels)
    phases = _phases(counts, sizes, seed)
    spread = []
    for position, index in enumerate(order):
        label = labels[index]
        spread.append(((ranks[label] + phases[label]) / counts[label], position, index))
        ranks[label] += 1
    line = [index for _, _, index in sorted(spread)]
    rank = {index: position for position, index in enumerate(order)}
    parts, start = [], 0
    for size in sizes:
        parts.append(sorted(line[start : start + size], key=rank.__getitem__))
        start += size
    return parts


def _phases(
    counts: Mapping[Hashable, int], sizes: Sequence[int], seed: int
) -> dict[Hashable, Fraction]:
    """The position, from 0 to 1, where each class begins in its first step: in the middle.

    A class too rare for the smallest part begins at a random position: in the middle, the first
    part would lack all such classes.
    """
    smallest = min((size for size in sizes if size), default=0)
    total = sum(counts.values())

    def drawn(label: Hashable) -> Fraction:
        digest = hashlib.blake2b(f"{seed}:{label!r}".encode(), digest_size=4).digest()
        return Fraction(2 * int.from_bytes(digest, "big") + 1, 2**33)

    return {
        label: Fraction(1, 2) if count * smallest >= total else drawn(label)
        for label, count in counts.items()
    }


def pooled_when_rare(values: Sequence[Any], sizes: Sequence[int]) -> list[Hashable]:
    """Strata of numbers or tuples: one for each (rounded) value, and one for all rare in a part."""
    rounded = [value if isinstance(value, tuple) else round(value) for value in values]
    counts, smallest = Counter(rounded), min((size for size in sizes if size), default=0)
    return [number if counts[number] * smallest >= len(rounded) else None for number in rounded]


def kept_together(
    texts: Sequence[Sequence[str]], sizes: Sequence[int], seed: int
) -> list[list[int]]:
    """Disjoint parts that share no text, the first ones of at most the given sizes.

    The last part gets the rest. Examples that share one of their texts, directly or through others,
    go to the same part.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(_connected(texts)):
        groups[group].append(index)
    members = list(groups.values())
    order = hashed_order([min(texts[index][0] for index in group) for group in members], seed)
    parts: list[list[int]] = [[] for _ in range(len(sizes) + 1)]
    for position in order:
        member = members[position]
        room = [n for n, size in enumerate(sizes) if len(parts[n]) + len(member) <= size]
        parts[room[0] if room else -1].extend(member)
    return parts


def _connected(texts: Sequence[Sequence[str]]) -> list[int]:
    """For each example a member of its group that is the same for the whole group."""
    above = list(range(len(texts)))

    def root(index: int) -> int:
        while above[index] != index:
            above[index] = above[above[index]]
            index = above[index]
        return index

    first: dict[str, int] = {}
    for index, row_texts in enumerate(texts):
        for text in row_texts:
            above[root(index)] = root(first.setdefault(text, index))
    return [root(index) for index in range(len(texts))]
