"""Which texts the calculator is asked: sums of integers, nothing else."""

from __future__ import annotations

import re

from sparing.core.errors import UsageError
from sparing.tasks._expressions import Expression, parse

MOST_CHARACTERS = 20_000
# Numbers times digits of the longest: what the network goes over, column by column.
MOST_CELLS, MOST_DIGITS = 100_000, 4_000


def checked(text: str) -> Expression:
    """The sum that a text is; raises ``UsageError`` with what it is instead.

    Its exact value is Python's, never the network's.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"the calculator reads up to {MOST_CHARACTERS:,} characters, got {len(text):,}"
        )
    expression = parse(text)
    if "*" in expression.operators:
        raise UsageError("the calculator adds and subtracts: it has not learned to multiply")
    digits = max(map(len, re.findall(r"\d+", text)))
    if digits > MOST_DIGITS:
        raise UsageError(f"the calculator reads numbers of up to {MOST_DIGITS:,} digits")
    if digits * len(expression.operands) > MOST_CELLS:
        raise UsageError(
            f"{len(expression.operands):,} numbers of up to {digits:,} digits take too long: their "
            f"product is above {MOST_CELLS:,}"
        )
    return expression
