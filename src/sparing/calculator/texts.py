"""The sums that the scanner learns to read: short, spaced in several ways."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate

from sparing.calculator.rows import DIGITS, OPERANDS
from sparing.tasks._expressions import Expression, draw

SPACED, CLOSE, MIXED = range(3)


@dataclass(frozen=True)
class Sum:
    """An expression, written in one of the ways it may be written."""

    expression: Expression
    text: str

    def totals(self, rows: int) -> list[int]:
        """0, then the total after each of so many rows; it stays when there are no more numbers."""
        operands, operators = self.expression.operands, self.expression.operators
        signed = [
            -number if operator == "-" else number
            for number, operator in zip(operands, ("+", *operators), strict=True)
        ]
        found = [0, *accumulate(signed)]
        return found + [found[-1]] * (rows + 1 - len(found))


def draw_sums(
    chance: random.Random, count: int, excluded: Collection[Expression] = ()
) -> list[Sum]:
    """Sums of one to four numbers of up to three digits, but for those that are excluded."""
    found: list[Sum] = []
    while len(found) < count:
        drawn = draw(chance, chance.randint(1, OPERANDS), DIGITS)
        if drawn not in excluded:
            found.append(Sum(drawn, written(drawn, chance)))
    return found


def written(expression: Expression, chance: random.Random) -> str:
    """With spaces around operators, without any, or with each of them at random.

    Texts without spaces are the hard ones, so that they come most often.
    """
    way = chance.choice((SPACED, CLOSE, CLOSE, MIXED))
    parts = [str(expression.operands[0])]
    for operator, operand in zip(expression.operators, expression.operands[1:], strict=True):
        before, after = (
            " " if way == SPACED or (way == MIXED and chance.random() < 0.5) else ""
            for _ in range(2)
        )
        parts += [before, operator, after, str(operand)]
    return "".join(parts)
