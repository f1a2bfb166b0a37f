"""The page of a comparison: which attention to use, every variant, and from which length on."""

from __future__ import annotations

from sparing.compare.page import content, prose
from sparing.compare.page.figures import crossover, memory
from sparing.compare.page.learning import learning
from sparing.compare.page.lineup import Lineup, lineup
from sparing.compare.page.pareto import pareto
from sparing.compare.page.tables import table_columns, table_rows
from sparing.compare.page.verdict import decide
from sparing.report.facts import dense_name, facts
from sparing.report.figures.drawing import Plot
from sparing.report.page import Page
from sparing.report.rendering import part_html
from sparing.report.run import Run
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

SHARES = ("Tokens", "Attention's share of the time", "Largest gain")


def build(run: Run) -> Page:
    """The page of a run of ``compare``."""
    arms, verdict = lineup(run), decide(run)
    across, up, sizes, curves = plots(run, arms)
    return Page(
        run,
        "which attention to use",
        content.headline(run),
        Verdict(verdict.lead, verdict.because, (verdict.second,)),
        content.notices(run),
        [
            _crossover(run, across),
            _table(run, arms),
            Pair((figure(up), figure(sizes))),
            figure(curves),
            *content.blocks(run),
        ],
        facts(run),
        prose.pairs("words", dense=dense_name(run.config)),
        arms.positions,
        arms.grey,
    )


def plots(run: Run, arms: Lineup) -> list[Plot]:
    """All plots of a run, the crossover first; each says so when its records are missing."""
    return [crossover(run, arms), pareto(run, arms), memory(run, arms), learning(run, arms)]


def _crossover(run: Run, plot: Plot) -> Section:
    """From which lengths on variants are faster, and the largest possible gain."""
    shares = content.shares(run)
    explain = prose("shares", dense=dense_name(run.config)) if shares else ""
    table = Table(SHARES, shares, style="shares")
    return figure(plot, table, Text(explain), Listing(content.crossings(run)))


def _table(run: Run, arms: Lineup) -> Section:
    """All variants; a list beside the plot shows where lines cross."""
    title = f"All variants, against {dense_name(run.config)}"
    parts = (Text(content.table_words(arms)), _comparison(run, arms, without="crossover"))
    return Section("table", title, parts)


def table_html(run: Run) -> str:
    """The comparison table alone, as the notebook form of a result; every text is escaped."""
    return part_html(_comparison(run, lineup(run), signs=False))


def _comparison(run: Run, arms: Lineup, *, without: str = "", signs: bool = True) -> Comparison:
    columns = [column for column in table_columns(run) if column.key != without]
    shown, caption = content.caption(columns)
    return Comparison(shown, table_rows(run, arms), caption, signs=signs)


def answer(run: Run) -> str:
    """Which attention to use, in one sentence: the first of the page."""
    return decide(run).first
