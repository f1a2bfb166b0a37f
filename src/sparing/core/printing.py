"""Results as text that always fits a terminal."""

from __future__ import annotations

from collections.abc import Sequence

MOST_LINES = 40


def fitted_lines(lines: Sequence[str], most: int = MOST_LINES) -> str:
    """The lines as one text of at most ``most`` lines; the last one counts the omitted ones."""
    if len(lines) <= most:
        return "\n".join(lines)
    return "\n".join([*lines[: most - 1], f"... and {len(lines) - most + 1} lines more"])
