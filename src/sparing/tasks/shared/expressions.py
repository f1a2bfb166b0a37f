"""Sums such as ``3 - -2 + 0``: read from text, valued exactly, generated at random."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sparing.core.errors import UsageError

PRECEDENCE = {"+": 1, "-": 1, "*": 2}
PIECE = re.compile(r"\d+|[-+*()]|\S")
SHOWN = 40
# A signed number is where a value must follow: first, behind an operator or an opened bracket.
_OPEN = "("


@dataclass(frozen=True)
class Expression:
    """Integers with an operator between each two, without brackets, valued from left to right.

    ``text`` is its one written form: single spaces around operators, signs at their numbers.
    """

    operands: tuple[int, ...]
    operators: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.operators) != len(self.operands) - 1:
            raise UsageError(
                f"{len(self.operands)} numbers have {len(self.operands) - 1} operators between "
                f"them; got {len(self.operators)}"
            )

    @property
    def text(self) -> str:
        """Such as ``3 - -2 + 0``."""
        parts = [str(self.operands[0])]
        for operator, operand in zip(self.operators, self.operands[1:], strict=True):
            parts += [operator, str(operand)]
        return " ".join(parts)

    @cached_property
    def value(self) -> int:
        """The exact value; multiplication binds closer."""
        return evaluate(self.text)


def tokens(text: str) -> Iterator[str]:
    """Signed numbers, operators and brackets; raises ``UsageError`` naming anything else.

    Spaces matter only inside a number: ``3--2`` is ``3 - -2``.
    """
    due, sign = True, ""
    for match in PIECE.finditer(text):
        piece = match.group()
        if piece.isdecimal() and piece.isascii():
            if not due:
                raise UsageError(
                    f"two numbers without an operator between them: {_at(text, match)}"
                )
            yield sign + piece
            due, sign = False, ""
        elif piece == "-" and due and not sign:
            sign = "-"
        elif piece in PRECEDENCE and not due:
            yield piece
            due = True
        elif piece == _OPEN and due:
            if sign:
                raise UsageError(f"a sign before a bracket is not read: {_at(text, match)}")
            yield piece
        elif piece == ")" and not due:
            yield piece
        else:
            raise UsageError(_misplaced(piece, text, match))
    if due:
        raise UsageError(f"a number is missing at the end of {_short(text)}")


def _misplaced(piece: str, text: str, match: re.Match[str]) -> str:
    if piece == "/":
        return f"division is not known, only + - * and brackets: {_at(text, match)}"
    if piece in "+-*()":
        return f"{piece!r} does not belong there: {_at(text, match)}"
    return f"{_short(piece)} is no number, operator or bracket: {_at(text, match)}"


def _at(text: str, match: re.Match[str]) -> str:
    return f"character {match.start() + 1} of {_short(text)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def evaluate(text: str) -> int:
    """The exact value of an expression of integers, + - * and brackets.

    Raises ``UsageError`` unless the text is one whole expression; any depth of brackets is read.
    """
    values: list[int] = []
    waiting: list[str] = []
    for token in tokens(text):
        if token == _OPEN:
            waiting.append(token)
        elif token == ")":
            while waiting and waiting[-1] != _OPEN:
                _apply(values, waiting.pop())
            if not waiting:
                raise UsageError(f"a bracket is closed that was not opened, in {_short(text)}")
            waiting.pop()
        elif token in PRECEDENCE:
            while waiting and PRECEDENCE.get(waiting[-1], 0) >= PRECEDENCE[token]:
                _apply(values, waiting.pop())
            waiting.append(token)
        else:
            values.append(_integer(token, text))
    while waiting:
        operator = waiting.pop()
        if operator == _OPEN:
            raise UsageError(f"a bracket is not closed, in {_short(text)}")
        _apply(values, operator)
    return values[0]


def _integer(token: str, text: str) -> int:
    try:
        return int(token)
    except ValueError as error:  # Python refuses to read numbers of thousands of digits
        raise UsageError(
            f"a number of {len(token)} digits is too long, in {_short(text)}"
        ) from error


def _apply(values: list[int], operator: str) -> None:
    right, left = values.pop(), values.pop()
    results = {"+": left + right, "-": left - right, "*": left * right}
    values.append(results[operator])


def parse(text: str) -> Expression:
    """A sum without brackets; raises ``UsageError`` for anything else."""
    parts = list(tokens(text))
    if not {_OPEN, ")"}.isdisjoint(parts):
        raise UsageError(f"brackets are not read here: {_short(text)}")
    numbers = tuple(_integer(token, text) for token in parts[::2])
    return Expression(numbers, tuple(parts[1::2]))


def draw(
    chance: random.Random,
    operands: int,
    digits: int,
    operators: Sequence[str] = "+-",
    *,
    exact_digits: bool = False,
) -> Expression:
    """A random expression of ``operands`` signed numbers with ``digits`` digits each, or fewer."""
    if operands < 1 or digits < 1 or not operators:
        raise UsageError(f"an expression needs operands and digits; got {operands} and {digits}")
    numbers = tuple(_number(chance, digits, exact=exact_digits) for _ in range(operands))
    return Expression(numbers, tuple(chance.choice(operators) for _ in range(operands - 1)))


def _number(chance: random.Random, digits: int, *, exact: bool) -> int:
    length = digits if exact else chance.randint(1, digits)
    least = 10 ** (length - 1) if length > 1 or exact else 0
    return chance.choice((-1, 1)) * chance.randint(least, 10**length - 1)


def draw_many(
    count: int,
    operands: tuple[int, int],
    digits: int,
    *,
    seed: int | str,
    operators: Sequence[str] = "+-",
    exact_digits: bool = False,
    excluded: Collection[str] = (),
) -> list[Expression]:
    """``count`` different random expressions, with no excluded text.

    ``operands`` are the fewest and the most. Raises ``UsageError`` where there are too few.
    """
    chance, expressions = random.Random(f"arithmetic {seed}"), dict[str, Expression]()
    banned, tries = set(excluded), 0
    while len(expressions) < count:
        tries += 1
        if tries > 100 * count + 1000:
            raise UsageError(
                f"there are too few different expressions for {count:,} of {operands[0]} to "
                f"{operands[1]} numbers of {digits} digits: found {len(expressions):,}"
            )
        one = draw(chance, chance.randint(*operands), digits, operators, exact_digits=exact_digits)
        if one.text not in banned:
            expressions.setdefault(one.text, one)
    return list(expressions.values())
