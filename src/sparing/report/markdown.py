"""The Markdown writer of a page, for GitHub: text as it is, tables, figures linked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch

from sparing.report.blocks import Block, name_of
from sparing.report.figures.drawing import Plot
from sparing.report.sections import (
    CLOSING,
    Bar,
    Comparison,
    Document,
    Listing,
    Pair,
    Part,
    Raw,
    Section,
    Snippet,
    Table,
    Text,
)

_DRAWN = "The figure; <code>sparing report FOLDER</code> draws it"


def page_markdown(page: Document) -> str:
    """The whole page; every text from outside is escaped."""
    verdict = page.verdict
    notices = [f"> {escape(notice)}" for notice in page.notices]
    second = [escape(sentence) for sentence in verdict.second]
    parts = [
        f"# {escape(name_of(page.run))}",
        escape(" · ".join(page.headline)),
        f"**{escape(verdict.lead)}**{escape(verdict.because)}",
        *second,
        *notices,
        *map(_part, page.sections),
        f"## {CLOSING['run']}",
        "\n".join(f"- {escape(key)}: {escape(value)}" for key, value in page.facts),
        f"## {CLOSING['words']}",
        "\n".join(f"- **{escape(word)}**: {escape(text)}" for word, text in page.words),
        *([f"## {CLOSING['repeat']}", fenced(page.command, "sh")] if page.command else []),
    ]
    return _joined(parts) + "\n"


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)


@singledispatch
def _part(part: Part) -> str:
    """A part of the page; empty where this form has nothing of it."""
    raise TypeError(f"no Markdown for a {type(part).__name__}")


@_part.register
def _(part: Section) -> str:
    title = f"## {escape(part.title)}" if part.title else ""
    return _joined([title, *map(_part, part.parts)])


@_part.register
def _(part: Pair) -> str:
    return _joined([_part(section) for section in part.sections])


@_part.register
def _(part: Raw) -> str:
    return part.markdown


@_part.register
def _(part: Text) -> str:
    return escape(part.text)


@_part.register
def _(part: Block) -> str:
    table = Table(part.heads, part.rows, part.summary)
    return _part(Section(part.key, part.title, (Text(part.explain), table)))


@_part.register
def _(part: Listing) -> str:
    return "\n".join(f"- {escape(name)}: {escape(text)}" for name, text in part.items)


@_part.register
def _(part: Snippet) -> str:
    return f"{escape(part.words)}\n\n{fenced(part.code, part.language)}"


@_part.register
def _(part: Table) -> str:
    if not part.rows:
        return ""
    texts = [[cell.text if isinstance(cell, Bar) else cell for cell in row] for row in part.rows]
    padded = [[*row, *[""] * (len(part.heads) - len(row))] for row in texts]
    table = plain_table(part.heads, padded)
    if not part.fold:
        return table
    return f"<details><summary>{escape(part.fold)}</summary>\n\n{table}\n\n</details>"


@_part.register
def _(part: Comparison) -> str:
    if not part.rows:
        return ""
    heads = [part.head, *(_stacked(column.title, (column.note,)) for column in part.columns)]
    lines = []
    for row in part.rows:
        cells = [row.cells[column.key] for column in part.columns]
        beaten = f"beaten by {row.beaten_by}" if row.beaten_by else ""
        name = _stacked(row.arm, (row.family, row.note, beaten))
        lines.append([name, *(_stacked(cell.text, cell.notes) for cell in cells)])
    return _joined([_rows([heads, ["---"] * len(heads), *lines]), escape(part.caption)])


@_part.register
def _(part: Plot) -> str:
    """A figure's title, description and its file in the colours of the reader.

    It is folded up: a run in git has no figures, and reads well without them.
    """
    if part.draw is None:
        return f"## {escape(part.title)}\n\n{escape(part.missing)}"
    alt = escape(part.title).replace('"', "&quot;").replace("\\", "")
    picture = (
        "<picture>"
        f'<source media="(prefers-color-scheme: dark)" srcset="figures/{part.name}-dark.png">'
        f'<img src="figures/{part.name}.png" alt="{alt}">'
        "</picture>"
    )
    folded = f"<details><summary>{_DRAWN}</summary>\n\n{picture}\n\n</details>"
    return f"## {escape(part.title)}\n\n{escape(part.description)}\n\n{folded}"


def plain_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of plain texts, escaped."""
    escaped = [[escape(text) for text in line] for line in (heads, *lines)]
    return _rows([escaped[0], ["---"] * len(heads), *escaped[1:]])


def _stacked(text: str, notes: Sequence[str]) -> str:
    small = "".join(f"<br><sub>{escape(note)}</sub>" for note in notes if note)
    return escape(text) + small


def _rows(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text)
    text = re.sub(r"(?i)\b(https?|www)([:.])", r"\1<!-- -->\2", text).replace("@", "&#64;")
    return re.sub(r"^([-+]|\d+[.)])(?=\s)", r"\\\1", text)


def fenced(text: str, language: str) -> str:
    """Text in a block of code that it cannot end itself."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
