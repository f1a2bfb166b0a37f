"""The page of ``slim``: the guarantee, the certified frontier, every tested form, what was cut."""

from __future__ import annotations

from pathlib import Path

from sparing.report import blocks
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Part, figure
from sparing.slim.page import content, cuts, prose
from sparing.slim.page.forms import engines_block, forms_section, positions
from sparing.slim.page.frontier import frontier_block, frontier_plot
from sparing.slim.page.verdict import answer as answer
from sparing.slim.page.verdict import verdict

STYLE = Path(__file__).with_name("slim.css")


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    return Page(
        run,
        "a slimmed model",
        content.headline(run),
        verdict(run),
        content.notices(run),
        _sections(run),
        content.facts(run),
        prose.pairs("words"),
        cuts.POSITIONS | positions(run),
        style=STYLE.read_text(encoding="utf-8"),
    )


def _sections(run: Run) -> list[Part]:
    return [
        frontier_block(run),
        figure(frontier_plot(run)),
        content.loading(run),
        content.changed_block(run),
        engines_block(run),
        forms_section(run),
        cuts.cuts_section(run),
        figure(cuts.survey_plot(run)),
        cuts.trials_block(run),
        *cuts.static_blocks(run),
        content.parts_block(run),
        content.training(run),
        blocks.goals_block(run, prose("goals")),
        *blocks.failed_blocks(run),
    ]
