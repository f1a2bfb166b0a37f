"""The page of the HuggingGreen study: patches, attention and stages by energy."""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import figure
from sparing_papers.hugginggreen.groups import Group
from sparing_papers.hugginggreen.names import ATTENTION, BOXES, PATCHES, STAGES
from sparing_papers.hugginggreen.page import content, tables
from sparing_papers.hugginggreen.page.figures import POSITIONS, figures


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` for a damaged record.
    """
    groups = content.groups_of(run)
    return Page(
        run,
        "patches, attention and stages by energy",
        content.headline(run, groups),
        content.verdict(run, groups),
        content.notices(run, groups),
        [*map(figure, figures(run, groups)), *_blocks(run, groups)],
        content.facts(run),
        content.words(run, groups),
        POSITIONS,
    )


def _blocks(run: Run, groups: list[Group]) -> list[Block]:
    """All tables in their order."""
    patches, attention, stages, boxes = (
        content.of(groups, question) for question in (PATCHES, ATTENTION, STAGES, BOXES)
    )
    margin = content.margin(run)
    shown = [
        *tables.arm_blocks(patches, margin),
        *tables.baseline_blocks(patches),
        *tables.arm_blocks(attention, margin),
        *tables.half_blocks(attention),
        *tables.stage_blocks(stages),
        *tables.box_blocks(boxes),
    ]
    if groups:
        intensity = float(run.config.get("intensity_g_per_kwh") or 0.0)
        shown += [
            tables.absolute_block(groups, intensity),
            *tables.component_block(groups, run.table),
            tables.tests_block(groups),
        ]
    explain = content.TEXT("goals", together=blocks.TOGETHER)
    return [*shown, blocks.goals_block(run, explain), *blocks.failed_blocks(run)]
