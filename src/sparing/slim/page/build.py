"""The page of ``slim``: reached or not, what was cut, what it costs, how to load it."""

from __future__ import annotations

from pathlib import Path

from sparing.report import blocks
from sparing.report.page import Page
from sparing.report.run import Run
from sparing.report.sections import (
    Comparison,
    Pair,
    Part,
    Section,
    Table,
    Text,
    figure,
)
from sparing.slim.page import content
from sparing.slim.page.controls import control_blocks
from sparing.slim.page.cuts import cut_heads, cut_layers, cut_words, front_block, leaving_words
from sparing.slim.page.figures import chip_positions, frontier, widths
from sparing.slim.page.forms import (
    form_columns,
    form_name,
    form_position,
    form_rows,
    form_words,
)
from sparing.slim.page.int8 import int8_blocks
from sparing.slim.page.measured import measured_block, measured_plot
from sparing.slim.page.results import SlimResults
from sparing.slim.page.trials import trials
from sparing.slim.page.use import use_blocks, verdict

_STYLE = Path(__file__).with_name("slim.css")
_NOT_SAVED = "No model was saved: the run did not come to its end."


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = SlimResults(run)
    signs = {form_name(form): form_position(form) for form in results.forms}
    return Page(
        run,
        "a slimmed model",
        content.headline(results),
        verdict(results),
        content.notices(results),
        _sections(results),
        content.facts(results),
        content.words(),
        chip_positions(results) | signs,
        style=_STYLE.read_text(encoding="utf-8"),
    )


def _sections(results: SlimResults) -> list[Part]:
    run, snippets = results.run, content.loading(results)
    cuts = " ".join([*cut_words(results), leaving_words(results)])
    forms = Comparison(form_columns(results), form_rows(results), head="Form")
    return [
        *use_blocks(results),
        Section("load", "How to load it", snippets or [Text(_NOT_SAVED)]),
        *_figures(results),
        Section("cuts", "What was cut where", (Text(cuts), _layers(results))),
        Section("forms", "Every form, timed and scored", (Text(form_words(results)), forms)),
        *measured_block(results),
        *control_blocks(results),
        *int8_blocks(results),
        content.training(results),
        content.goals(run),
        *blocks.failed_blocks(run),
    ]


def _figures(results: SlimResults) -> list[Part]:
    """The frontier with its table, then what was measured and tried where there is any."""
    front, title = front_block(results), "The frontier as a table"
    counted = f"{title}: {len(front.rows)} plans that no other beats"
    table = Table(front.heads, front.rows, counted)
    measured, plots = measured_plot(results), [widths(results), trials(results)]
    return [
        figure(frontier(results), table),
        *([Section("measured-front", "", (measured,))] if measured.draw else []),
        Pair([figure(plot) for plot in plots if plot.draw]),
    ]


def _layers(results: SlimResults) -> Table:
    rows = [(str(layer.number), *(layer.bars or ("never run",))) for layer in cut_layers(results)]
    return Table(("Layer", *cut_heads(results)), rows, style="plain layers")


def answer(run: Run) -> str:
    """What to do with the model, in one sentence: the first of the page."""
    first = verdict(SlimResults(run))
    return f"{first.lead}{first.because}"
