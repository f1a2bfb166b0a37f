"""The page of the Linformer study: do few slots hold, and do they hold on longer inputs?"""

from __future__ import annotations

from sparing.report import content
from sparing.report import linformer_content as words
from sparing.report.content import Block
from sparing.report.drawing import Plot
from sparing.report.linformer_figures import all_positions, figures
from sparing.report.linformer_language import (
    language_blocks,
    language_figures,
)
from sparing.report.linformer_matrices import matrix_blocks
from sparing.report.linformer_tables import cost_blocks, training_blocks
from sparing.report.long_results import LongResults
from sparing.report.run import Run
from sparing.report.study_page import StudyPage


def render(run: Run) -> tuple[list[Plot], str, str]:
    """The figures, the page and its Markdown twin, from the run's files alone."""
    results = LongResults(run)
    drawn = [*figures(results), *language_figures(results)]
    page = StudyPage(
        run,
        "Linformer's open questions",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        drawn,
        all_positions(results),
        _blocks(results),
        words.facts(results),
        words.words(),
    )
    return drawn, page.html(), page.markdown()


def _blocks(results: LongResults) -> list[Block]:
    """All tables in their order."""
    return [
        content.goals_block(results.run, words.GOALS),
        *training_blocks(results),
        *matrix_blocks(results),
        *cost_blocks(results),
        *language_blocks(results),
        *content.failed_blocks(results.run),
    ]
