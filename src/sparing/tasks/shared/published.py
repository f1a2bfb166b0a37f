"""The sets of "A Predictive Calculator", reproduced exactly, and the corrected ones.

Source: Mukin, A Predictive Calculator (2025), and its published code's order of random numbers,
which NumPy's RandomState keeps from version to version.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from sparing.tasks.shared.expressions import Expression, parse

SEED, DRAWN, SPLIT = 42, 4000, 0.75
SMALL = range(-5, 5)
OUTSIDE = (*range(-8, -4), *range(5, 9))
CORRECTED_OUTSIDE = (*range(-9, -5), *range(5, 10))
PAIRS = (("+", "+"), ("+", "-"), ("-", "-"), ("-", "+"))
LONGEST, LONG_EACH = 8, 100
LONG_FROM = 4
PUBLISHED = ("train", "validation", "in", "out", "long")
# The first sixteen digits of the SHA-256 of each set, a line each, in the order below.
DIGESTS = {
    "train": "365e6fb3f83b85a2",
    "validation": "15fa99d15c7714e1",
    "in": "253a8717a55a4451",
    "out": "1c2b321aefff0f9b",
    "long": "621d1f505835f992",
}


@cache
def published() -> dict[str, tuple[Expression, ...]]:
    """The published sets: train, validation, in range, out of range, long.

    Three operands from -5 to 4; the expressions that 4,000 samples left out are the set in range.
    Out of range are all of -8 to -5 and 5 to 8 (although -5 is in range); long are 2 to 8 operands
    from -5 to 5. The published split into training and validation followed Python's order of sets,
    which no seed fixes; here the pool is sorted first.
    """
    state = np.random.RandomState(SEED)
    first, second, third = ((state.rand(DRAWN) * 10).astype(int) - 5 for _ in range(3))
    pool = {
        _three(int(a), int(b), int(c), _pair(state.rand(1)[0]))
        for a, b, c in zip(first, second, third, strict=True)
    }
    long = tuple(_long(state, operators) for operators in _lengths())
    order = state.permutation(len(pool))
    ordered, count = sorted(pool), int(SPLIT * len(pool))
    train = [ordered[index] for index in order[:count]]
    validation = [ordered[index] for index in order[count:]]
    whole = {_three(a, b, c, pair) for a, b, c in _cubes(SMALL) for pair in PAIRS}
    outside = {_three(a, b, c, pair) for a, b, c in _cubes(OUTSIDE) for pair in PAIRS}
    return {
        "train": _parsed(train),
        "validation": _parsed(validation),
        "in": _parsed(sorted(whole - pool)),
        "out": _parsed(sorted(outside)),
        "long": _parsed(long),
    }


@cache
def corrected() -> dict[str, tuple[Expression, ...]]:
    """Corrected sets: no test set contains anything seen, and long sums are long.

    Training and validation are the published ones, and so is ``in``. ``out`` has operands from 5 to
    9 and -9 to -6. ``long`` has 4 to 8 operands of the training range, ``out+long`` as many from
    outside it.
    """
    known = published()
    outside = {_three(a, b, c, pair) for a, b, c in _cubes(CORRECTED_OUTSIDE) for pair in PAIRS}
    return {
        **{name: known[name] for name in ("train", "validation", "in")},
        "out": _parsed(sorted(outside)),
        "long": counted(tuple(SMALL), "long"),
        "out+long": counted(CORRECTED_OUTSIDE, "out+long"),
    }


def digest(expressions: Iterable[Expression]) -> str:
    """Sixteen digits that identify sets by their texts and order."""
    lines = "\n".join(one.text for one in expressions)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _parsed(texts: Iterable[str]) -> tuple[Expression, ...]:
    return tuple(parse(text) for text in texts)


def _cubes(numbers: Iterable[int]) -> Iterable[tuple[int, int, int]]:
    return itertools.product(list(numbers), repeat=3)  # type: ignore[return-value]


def _three(a: int, b: int, c: int, pair: tuple[str, str]) -> str:
    return f"{a} {pair[0]} {b} {pair[1]} {c}"


def _pair(drawn: float) -> tuple[str, str]:
    """The operators for a number from 0 to 1, with the bounds of the published code."""
    if drawn < 0.25:
        return PAIRS[0]
    if 0.25 < drawn < 0.5:
        return PAIRS[1]
    return PAIRS[2] if 0.5 <= drawn <= 0.75 else PAIRS[3]


def _lengths() -> Iterable[int]:
    """Operators of each long expression: a hundred of each number, in order."""
    return (count for count in range(1, LONGEST) for _ in range(LONG_EACH))


def _long(state: np.random.RandomState, operators: int) -> str:
    parts = []
    for _ in range(operators):
        parts.append(str(state.randint(-5, 6)))
        parts.append(str(state.choice([" + ", " - "])))
    return "".join((*parts, str(state.randint(-5, 6))))


def counted(
    numbers: Sequence[int],
    name: str,
    lengths: Iterable[int] = range(LONG_FROM, LONGEST + 1),
    per_length: int = LONG_EACH,
) -> tuple[Expression, ...]:
    """``per_length`` different expressions of each number of operands, with these numbers alone.

    The name, with the number of operands, seeds the draws.
    """
    expressions: list[Expression] = []
    for operands in lengths:
        chance, by_text = random.Random(f"{name} {operands}"), dict[str, Expression]()
        while len(by_text) < per_length:
            one = Expression(
                tuple(chance.choice(numbers) for _ in range(operands)),
                tuple(chance.choice("+-") for _ in range(operands - 1)),
            )
            by_text.setdefault(one.text, one)
        expressions += by_text.values()
    return tuple(expressions)
