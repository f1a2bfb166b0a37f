"""The page of the AdaAttention study: printed and measured figures, and why they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.blocks import TOGETHER, Block, failed_blocks, goals_block
from sparing.report.markdown import escape, plain_table
from sparing.report.page import Page
from sparing.report.rendering import environment
from sparing.report.run import Run
from sparing.report.sections import Comparison, Part, Raw, Section, Table, Text, figure
from sparing_papers.adaattention.findings import ablations_of, tasks_of
from sparing_papers.adaattention.page import content as words
from sparing_papers.adaattention.page.arms import arm_columns, arm_rows
from sparing_papers.adaattention.page.curves import blocks as curve_blocks
from sparing_papers.adaattention.page.figures import positions, speeds
from sparing_papers.adaattention.page.patterns import Map, Step, maps, steps
from sparing_papers.adaattention.page.tables import (
    MAIN,
    REST,
    certificate_block,
    impossible_block,
    length_block,
    printed_blocks,
    shape_block,
)
from sparing_papers.adaattention.page.texts import TEXT


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` for a damaged record.
    """
    records = RecordTable(run.records, run.config["arms"])
    examples = steps(records)
    return Page(
        run,
        "AdaAttention, printed and measured",
        words.headline(run),
        words.verdict(run, records),
        words.notices(run),
        [*_tables(run, records), *_spending(run, records, examples), *_rest(run, records)],
        words.facts(run),
        words.glossary(run),
        positions(),
        style=_written("adaattention.css", steps=examples),
    )


def _tables(run: Run, records: RecordTable) -> list[Part]:
    """Speeds at the printed shape, every variant, and printed tables beside measured ones."""
    tasks = ablations_of(run.config)
    shape, lengths = shape_block(records), length_block(records, tasks_of(run.config))
    arms = Comparison(arm_columns(), arm_rows(records, tasks), signs=False)
    about = Text(TEXT("variants", tasks=wording.listing(tasks)))
    return [
        figure(speeds(records)),
        *([shape] if shape.rows else []),
        Section("arms", "Every variant on the tasks' own texts", (about, arms)),
        *([lengths] if lengths.rows else []),
        *curve_blocks(run, records),
        *printed_blocks(records, tasks, MAIN),
        impossible_block(records),
    ]


def _spending(run: Run, records: RecordTable, examples: Sequence[Step]) -> list[Part]:
    """Maps of the head scores, and examples to step through."""
    drawn, shown = maps(run, records), list[Part]()
    if drawn:
        tables = "\n\n".join(map(_map, drawn))
        raw = Raw(_written("patterns.html.jinja", "maps", drawn), tables)
        parts = (Text(TEXT("patterns")), raw)
        shown.append(Section("patterns", "Where the compute goes", parts))
    if examples:
        raw = Raw(_written("patterns.html.jinja", "stepper", examples), _step_lines(examples))
        title = "What the skipping variant keeps, example by example"
        shown.append(Section("steps", title, (Text(TEXT("steps")), raw)))
    return shown


def _map(shown: Map) -> str:
    """A map as Markdown: its scores as numbers."""
    rows = [(name, *(spot.text for spot in spots)) for name, spots in shown.rows]
    title, explain = escape(shown.title), escape(shown.explain)
    return f"### {title}\n\n{explain}\n\n{plain_table(('', *shown.heads), rows)}"


def _step_lines(examples: Sequence[Step]) -> str:
    """The examples of texts; pictures of patches are in the HTML form alone."""
    lines = []
    for step in examples:
        texts = [(escape(piece.text), piece.is_kept) for piece in step.pieces]
        pieces = " ".join(text if is_kept else f"~~{text}~~" for text, is_kept in texts)
        lines += [] if step.columns else [f"- {pieces} ({escape(step.words)})"]
    return "\n\n".join(lines)


def _rest(run: Run, records: RecordTable) -> list[Part]:
    """The certificate, the further tables, goals and failures."""
    certificate = certificate_block(records)
    return [
        *([certificate] if certificate.rows else []),
        *map(_folded, printed_blocks(records, ablations_of(run.config), REST)),
        goals_block(run, TEXT("goals", together=TOGETHER)),
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
