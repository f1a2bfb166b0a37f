"""The page of a comparison: one HTML file with everything in it, its twin and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparing.compare.page import content
from sparing.compare.page.figures import plots
from sparing.compare.page.markdown import render_markdown
from sparing.compare.page.results import Results
from sparing.compare.page.tables import table_columns, table_rows
from sparing.compare.page.verdict import decide
from sparing.compare.page.words import words
from sparing.core.record import Record
from sparing.report.blocks import name_of
from sparing.report.cells import Failed
from sparing.report.drawing import Plot
from sparing.report.facts import dense_name, facts
from sparing.report.page import Page
from sparing.report.rendering import chip, environment, inline
from sparing.report.run import Config, Run

TEMPLATES = Path(__file__).parent


def build(run: Run) -> Page:
    """The page of a run of ``compare``."""
    results = Results(run.records, run.config)
    drawn = plots(results)
    html = render_page(run, results, drawn)
    return Page(drawn, html, render_markdown(run, results, drawn))


def render_page(run: Run, results: Results, drawn: Sequence[Plot]) -> str:
    """The whole page as text, the figures inside it."""
    # Where the lines cross stands as a list beside their plot.
    every = table_columns(run.records, run.config)
    columns, caption = content.caption([c for c in every if c.key != "crossover"])
    return (
        environment(TEMPLATES)
        .get_template("page.html.jinja")
        .render(
            title=f"{name_of(run)}: which attention to use",
            name=name_of(run),
            headline=content.headline(results),
            dense=dense_name(run.config),
            verdict=decide(run.records, run.config, run.failed),
            notices=content.notices(run, results),
            figures={plot.name: inline(plot) for plot in drawn},
            chips=_chips(results),
            shares=[
                {"tokens": tokens, "share": share, "gain": gain}
                for tokens, share, gain in content.shares(results)
            ],
            crossings=[{"arm": arm, "text": text} for arm, text in content.crossings(results)],
            columns=columns,
            rows=table_rows(run.records, run.config, run.failed),
            table_words=content.table_words(results),
            caption=caption,
            blocks=content.blocks(run, results),
            facts=facts(run),
            words=words(dense_name(run.config)),
            command=str(run.config.get("command") or ""),
        )
    )


def table_html(records: Sequence[Record], config: Config, failed: Failed = ()) -> str:
    """The comparison table alone, as the notebook form of a result; every text is escaped."""
    template = environment(TEMPLATES).get_template("table.html.jinja")
    columns, caption = content.caption(table_columns(records, config))
    rows = table_rows(records, config, failed)
    return str(template.module.comparison(columns, rows, caption, {}))  # type: ignore[attr-defined]


def _chips(results: Results) -> dict[str, dict[str, object]]:
    arms = (results.baseline, *results.arms)
    return {arm: chip(results.position(arm), faded=arm in results.grey) for arm in arms}


def answer(run: Run) -> str:
    """Which attention to use, in one sentence: the first of the page."""
    return decide(run.records, run.config, run.failed).first
