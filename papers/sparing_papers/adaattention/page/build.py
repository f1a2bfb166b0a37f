"""The page of the AdaAttention study: printed figures, ours beside them, and why they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparing.report import wording
from sparing.report.blocks import TOGETHER, Block, failed_blocks, goals_block, name_of
from sparing.report.drawing import Plot
from sparing.report.markdown import (
    block_parts,
    closing,
    comparison,
    escape,
    folded,
    picture,
    plain_table,
)
from sparing.report.page import Page
from sparing.report.rendering import chip, environment, inline
from sparing.report.run import Run
from sparing_papers.adaattention.page import content as words
from sparing_papers.adaattention.page.arms import arm_columns, arm_rows
from sparing_papers.adaattention.page.curves import blocks as curve_blocks
from sparing_papers.adaattention.page.figures import positions, speeds
from sparing_papers.adaattention.page.glossary import glossary
from sparing_papers.adaattention.page.patterns import Map, Step, maps, steps
from sparing_papers.adaattention.page.results import AdaResults
from sparing_papers.adaattention.page.tables import (
    MAIN,
    REST,
    certificate_block,
    impossible_block,
    length_block,
    printed_blocks,
    shape_block,
)

_TITLES = {
    "arms": "Every arm on the tasks' own texts",
    "patterns": "Where the compute goes",
    "steps": "What the skipping arm keeps, example by example",
    "rest": "Tables I to III",
}
_ARM_WORDS = (
    "On {tasks}: one dense model, its attention changed in each way, trained on with one recipe; "
    "then whole models on the same test inputs, one by one and unpadded. Arms were timed in "
    "groups, each with a full model beside it: speeds are against that one, and milliseconds of "
    "two groups do not compare."
)
_PATTERN_WORDS = "Scores of the adaptive arm on test inputs: what it spends, and on what."
_STEP_WORDS = (
    "Real test inputs. What is dropped after the first layers is struck through, or pale in a "
    "picture, where what stays has a frame; the class token always stays."
)


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = AdaResults(run)
    drawn = [speeds(results)]
    return Page(drawn, _page(results, drawn), _markdown(results, drawn))


def _arm_words(results: AdaResults) -> str:
    """How arms came to be, and on which tasks their means are taken."""
    return _ARM_WORDS.format(tasks=wording.listing(results.ablations))


def _blocks(results: AdaResults) -> list[Block]:
    run = results.run
    explain = f"Declared before the run; the paper's claims are goals like ours. {TOGETHER}"
    return [goals_block(run, explain), *failed_blocks(run)]


def _page(results: AdaResults, drawn: Sequence[Plot]) -> str:
    run = results.run
    template = environment(Path(__file__).parent).get_template("adaattention.html.jinja")
    certificate = certificate_block(results)
    return template.render(
        title=f"{name_of(run)}: AdaAttention, printed and measured",
        name=name_of(run),
        headline=words.headline(results),
        verdict=words.verdict(results),
        notices=words.notices(results),
        figures={plot.name: inline(plot) for plot in drawn},
        chips={name: chip(position) for name, position in positions().items()},
        titles=_TITLES,
        columns=arm_columns(),
        rows=arm_rows(results),
        arm_words=_arm_words(results),
        shape=shape_block(results),
        lengths=length_block(results),
        curves=curve_blocks(results),
        printed=printed_blocks(results, MAIN),
        rest=printed_blocks(results, REST),
        impossible=impossible_block(results),
        maps=maps(results),
        pattern_words=_PATTERN_WORDS,
        steps=steps(results),
        step_words=_STEP_WORDS,
        certificate=certificate if certificate.rows else None,
        blocks=_blocks(results),
        facts=words.facts(results),
        words=glossary(),
        command=str(run.config.get("command") or ""),
    )


def _markdown(results: AdaResults, drawn: Sequence[Plot]) -> str:
    run, decided = results.run, words.verdict(results)
    parts = [
        f"# {escape(name_of(run))}",
        escape(" · ".join(words.headline(results))),
        f"**{escape(decided.lead)}**{escape(decided.because)}",
        *(escape(sentence) for sentence in decided.second),
        *(f"> {escape(notice)}" for notice in words.notices(results)),
        *(picture(plot) for plot in drawn),
        *block_parts(shape_block(results)),
        f"## {_TITLES['arms']}",
        escape(_arm_words(results)),
        comparison(arm_columns(), rows, "") if (rows := arm_rows(results)) else "",
    ]
    certificate = certificate_block(results)
    lengths = length_block(results)
    blocks = [lengths] if lengths.rows else []
    blocks += curve_blocks(results)
    blocks += [*printed_blocks(results, MAIN), impossible_block(results)]
    for block in blocks:
        parts += block_parts(block)
    parts += [_map_text(each) for each in maps(results)]
    parts += _step_texts(steps(results))
    parts += block_parts(certificate) if certificate.rows else []
    for block in printed_blocks(results, REST):
        table = plain_table(block.heads, block.rows)
        parts += [f"## {escape(block.title)}", escape(block.explain), folded("figures", table)]
    for block in _blocks(results):
        parts += block_parts(block)
    parts += closing(run, words.facts(results), glossary())
    return "\n\n".join(part for part in parts if part) + "\n"


def _map_text(each: Map) -> str:
    lines = [(name, *(spot.text for spot in spots)) for name, spots in each.rows]
    table = plain_table(("", *each.heads), lines)
    return f"## {escape(each.title)}\n\n{escape(each.explain)}\n\n{table}"


def _step_texts(found: Sequence[Step]) -> list[str]:
    """Texts alone: pictures of patches are for the page."""
    texts = [each for each in found if not each.columns]
    if not texts:
        return []
    parts = [f"## {_TITLES['steps']}", escape(_STEP_WORDS)]
    for each in texts:
        pieces = [
            escape(piece.text) if piece.kept else f"~~{escape(piece.text)}~~"
            for piece in each.pieces
        ]
        parts.append(f"- {' '.join(pieces)} ({escape(each.words)})")
    return parts
