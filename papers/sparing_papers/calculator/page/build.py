"""The page of the calculator study: networks that predict sums, and the claims made of them."""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Section
from sparing_papers.calculator.page import content as words
from sparing_papers.calculator.page.figures import POSITIONS, TUNING_POSITIONS, figures
from sparing_papers.calculator.page.results import ValueResults
from sparing_papers.calculator.page.tables import (
    along_blocks,
    claims_block,
    language_blocks,
    network_blocks,
    published_block,
    sensitivity_block,
)


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone."""
    results = ValueResults(run)
    drawn = figures(results)
    return Page(
        run,
        "networks that predict sums",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        [*(Section("", "", (plot,)) for plot in drawn), *_blocks(results)],
        words.facts(results),
        words.words(),
        POSITIONS | TUNING_POSITIONS,
        notices_first=True,
    )


def _blocks(results: ValueResults) -> list[Block]:
    """All tables in their order."""
    return [
        *network_blocks(results),
        claims_block(results),
        *sensitivity_block(results),
        *along_blocks(results),
        *language_blocks(results),
        published_block(results),
        *blocks.failed_blocks(results.run),
    ]
