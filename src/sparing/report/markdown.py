"""The page's twin for GitHub: the same verdict and table as text, the figures linked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparing.report import content
from sparing.report.cells import Cell
from sparing.report.drawing import Plot
from sparing.report.results import Results
from sparing.report.run import Run
from sparing.report.tables import dense_name, table_columns, table_rows
from sparing.report.verdict import decide
from sparing.report.words import words


def render_markdown(run: Run, results: Results, drawn: Sequence[Plot]) -> str:
    """The whole report as GitHub Markdown; every text from outside is escaped."""
    decided = decide(run.records, run.config, run.failed)
    parts = [
        f"# {escape(content.name_of(run))}",
        escape(" · ".join(content.headline(results))),
        f"**{escape(decided.lead)}**{escape(decided.because)}",
        escape(decided.second),
    ]
    parts += [f"> {escape(notice)}" for notice in content.notices(run, results)]
    by_name = {plot.name: plot for plot in drawn}
    parts += [_figure(by_name["crossover"]), _shares(results), _crossings(results)]
    parts += [f"## All arms, against {escape(dense_name(run.config))}"]
    parts += [escape(content.table_words(results)), _comparison(run)]
    parts += [_figure(by_name[name]) for name in ("pareto", "memory", "learning")]
    for block in content.blocks(run, results):
        parts += [f"## {escape(block.title)}", escape(block.explain)]
        if block.rows:
            parts.append(_folded(block.summary, _table(block.heads, block.rows)))
    parts.append("## Task, machine and versions")
    parts.append("\n".join(f"- {escape(k)}: {escape(v)}" for k, v in content.facts(run, results)))
    parts.append("## What the words mean")
    meanings = words(dense_name(run.config))
    parts.append("\n".join(f"- **{escape(word)}**: {escape(text)}" for word, text in meanings))
    command = str(run.config.get("command") or "")
    if command:
        parts += ["## Repeat it", _fenced(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    text = " ".join(text.split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text)
    text = re.sub(r"(?i)\b(https?|www)([:.])", r"\1<!-- -->\2", text).replace("@", "&#64;")
    return re.sub(r"^([-+]|\d+[.)])(?=\s)", r"\\\1", text)


def _figure(plot: Plot) -> str:
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


def _shares(results: Results) -> str:
    lines = content.shares(results)
    return (
        _table(("Tokens", "Attention's share of the time", "Largest gain"), lines) if lines else ""
    )


def _crossings(results: Results) -> str:
    return "\n".join(f"- {escape(a)}: {escape(text)}" for a, text in content.crossings(results))


def _comparison(run: Run) -> str:
    columns, caption = content.caption(table_columns(run.records, run.config))
    heads = ["Arm", *(_stacked(column.title, (column.note,)) for column in columns)]
    lines = []
    for row in table_rows(run.records, run.config, run.failed):
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


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    escaped = [[escape(text) for text in line] for line in (heads, *lines)]
    return _rows([escaped[0], ["---"] * len(heads), *escaped[1:]])


def _folded(summary: str, table: str) -> str:
    if not summary:
        return table
    return f"<details><summary>{escape(summary)}</summary>\n\n{table}\n\n</details>"


def _rows(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"
