"""Which texts the calculator reads, and which of them are sums of integers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparing.calculator.alphabet import TEXT
from sparing.core.errors import UsageError
from sparing.tasks.shared.expressions import Expression, parse

MOST_CHARACTERS = 20_000
# Numbers times digits of the longest: the cells that the network reads, column by column.
MOST_CELLS, MOST_DIGITS = 100_000, 4_000
SHOWN = 40


def checked(text: str) -> Expression:
    """The sum of a text; raises ``UsageError`` that describes any other text.

    Its exact value is Python's, never the network's.
    """
    _check_length(text)
    expression = parse(text)
    if "*" in expression.operators:
        raise UsageError("the calculator adds and subtracts: it has not learned to multiply")
    _check_work(text)
    return expression


def readable(texts: object, alphabet: str = TEXT) -> list[str]:
    """Texts that a network with this alphabet can read, sums or not.

    Raises ``UsageError`` for anything that is not a text, for an empty one, and for characters
    outside the alphabet and white space. It also raises it for a text without a digit, and for one
    that takes too long.
    """
    if isinstance(texts, str):
        raise UsageError(f"the calculator reads a list of texts; got the text {texts[:SHOWN]!r}")
    if not isinstance(texts, Iterable):
        raise UsageError(f"the calculator reads a list of texts; got one {type(texts).__name__}")
    listed = list(texts)
    for text in listed:
        _check_readable(text, alphabet)
    return listed


def _check_readable(text: object, alphabet: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"the calculator reads texts; got one {type(text).__name__}")
    _check_length(text)
    unknown = next((c for c in text if c not in alphabet and not c.isspace()), None)
    if unknown is not None:
        raise UsageError(f"the calculator reads digits, +, - and spaces, not {unknown!r}")
    if not any(c.isdigit() for c in text):
        what = f"{text[:SHOWN]!r}, which has no digit" if text else "an empty text"
        raise UsageError(f"the calculator reads sums of numbers; got {what}")
    _check_work(text)


def _check_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"the calculator reads up to {MOST_CHARACTERS:,} characters; got {len(text):,}"
        )


def _check_work(text: str) -> None:
    numbers = re.findall(r"\d+", text)
    digits = max(map(len, numbers))
    if digits > MOST_DIGITS:
        raise UsageError(
            f"the calculator reads numbers of up to {MOST_DIGITS:,} digits; got one of {digits:,}"
        )
    if digits * len(numbers) > MOST_CELLS:
        raise UsageError(
            f"{len(numbers):,} numbers of up to {digits:,} digits take too long: their product is "
            f"above {MOST_CELLS:,}"
        )
