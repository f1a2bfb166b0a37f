"""The page of the Linformer study: do few slots hold, and do they hold on longer inputs?"""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Section
from sparing_papers.linformer.page import content as words
from sparing_papers.linformer.page.figures import all_positions, figures
from sparing_papers.linformer.page.language import (
    language_blocks,
    language_figures,
)
from sparing_papers.linformer.page.matrices import matrix_blocks
from sparing_papers.linformer.page.tables import cost_blocks, training_blocks
from sparing_papers.long_range.page.results import LongResults


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone."""
    results = LongResults(run)
    drawn = [*figures(results), *language_figures(results)]
    return Page(
        run,
        "Linformer's open questions",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        [*(Section("", "", (plot,)) for plot in drawn), *_blocks(results)],
        words.facts(results),
        words.words(),
        all_positions(results),
        notices_first=True,
    )


def _blocks(results: LongResults) -> list[Block]:
    """All tables in their order."""
    return [
        blocks.goals_block(results.run, f"{words.GOALS} {blocks.TOGETHER}"),
        *training_blocks(results),
        *matrix_blocks(results),
        *cost_blocks(results),
        *language_blocks(results),
        *blocks.failed_blocks(results.run),
    ]
