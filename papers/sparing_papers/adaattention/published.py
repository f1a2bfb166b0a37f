"""The printed figures of the AdaAttention paper, from ``published.toml``: quoted, not measured."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from sparing.core.record import Label, Record

_FILE = resources.files("sparing_papers.adaattention") / "published.toml"
_PAPER: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
IMPOSSIBLE: list[dict[str, str]] = _PAPER["impossible"]
"""Texts on the printed figures that are impossible; ``arithmetic`` fills in the braces."""


def printed() -> list[Record]:
    """All figures in the paper's order, each with the name and labels of the measured record.

    Values have the unit of that record, which for latency and memory is the ratio to the paper's
    full model. The label ``printed`` is the printed text; ``reason`` says why the two differ.
    """
    return [
        _record(table, row, column, number)
        for table in _PAPER["table"]
        for row in table["rows"]
        for number, column in enumerate(table["columns"])
    ]


def _record(table: Mapping[str, Any], row: str, column: Mapping[str, Any], number: int) -> Record:
    kind, value = _PAPER["kind"][column["kind"]], table["rows"][row][number]
    arm = {row: row, **table.get("arms", {}), **column.get("arms", {})}[row]
    reason = column.get("reasons", {}).get(row) or column.get("reason") or kind["reason"]
    labels: dict[str, Label] = {
        "source": table["source"],
        "reason": _PAPER["reason"][reason],
        "row": row,
        "column": column["name"],
        "printed": kind["text"].format(value),
        "arm": arm,
        **table.get("labels", {}),
        **column.get("labels", {}),
    }
    if "relative" in kind:
        full = table["rows"]["full"][number]
        value = full / value if kind["relative"] == "time" else value / full
    return Record(kind["record"], value / kind.get("per", 1), kind["unit"], "paper", labels)


def figures(source: str, row: str) -> dict[str, float]:
    """A printed row of a table, by column."""
    return {
        column["name"]: float(value)
        for table in _PAPER["table"]
        if table["source"] == source and row in table["rows"]
        for column, value in zip(table["columns"], table["rows"][row], strict=True)
    }


def rows(source: str) -> list[str]:
    """The names of a table's rows."""
    tables = [table for table in _PAPER["table"] if table["source"] == source]
    return list(dict.fromkeys(row for table in tables for row in table["rows"]))


MEAN_SPEED = figures("Table IV", "adaptive")["Speedup"]
