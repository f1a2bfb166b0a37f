"""The sums that the scanner learns to read: short, with every possible spacing."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate

from sparing.calculator.rows import DIGITS, OPERANDS
from sparing.tasks.shared.expressions import Expression, draw

SPACED, CLOSE, MIXED, FREE = range(4)
# Texts without spaces are harder, so they come more often.
CLOSE_WAYS = (SPACED, CLOSE, CLOSE, MIXED)
# Free spacing has up to so many spaces in a gap; one of these shares of a text's gaps has none.
MOST_SPACES = 8
CLOSED_SHARES = (0.3, 0.5, 0.8, 1.0)


@dataclass(frozen=True)
class Sum:
    """An expression with one of its possible texts."""

    expression: Expression
    text: str

    def totals(self, rows: int) -> list[int]:
        """0, then the total after each of ``rows`` rows; constant after the last number."""
        operands, operators = self.expression.operands, self.expression.operators
        signed = [
            -number if operator == "-" else number
            for number, operator in zip(operands, ("+", *operators), strict=True)
        ]
        running = [0, *accumulate(signed)]
        return running + [running[-1]] * (rows + 1 - len(running))


def draw_sums(
    chance: random.Random, count: int, excluded: Collection[Expression] = ()
) -> list[Sum]:
    """Random sums of one to four numbers of up to three digits, without excluded ones."""
    drawn_sums: list[Sum] = []
    while len(drawn_sums) < count:
        drawn = draw(chance, chance.randint(1, OPERANDS), DIGITS)
        if drawn not in excluded:
            drawn_sums.append(Sum(drawn, written(drawn, chance)))
    return drawn_sums


def written(expression: Expression, chance: random.Random) -> str:
    """The text of a sum: freely spaced or, equally often, with at most one space in a gap."""
    way = chance.choice((*CLOSE_WAYS, FREE, FREE, FREE, FREE))
    return freely_spaced(expression, chance) if way == FREE else _closely(expression, chance, way)


def closely_written(expression: Expression, chance: random.Random) -> str:
    """The text of a sum with at most one space in a gap, as the language models read it."""
    return _closely(expression, chance, chance.choice(CLOSE_WAYS))


def _closely(expression: Expression, chance: random.Random, way: int) -> str:
    gaps = {SPACED: (" ",), CLOSE: ("",), MIXED: ("", " ")}[way]
    parts = [str(expression.operands[0])]
    for operator, operand in zip(expression.operators, expression.operands[1:], strict=True):
        parts += [chance.choice(gaps), operator, chance.choice(gaps), str(operand)]
    return "".join(parts)


def freely_spaced(expression: Expression, chance: random.Random, most: int = MOST_SPACES) -> str:
    """The text of a sum with 0 to ``most`` spaces in every gap that the grammar allows.

    Gaps are at both ends, around operators, and between a sign and its number.
    """
    closed = chance.choice(CLOSED_SHARES)

    def gap() -> str:
        return "" if chance.random() < closed else " " * chance.randint(1, most)

    parts = [gap()]
    for operator, operand in zip(("", *expression.operators), expression.operands, strict=True):
        if operator:
            parts += [operator, gap()]
        if operand < 0:
            parts += ["-", gap()]
        parts += [str(abs(operand)), gap()]
    return "".join(parts)
