"""The page of the Kerformer study: verdict, claims, every table beside the printed one."""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import figure
from sparing_papers.kerformer.page import content, prose
from sparing_papers.kerformer.page.figures import figures, signs_of
from sparing_papers.kerformer.page.published import PRINTED
from sparing_papers.kerformer.page.tables import (
    averages_block,
    core_blocks,
    speed_blocks,
    swapped_blocks,
)
from sparing_papers.long_range.page.lookups import require_counts
from sparing_papers.long_range.page.tables import claims_block, score_blocks


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone."""
    require_counts(run)
    return Page(
        run,
        "Kerformer's tables, measured",
        content.headline(run),
        content.verdict(run),
        content.notices(run),
        [*map(figure, figures(run)), *tables(run)],
        content.facts(run),
        prose.pairs("words"),
        signs_of(run),
    )


def tables(run: Run) -> list[Block]:
    """All tables in their order; of claims and goals where the run has some."""
    rule = f"{prose('claims')} {blocks.TOGETHER}"
    claims = claims_block(run, "claims", "The published claims", rule, "claim")
    goals = claims_block(run, "goals", "The study's goals", prose("goals"), "goal")
    return [
        *(block for block in (claims, goals) if block.rows),
        *core_blocks(run),
        *swapped_blocks(run),
        *score_blocks(run, "arena", "Long ranges", prose("arena"), PRINTED["arena"]),
        *score_blocks(run, "vision", "Images", prose("vision")),
        *speed_blocks(run),
        averages_block(),
        *blocks.failed_blocks(run),
    ]
