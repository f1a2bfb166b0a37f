"""The Markdown twin of a page, for GitHub: text as it is, tables, figures linked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparing.report.blocks import Block
from sparing.report.cells import Cell, Column, Row
from sparing.report.drawing import Plot
from sparing.report.run import Run


def block_parts(block: Block) -> list[str]:
    """A block's title, explanation and table."""
    table = folded(block.summary, plain_table(block.heads, block.rows)) if block.rows else ""
    return [f"## {escape(block.title)}", escape(block.explain), table]


def closing(
    run: Run, facts: Sequence[tuple[str, str]], meanings: Sequence[tuple[str, str]]
) -> list[str]:
    """What every report ends with: facts, words, and the command."""
    command = str(run.config.get("command") or "")
    return [
        "## Task, machine and versions",
        "\n".join(f"- {escape(key)}: {escape(value)}" for key, value in facts),
        "## What the words mean",
        "\n".join(f"- **{escape(word)}**: {escape(text)}" for word, text in meanings),
        *(["## Repeat it", fenced(command, "sh")] if command else []),
    ]


def escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text)
    text = re.sub(r"(?i)\b(https?|www)([:.])", r"\1<!-- -->\2", text).replace("@", "&#64;")
    return re.sub(r"^([-+]|\d+[.)])(?=\s)", r"\\\1", text)


def picture(plot: Plot) -> str:
    """A figure's title, description and its file in the colours of the reader."""
    if plot.draw is None:
        return f"## {escape(plot.title)}\n\n{escape(plot.missing)}"
    picture = (
        "<picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="figures/{plot.name}-dark.png">'
        f'<img src="figures/{plot.name}.png" alt="{_attribute(plot.title)}">'
        "</picture>"
    )
    return f"## {escape(plot.title)}\n\n{escape(plot.description)}\n\n{picture}"


def _attribute(text: str) -> str:
    return escape(text).replace('"', "&quot;").replace("\\", "")


def comparison(
    columns: Sequence[Column], rows: Sequence[Row], caption: str, head: str = "Arm"
) -> str:
    """A table of arms; ``head`` is what its first column holds."""
    heads = [head, *(_stacked(column.title, (column.note,)) for column in columns)]
    lines = []
    for row in rows:
        cells = [_cell(row.cells[column.key]) for column in columns]
        beaten = f"beaten by {row.beaten_by}" if row.beaten_by else ""
        lines.append([_stacked(row.arm, (row.family, row.note, beaten)), *cells])
    text = _rows([heads, ["---"] * len(heads), *lines])
    return f"{text}\n\n{escape(caption)}" if caption else text


def _cell(cell: Cell) -> str:
    return _stacked(cell.text, cell.notes)


def _stacked(text: str, notes: Sequence[str]) -> str:
    small = "".join(f"<br><sub>{escape(note)}</sub>" for note in notes if note)
    return escape(text) + small


def plain_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of plain texts, escaped."""
    escaped = [[escape(text) for text in line] for line in (heads, *lines)]
    return _rows([escaped[0], ["---"] * len(heads), *escaped[1:]])


def folded(summary: str, table: str) -> str:
    """A table under a line that sums it up; as it is without one."""
    if not summary:
        return table
    return f"<details><summary>{escape(summary)}</summary>\n\n{table}\n\n</details>"


def _rows(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fenced(text: str, language: str) -> str:
    """Text in a block of code that it cannot end itself."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
