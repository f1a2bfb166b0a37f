"""The page of the AdaAttention study: printed figures, ours beside them, and why they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sparing.report import wording
from sparing.report.blocks import TOGETHER, Block, failed_blocks, goals_block
from sparing.report.markdown import escape
from sparing.report.page import Page
from sparing.report.rendering import environment
from sparing.report.run import Run
from sparing.report.sections import Comparison, Only, Part, Raw, Section, Table, Text, figure
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


_GOAL_WORDS = f"Declared before the run; the paper's claims are goals like ours. {TOGETHER}"


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = AdaResults(run)
    examples = steps(results)
    return Page(
        run,
        "AdaAttention, printed and measured",
        words.headline(results),
        words.verdict(results),
        words.notices(results),
        [
            *_tables(results),
            *_spending(results, examples),
            *_rest(results),
        ],
        words.facts(results),
        glossary(),
        positions(),
        style=_written("adaattention.css", steps=examples),
    )


def _tables(results: AdaResults) -> list[Part]:
    """Speeds at the printed shape, every arm, and the printed tables beside ours."""
    shape, lengths = shape_block(results), length_block(results)
    arm_words = _ARM_WORDS.format(tasks=wording.listing(results.ablations))
    arms = Comparison(arm_columns(), arm_rows(results), signs=False)
    return [
        figure(speeds(results)),
        shape if shape.rows else Only("markdown", shape),
        Section("arms", "Every arm on the tasks' own texts", (Text(arm_words), arms)),
        *([lengths] if lengths.rows else []),
        *curve_blocks(results),
        *printed_blocks(results, MAIN),
        impossible_block(results),
    ]


def _spending(results: AdaResults, examples: Sequence[Step]) -> list[Part]:
    """Where the compute goes: maps of the scores, and examples to step through."""
    found = maps(results)
    shown: list[Part] = []
    if found:
        drawn = Raw(_written("patterns.html.jinja", "maps", found), "")
        title, tables = "Where the compute goes", [Only("markdown", _map(map_)) for map_ in found]
        parts = (Text(_PATTERN_WORDS), drawn)
        shown += [Only("html", Section("patterns", title, parts)), *tables]
    if examples:
        drawn = Raw(_written("patterns.html.jinja", "stepper", examples), _step_lines(examples))
        title = "What the skipping arm keeps, example by example"
        section = Section("steps", title, (Text(_STEP_WORDS), drawn))
        shown.append(section if drawn.markdown else Only("html", section))
    return shown


def _map(shown: Map) -> Section:
    rows = [(name, *(spot.text for spot in spots)) for name, spots in shown.rows]
    return Section("", shown.title, (Text(shown.explain), Table(("", *shown.heads), rows)))


def _step_lines(examples: Sequence[Step]) -> str:
    """Texts alone: pictures of patches are for the HTML form."""
    lines = []
    for step in examples:
        texts = [(escape(piece.text), piece.kept) for piece in step.pieces]
        pieces = " ".join(text if kept else f"~~{text}~~" for text, kept in texts)
        lines += [] if step.columns else [f"- {pieces} ({escape(step.words)})"]
    return "\n\n".join(lines)


def _rest(results: AdaResults) -> list[Part]:
    """The certificate, the tables of a smaller part of the study, goals and failures."""
    run, certificate = results.run, certificate_block(results)
    return [
        *([certificate] if certificate.rows else []),
        *map(_folded, printed_blocks(results, REST)),
        goals_block(run, _GOAL_WORDS),
        *failed_blocks(run),
    ]


def _folded(block: Block) -> Section:
    table = Table(block.heads, block.rows, "figures")
    return Section(block.key, block.title, (Text(block.explain), table))


def _written(name: str, macro: str = "", *values: Any, **context: Any) -> Markup:
    """A template of this page, or one macro of it, as markup; texts in it are escaped."""
    template = environment(Path(__file__).parent).get_template(name)
    if macro:
        return Markup(getattr(template.module, macro)(*values))
    return Markup(template.render(**context))
