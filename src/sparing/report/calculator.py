"""The page of the calculator study: networks that predict sums, and the claims made of them."""

from __future__ import annotations

from sparing.report import content
from sparing.report import value_content as words
from sparing.report.content import Block
from sparing.report.drawing import Plot
from sparing.report.run import Run
from sparing.report.study_page import StudyPage
from sparing.report.value_figures import POSITIONS, TUNING_POSITIONS, figures
from sparing.report.value_results import ValueResults
from sparing.report.value_tables import (
    along_blocks,
    claims_block,
    language_blocks,
    network_blocks,
    published_block,
    sensitivity_block,
)


def render(run: Run) -> tuple[list[Plot], str, str]:
    """The figures, the page and its Markdown twin, from the run's files alone."""
    results = ValueResults(run)
    drawn = figures(results)
    page = StudyPage(
        run,
        "networks that predict sums",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        drawn,
        POSITIONS | TUNING_POSITIONS,
        _blocks(results),
        words.facts(results),
        words.words(),
    )
    return drawn, page.html(), page.markdown()


def _blocks(results: ValueResults) -> list[Block]:
    """All tables in their order."""
    return [
        *network_blocks(results),
        claims_block(results),
        *sensitivity_block(results),
        *along_blocks(results),
        *language_blocks(results),
        published_block(results),
        *content.failed_blocks(results.run),
    ]
