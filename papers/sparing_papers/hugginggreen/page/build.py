"""The page of the HuggingGreen study: patches, attention and stages, judged by energy."""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Section
from sparing_papers.hugginggreen.page import content as words
from sparing_papers.hugginggreen.page.figures import POSITIONS, figures
from sparing_papers.hugginggreen.page.results import ATTENTION, PATCHES, GreenResults
from sparing_papers.hugginggreen.page.tables import (
    absolute_block,
    arm_blocks,
    box_blocks,
    component_block,
    half_blocks,
    rival_blocks,
    stage_blocks,
    tests_block,
)

_EXPLAIN = "Declared before the run, for the first arm that selects and the first depth."


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = GreenResults(run)
    drawn = figures(results)
    return Page(
        run,
        "patches, attention and stages by energy",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        [*(Section("", "", (plot,)) for plot in drawn), *_blocks(results)],
        words.facts(results),
        words.words(),
        POSITIONS,
        notices_first=True,
    )


def _blocks(results: GreenResults) -> list[Block]:
    """All tables in their order."""
    run = results.run
    found = [*arm_blocks(results, PATCHES), *rival_blocks(results)]
    found += [*arm_blocks(results, ATTENTION), *half_blocks(results)]
    found += [*stage_blocks(results), *box_blocks(results)]
    if results.groups:
        found += [absolute_block(results), *component_block(results), tests_block(results)]
    return [
        *found,
        blocks.goals_block(run, f"{_EXPLAIN} {blocks.TOGETHER}"),
        *blocks.failed_blocks(run),
    ]
