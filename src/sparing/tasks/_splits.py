"""Fixed splits: the same on every machine and with every version of every library."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from fractions import Fraction

from sparing.core.errors import UsageError


def hashed_order(keys: Sequence[str], seed: int) -> list[int]:
    """The indices of ``keys`` in an order that only the keys and the seed decide.

    Sorting by a hash needs no random generator, whose stream a library may change. Equal keys
    stand together, so that a cut separates at most one of them from its equals.
    """

    def place(index: int) -> tuple[bytes, int]:
        text = f"{seed}:{keys[index]}".encode(errors="surrogateescape")
        return hashlib.blake2b(text, digest_size=8).digest(), index

    return sorted(range(len(keys)), key=place)


def stratified(
    labels: Sequence[Hashable], keys: Sequence[str], sizes: Sequence[int], seed: int
) -> list[list[int]]:
    """Disjoint parts of the given sizes, each with the classes in their common proportion.

    ``keys`` name the examples and decide, with the seed, which goes where. Within a part the
    indices are in the hashed order, classes mixed.
    """
    if any(size < 0 for size in sizes):
        raise UsageError(f"there cannot be {min(sizes)} examples")
    if sum(sizes) > len(labels):
        raise UsageError(f"{sum(sizes)} examples asked for, but there are {len(labels)}")
    order = hashed_order(keys, seed)
    # Spread each class evenly over [0, 1): any stretch then holds all classes in proportion.
    ranks: dict[Hashable, int] = defaultdict(int)
    counts: dict[Hashable, int] = defaultdict(int)
    for label in labels:
        counts[label] += 1
    spread = []
    for position, index in enumerate(order):
        label = labels[index]
        spread.append((Fraction(2 * ranks[label] + 1, 2 * counts[label]), position, index))
        ranks[label] += 1
    line = [index for _, _, index in sorted(spread)]
    place = {index: position for position, index in enumerate(order)}
    parts, start = [], 0
    for size in sizes:
        parts.append(sorted(line[start : start + size], key=place.__getitem__))
        start += size
    return parts
