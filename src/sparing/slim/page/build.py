"""The page of ``slim``: the verdict, the plan, times and scores, and how to load the model."""

from __future__ import annotations

from pathlib import Path

from sparing.report import blocks
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import Comparison, Pair, Part, Section, Table, Text, figure
from sparing.slim.page import content, prose
from sparing.slim.page.controls import control_blocks
from sparing.slim.page.cuts import cut_heads, cut_rows, cut_words, front_block
from sparing.slim.page.figures import chip_positions, frontier, widths
from sparing.slim.page.forms import form_columns, form_positions, form_rows, form_words
from sparing.slim.page.int8 import int8_blocks
from sparing.slim.page.timed import measured_block, measured_plot, trials_plot
from sparing.slim.page.use import use_blocks, verdict

STYLE = Path(__file__).with_name("slim.css")


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    return Page(
        run,
        "a slimmed model",
        content.headline(run),
        verdict(run),
        content.notices(run),
        _sections(run),
        content.facts(run),
        prose.pairs("words"),
        chip_positions(run) | form_positions(run),
        style=STYLE.read_text(encoding="utf-8"),
    )


def _sections(run: Run) -> list[Part]:
    cuts = (Text(cut_words(run)), Table(cut_heads(run), cut_rows(run), style="plain layers"))
    forms = Comparison(form_columns(run), form_rows(run), head="Form")
    return [
        *use_blocks(run),
        Section("load", "How to load it", content.loading(run) or [Text(prose("not-saved"))]),
        *_figures(run),
        Section("cuts", "What was cut where", cuts),
        Section("forms", "Every form, timed and scored", (Text(form_words(run)), forms)),
        *measured_block(run),
        *control_blocks(run),
        *int8_blocks(run),
        content.training(run),
        blocks.goals_block(run, prose("goals")),
        *blocks.failed_blocks(run),
    ]


def _figures(run: Run) -> list[Part]:
    """The frontier with its table, then the measured and the tried plans, if any."""
    front = front_block(run)
    fold = f"{front.title}: {len(front.rows)} plans that no other beats"
    measured, plots = measured_plot(run), [widths(run), trials_plot(run)]
    return [
        figure(frontier(run), Table(front.heads, front.rows, fold)),
        *([Section("measured-front", "", (measured,))] if measured.draw else []),
        Pair([figure(plot) for plot in plots if plot.draw]),
    ]


def answer(run: Run) -> str:
    """What to do with the model, in one sentence: the first of the page."""
    first = verdict(run)
    return f"{first.lead}{first.because}"
