"""The Markdown twin of a comparison's page: the same verdict and table as text."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.compare.page import content
from sparing.compare.page.results import Results
from sparing.compare.page.tables import table_columns, table_rows
from sparing.compare.page.verdict import decide
from sparing.compare.page.words import words
from sparing.report.blocks import name_of
from sparing.report.drawing import Plot
from sparing.report.facts import dense_name, facts
from sparing.report.markdown import block_parts, closing, comparison, escape, picture, plain_table
from sparing.report.run import Run


def render_markdown(run: Run, results: Results, drawn: Sequence[Plot]) -> str:
    """The whole report as GitHub Markdown; every text from outside is escaped."""
    decided = decide(run.records, run.config, run.failed)
    parts = [
        f"# {escape(name_of(run))}",
        escape(" · ".join(content.headline(results))),
        f"**{escape(decided.lead)}**{escape(decided.because)}",
        escape(decided.second),
    ]
    parts += [f"> {escape(notice)}" for notice in content.notices(run, results)]
    by_name = {plot.name: plot for plot in drawn}
    parts += [picture(by_name["crossover"]), _shares(results), _crossings(results)]
    columns, caption = content.caption(table_columns(run.records, run.config))
    rows = table_rows(run.records, run.config, run.failed)
    parts += [f"## All arms, against {escape(dense_name(run.config))}"]
    parts += [escape(content.table_words(results)), comparison(columns, rows, caption)]
    parts += [picture(by_name[name]) for name in ("pareto", "memory", "learning")]
    for block in content.blocks(run, results):
        parts += block_parts(block)
    parts += closing(run, facts(run), words(dense_name(run.config)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _shares(results: Results) -> str:
    lines = content.shares(results)
    return (
        plain_table(("Tokens", "Attention's share of the time", "Largest gain"), lines)
        if lines
        else ""
    )


def _crossings(results: Results) -> str:
    return "\n".join(f"- {escape(a)}: {escape(text)}" for a, text in content.crossings(results))
