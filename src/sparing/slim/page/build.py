"""The page of ``slim``: reached or not, what was cut, what it costs, how to load it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparing.report import blocks
from sparing.report.blocks import name_of
from sparing.report.drawing import Plot
from sparing.report.markdown import (
    block_parts,
    closing,
    comparison,
    escape,
    fenced,
    folded,
    picture,
    plain_table,
)
from sparing.report.page import Page
from sparing.report.rendering import chip, environment, inline
from sparing.report.run import Run
from sparing.slim.page import content as slim_content
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
from sparing.slim.page.verdict import SlimVerdict, judge

LATER_FIGURES = ("measured", "widths", "trials")
_TITLES = {
    "cuts": "What was cut where",
    "forms": "Every form, timed and scored",
    "load": "How to load it",
}

TEMPLATES = Path(__file__).parent


def build(run: Run) -> Page:
    """The page and its figures, from the run's files alone.

    Raises ``DataError`` where a record is damaged.
    """
    results = SlimResults(run)
    verdict = judge(results)
    drawn = [frontier(results), measured_plot(results), widths(results), trials(results)]
    return Page(drawn, _page(results, verdict, drawn), _markdown(results, verdict, drawn))


def _blocks(results: SlimResults) -> list[blocks.Block]:
    run = results.run
    return [slim_content.goals(run), *blocks.failed_blocks(run)]


def _findings(results: SlimResults) -> list[blocks.Block]:
    """What was found beyond the table of forms."""
    return [*measured_block(results), *control_blocks(results), *int8_blocks(results)]


def _page(results: SlimResults, verdict: SlimVerdict, drawn: Sequence[Plot]) -> str:
    run, signs = results.run, {name: chip(p) for name, p in chip_positions(results).items()}
    signs |= {form_name(form): chip(form_position(form)) for form in results.forms}
    template = environment(TEMPLATES).get_template("slim.html.jinja")
    return template.render(
        title=f"{name_of(run)}: a slimmed model",
        name=name_of(run),
        headline=slim_content.headline(results),
        verdict=verdict,
        notices=slim_content.notices(results),
        figures={plot.name: inline(plot) for plot in drawn},
        chips=signs,
        titles=_TITLES,
        front=front_block(results),
        cut_words=" ".join(cut_words(results)),
        cut_heads=cut_heads(results),
        layers=cut_layers(results),
        leaving_words=leaving_words(results),
        columns=form_columns(results),
        rows=form_rows(results),
        form_words=form_words(results),
        findings=_findings(results),
        training=slim_content.training(results),
        snippets=slim_content.loading(results),
        blocks=_blocks(results),
        facts=slim_content.facts(results),
        words=slim_content.words(),
        command=str(run.config.get("command") or ""),
    )


def _markdown(results: SlimResults, verdict: SlimVerdict, drawn: Sequence[Plot]) -> str:
    run, by_name = results.run, {plot.name: plot for plot in drawn}
    front = front_block(results)
    parts = [
        f"# {escape(name_of(run))}",
        escape(" · ".join(slim_content.headline(results))),
        f"**{escape(verdict.lead)}**{escape(verdict.because)}",
        *(escape(sentence) for sentence in verdict.second),
        *(f"> {escape(notice)}" for notice in slim_content.notices(results)),
        picture(by_name["frontier"]),
        folded(front.title, plain_table(front.heads, front.rows)) if front.rows else "",
        *(picture(by_name[name]) for name in LATER_FIGURES if by_name[name].draw),
        f"## {_TITLES['cuts']}",
        escape(" ".join([*cut_words(results), leaving_words(results)])),
        _layer_table(results),
        f"## {_TITLES['forms']}",
        escape(form_words(results)),
        comparison(form_columns(results), form_rows(results), "", "Form") if results.forms else "",
        *(part for block in _findings(results) for part in block_parts(block)),
        *block_parts(slim_content.training(results)),
        *_loading(results),
    ]
    for block in _blocks(results):
        parts += block_parts(block)
    parts += closing(run, slim_content.facts(results), slim_content.words())
    return "\n\n".join(part for part in parts if part) + "\n"


def _layer_table(results: SlimResults) -> str:
    layers = cut_layers(results)
    if not layers:
        return ""
    heads = cut_heads(results)
    unused = ("never run", *("" for _ in heads[1:]))
    texts = [tuple(bar.text for bar in layer.bars) or unused for layer in layers]
    lines = [(str(layer.number), *row) for layer, row in zip(layers, texts, strict=True)]
    return plain_table(("Layer", *heads), lines)


def _loading(results: SlimResults) -> list[str]:
    parts = [f"## {_TITLES['load']}"]
    for snippet in slim_content.loading(results):
        parts += [escape(snippet.words), fenced(snippet.code, "python")]
    return parts if len(parts) > 1 else [*parts, "No model was saved."]


def answer(run: Run) -> str:
    """What to do with the model, in one sentence: the first of the page."""
    verdict = judge(SlimResults(run))
    return f"{verdict.lead}{verdict.because}"
