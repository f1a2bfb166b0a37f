"""The page of the Linformer study: do few slots hold, and do they hold on longer inputs?"""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import figure
from sparing_papers.linformer.page import content, prose
from sparing_papers.linformer.page.figures import all_signs, figures
from sparing_papers.linformer.page.language import language_blocks, language_figures
from sparing_papers.linformer.page.matrices import matrix_blocks
from sparing_papers.linformer.page.tables import cost_blocks, training_blocks
from sparing_papers.long_range.page.lookups import require_counts


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone."""
    require_counts(run)
    return Page(
        run,
        "Linformer's open questions",
        content.headline(run),
        content.verdict(run),
        content.notices(run),
        [
            *map(figure, [*figures(run), *language_figures(run)]),
            blocks.goals_block(run, f"{prose('goals')} {blocks.TOGETHER}"),
            *training_blocks(run),
            *matrix_blocks(run),
            *cost_blocks(run),
            *language_blocks(run),
            *blocks.failed_blocks(run),
        ],
        content.facts(run),
        prose.pairs("words"),
        all_signs(run),
    )
