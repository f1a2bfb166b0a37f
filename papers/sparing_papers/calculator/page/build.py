"""The page of the calculator study: networks that predict sums, and the claims made of them."""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import figure
from sparing_papers.calculator.page import content, further_tables, tables
from sparing_papers.calculator.page.figures import POSITIONS, TUNING, figures


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone."""
    parts = [
        *tables.network_blocks(run),
        tables.claims_block(run),
        *tables.sensitivity_block(run),
        *tables.along_blocks(run),
        *further_tables.longer_blocks(run),
        *further_tables.searches_block(run),
        *tables.language_blocks(run),
        tables.published_block(run),
        *blocks.failed_blocks(run),
    ]
    return Page(
        run,
        "networks that predict sums",
        content.headline(run),
        content.verdict(run),
        content.notices(run),
        [*map(figure, figures(run)), *parts],
        content.facts(run),
        content.TEXT.pairs("words"),
        POSITIONS | dict(TUNING.values()),
    )
