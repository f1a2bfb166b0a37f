"""The tables of the families with an adaptive form, from the record of their contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parents[1] / "tests" / "contract" / "families.json"
YES = "yes"


def _record() -> Any:
    return json.loads(RECORD.read_text(encoding="utf-8"))


def checks_table() -> str:
    """A row for each check and a column for each family, then each refusal in its words."""
    record = _record()
    families = record["families"]
    reasons: list[str] = []
    rows = []
    for check in record["meanings"]:
        cells = [_cell(check, families[name]["checks"][check], reasons) for name in families]
        rows.append([check, *cells])
    listed = "\n".join(f"{n}. {words}" for n, words in enumerate(reasons, start=1))
    meant = "\n".join(
        f"- **{name}**: {words.replace('``', '`')}" for name, words in record["meanings"].items()
    )
    table = _table(["Check", *families], rows)
    return f"{table}\n\nThe refusals:\n\n{listed}\n\nThe checks:\n\n{meant}"


def options_table() -> str:
    """A row for each unusual option: which families serve it, and how others refuse it."""
    rows = [
        [name, f"`{words}`", "served" if cell == YES else f"refused: {_short(cell)}"]
        for name, outcomes in _record()["families"].items()
        for words, cell in outcomes["options"].items()
    ]
    return _table(["Family", "Option", "Outcome"], rows)


def _cell(check: str, cell: str, reasons: list[str]) -> str:
    """The cell, with the number of its refusal, which families share."""
    if cell in (YES, "-"):
        return cell
    words = f"{check}: {_short(cell)}"
    if words not in reasons:
        reasons.append(words)
    return f"no ({reasons.index(words) + 1})"


def _short(line: str) -> str:
    """A refusal without the family's name and without the advice that all have."""
    reason = line.partition("; `sparing export")[0]
    start = reason.partition(" is a decoder")
    return f"it{''.join(start[1:])}" if start[1] else reason


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
