"""Which texts the calculator is asked: sums of integers, nothing else."""

from __future__ import annotations

from sparing.core.errors import UsageError
from sparing.tasks._expressions import Expression, parse

MOST_CHARACTERS = 20_000


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
    return expression
