"""Results as text that always fits a terminal, printed by one process of several."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

MOST_LINES = 40


def fitted_lines(lines: Sequence[str], most: int = MOST_LINES) -> str:
    """The lines as one text of at most ``most`` lines; the last one counts the omitted ones."""
    if len(lines) <= most:
        return "\n".join(lines)
    return "\n".join([*lines[: most - 1], f"... and {len(lines) - most + 1} lines more"])


def silence_others(environment: Mapping[str, str] | None = None) -> None:
    """Print nothing any more, unless a launcher's variables name this process the first."""
    given = os.environ if environment is None else environment
    numbers = [given.get(name, "0") for name in ("RANK", "WORLD_SIZE")]
    if all(text.isdigit() for text in numbers) and 0 < int(numbers[0]) < int(numbers[1]):
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def print_again() -> None:
    """Undo ``silence_others``."""
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
