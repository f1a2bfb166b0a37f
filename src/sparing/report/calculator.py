"""The page of the calculator study: networks that predict sums, and the claims made of them."""

from __future__ import annotations

from collections.abc import Sequence

from sparing.report import content
from sparing.report import value_content as words
from sparing.report.content import Block
from sparing.report.drawing import Plot
from sparing.report.markdown import block_parts, closing, escape, picture
from sparing.report.rendering import chip, environment, inline
from sparing.report.run import Run
from sparing.report.value_figures import POSITIONS, TUNING_POSITIONS, figures
from sparing.report.value_results import ValueResults
from sparing.report.value_tables import (
    along_blocks,
    claims_block,
    language_blocks,
    network_blocks,
    published_block,
    sensitivity_block,
)


def render(run: Run) -> tuple[list[Plot], str, str]:
    """The figures, the page and its Markdown twin, from the run's files alone."""
    results = ValueResults(run)
    drawn = figures(results)
    return drawn, _page(results, drawn), _markdown(results, drawn)


def _blocks(results: ValueResults) -> list[Block]:
    """All tables in their order."""
    return [
        *network_blocks(results),
        claims_block(results),
        *sensitivity_block(results),
        *along_blocks(results),
        *language_blocks(results),
        published_block(results),
        *content.failed_blocks(results.run),
    ]


def _page(results: ValueResults, drawn: Sequence[Plot]) -> str:
    run = results.run
    signs = POSITIONS | TUNING_POSITIONS
    return (
        environment()
        .get_template("study.html.jinja")
        .render(
            title=f"{content.name_of(run)}: networks that predict sums",
            name=content.name_of(run),
            headline=words.headline(results),
            verdict=words.verdict(results),
            notices=words.notices(results),
            figures=[inline(plot) for plot in drawn],
            chips={name: chip(position) for name, position in signs.items()},
            blocks=_blocks(results),
            facts=words.facts(results),
            words=words.words(),
            command=str(run.config.get("command") or ""),
        )
    )


def _markdown(results: ValueResults, drawn: Sequence[Plot]) -> str:
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
