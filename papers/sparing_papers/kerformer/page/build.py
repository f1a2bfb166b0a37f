"""The page of the Kerformer study: verdict, claims, every table beside the printed one."""

from __future__ import annotations

from sparing.report import blocks
from sparing.report.blocks import Block
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Section
from sparing_papers.kerformer.page import content as words
from sparing_papers.kerformer.page import published
from sparing_papers.kerformer.page.figures import figures, places_of
from sparing_papers.kerformer.page.gap import gap_block
from sparing_papers.kerformer.page.tables import (
    averages_block,
    core_blocks,
    speed_blocks,
    transfer_block,
)
from sparing_papers.long_range.page.results import LongResults
from sparing_papers.long_range.page.tables import claims_block, score_blocks

_ARENA = (
    "Tables 5 and 6: the named backbone trained from scratch on every task, with the same data, "
    "steps and seeds for every arm. imdb is the arena's Text, read in bytes."
)
_VISION = "A small vision transformer trained from scratch, the same for every arm."
_CLAIMS = (
    "A claim holds where the whole interval is on its side, and does not where none of it is. "
    "Scores decide only where a task tells mechanisms apart and there are three seeds."
)
_GOALS = "What this study set out to show, declared before it ran."


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone."""
    results = LongResults(run)
    drawn = figures(results)
    return Page(
        run,
        "Kerformer's tables, measured",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        [*(Section("", "", (plot,)) for plot in drawn), *_blocks(results)],
        words.facts(results),
        words.words(),
        places_of(results),
        notices_first=True,
    )


def _blocks(results: LongResults) -> list[Block]:
    rule = f"{_CLAIMS} {blocks.TOGETHER}"
    claims = claims_block(results, "claims", "The published claims", rule, "claim")
    goals = claims_block(results, "goals", "The study's goals", _GOALS, "goal")
    return [
        *(block for block in (claims, goals) if block.rows),
        *core_blocks(results),
        *transfer_block(results),
        *gap_block(results),
        *score_blocks(results, "arena", "Long ranges", _ARENA, published.ARENA),
        *score_blocks(results, "vision", "Images", _VISION),
        *speed_blocks(results),
        averages_block(),
        *blocks.failed_blocks(results.run),
    ]
