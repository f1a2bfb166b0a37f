"""The page of the HuggingGreen study: patches, attention and stages, judged by energy."""

from __future__ import annotations

from sparing.report import content
from sparing.report import green_content as words
from sparing.report.content import Block
from sparing.report.drawing import Plot
from sparing.report.green_figures import POSITIONS, figures
from sparing.report.green_results import ATTENTION, PATCHES, GreenResults
from sparing.report.green_tables import (
    absolute_block,
    arm_blocks,
    box_blocks,
    component_block,
    half_blocks,
    rival_blocks,
    stage_blocks,
    tests_block,
)
from sparing.report.run import Run
from sparing.report.study_page import StudyPage

_EXPLAIN = "Declared before the run, for the first arm that selects and the first depth."


def render(run: Run) -> tuple[list[Plot], str, str]:
    """The figures, the page and its Markdown twin, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = GreenResults(run)
    drawn = figures(results)
    page = StudyPage(
        run,
        "patches, attention and stages by energy",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        drawn,
        POSITIONS,
        _blocks(results),
        words.facts(results),
        words.words(),
    )
    return drawn, page.html(), page.markdown()


def _blocks(results: GreenResults) -> list[Block]:
    """All tables in their order."""
    run = results.run
    found = [*arm_blocks(results, PATCHES), *rival_blocks(results)]
    found += [*arm_blocks(results, ATTENTION), *half_blocks(results)]
    found += [*stage_blocks(results), *box_blocks(results)]
    if results.groups:
        found += [absolute_block(results), *component_block(results), tests_block(results)]
    return [*found, content.goals_block(run, _EXPLAIN), *content.failed_blocks(run)]
