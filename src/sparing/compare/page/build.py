"""The page of a comparison: which attention to use, every arm, and from which length on."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.compare.page import content
from sparing.compare.page.figures import plots
from sparing.compare.page.results import Results
from sparing.compare.page.tables import table_columns, table_rows
from sparing.compare.page.verdict import decide
from sparing.compare.page.words import words
from sparing.core.record import Record
from sparing.report.cells import Column, Failed, Row
from sparing.report.facts import dense_name, facts
from sparing.report.figures.drawing import Plot
from sparing.report.page import Page
from sparing.report.rendering import part_html
from sparing.report.run import Config, Run
from sparing.report.sections import (
    Comparison,
    Listing,
    Pair,
    Section,
    Table,
    Text,
    Verdict,
    figure,
)

_SHARES = ("Tokens", "Attention's share of the time", "Largest gain")
_SHARE_WORDS = (
    "Attention's share is the part of the whole {dense} model's time that its attention core takes "
    "at that length; the largest gain is what the whole model would win if attention cost nothing."
)


def build(run: Run) -> Page:
    """The page of a run of ``compare``."""
    results = Results(run.records, run.config)
    crossover, pareto, memory, learning = plots(results)
    decided = decide(run.records, run.config, run.failed)
    return Page(
        run,
        "which attention to use",
        content.headline(results),
        Verdict(decided.lead, decided.because, (decided.second,)),
        content.notices(run, results),
        [
            _crossover(results, crossover),
            _table(run, results),
            Pair((figure(pareto), figure(memory))),
            figure(learning),
            *content.blocks(run, results),
        ],
        facts(run),
        words(dense_name(run.config)),
        {arm: results.position(arm) for arm in (results.baseline, *results.arms)},
        results.grey,
    )


def _crossover(results: Results, plot: Plot) -> Section:
    """From which lengths on arms are faster, and what that could give at most."""
    shares = content.shares(results)
    explain = _SHARE_WORDS.format(dense=dense_name(results.config)) if shares else ""
    return figure(
        plot,
        Table(_SHARES, shares, style="shares"),
        Text(explain),
        Listing(content.crossings(results)),
    )


def _table(run: Run, results: Results) -> Section:
    """All arms; where lines cross stands as a list beside their plot."""
    columns = table_columns(run.records, run.config)
    rows = table_rows(run.records, run.config, run.failed)
    title = f"All arms, against {dense_name(run.config)}"
    parts = (
        Text(content.table_words(results)),
        _comparison(columns, rows, without="crossover"),
    )
    return Section("table", title, parts)


def table_html(records: Sequence[Record], config: Config, failed: Failed = ()) -> str:
    """The comparison table alone, as the notebook form of a result; every text is escaped."""
    rows = table_rows(records, config, failed)
    return part_html(_comparison(table_columns(records, config), rows, signs=False))


def _comparison(
    columns: Sequence[Column], rows: Sequence[Row], *, without: str = "", signs: bool = True
) -> Comparison:
    kept, caption = content.caption([column for column in columns if column.key != without])
    return Comparison(kept, rows, caption, signs=signs)


def answer(run: Run) -> str:
    """Which attention to use, in one sentence: the first of the page."""
    return decide(run.records, run.config, run.failed).first
