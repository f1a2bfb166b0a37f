"""The page of the HuggingGreen study: patches, attention and stages, judged by energy."""

from __future__ import annotations

from collections.abc import Sequence

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
from sparing.report.markdown import block_parts, closing, escape, picture
from sparing.report.rendering import chip, environment, inline
from sparing.report.run import Run

_EXPLAIN = "Declared before the run, for the first arm that selects and the first depth."


def render(run: Run) -> tuple[list[Plot], str, str]:
    """The figures, the page and its Markdown twin, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = GreenResults(run)
    drawn = figures(results)
    return drawn, _page(results, drawn), _markdown(results, drawn)


def _blocks(results: GreenResults) -> list[Block]:
    """All tables in their order."""
    run = results.run
    found = [*arm_blocks(results, PATCHES), *rival_blocks(results)]
    found += [*arm_blocks(results, ATTENTION), *half_blocks(results)]
    found += [*stage_blocks(results), *box_blocks(results)]
    if results.groups:
        found += [absolute_block(results), *component_block(results), tests_block(results)]
    return [*found, content.goals_block(run, _EXPLAIN), *content.failed_blocks(run)]


def _page(results: GreenResults, drawn: Sequence[Plot]) -> str:
    run = results.run
    template = environment().get_template("study.html.jinja")
    return template.render(
        title=f"{content.name_of(run)}: patches, attention and stages by energy",
        name=content.name_of(run),
        headline=words.headline(results),
        verdict=words.verdict(results),
        notices=words.notices(results),
        figures=[inline(plot) for plot in drawn],
        chips={name: chip(position) for name, position in POSITIONS.items()},
        blocks=_blocks(results),
        facts=words.facts(results),
        words=words.words(),
        command=str(run.config.get("command") or ""),
    )


def _markdown(results: GreenResults, drawn: Sequence[Plot]) -> str:
    decided = words.verdict(results)
    parts = [
        f"# {escape(content.name_of(results.run))}",
        escape(" · ".join(words.headline(results))),
        f"**{escape(decided.lead)}**{escape(decided.because)}",
        *(f"> {escape(notice)}" for notice in words.notices(results)),
        *(escape(sentence) for sentence in decided.second),
        *(picture(plot) for plot in drawn),
    ]
    for block in _blocks(results):
        parts += block_parts(block)
    parts += closing(results.run, words.facts(results), words.words())
    return "\n\n".join(part for part in parts if part) + "\n"
