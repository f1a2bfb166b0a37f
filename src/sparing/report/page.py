"""The page: one HTML file with everything in it, its Markdown twin and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparing.core.record import Record
from sparing.report import (
    adaattention,
    calculator,
    content,
    hugginggreen,
    kerformer,
    linformer,
    slim,
)
from sparing.report.cells import Failed
from sparing.report.drawing import Plot
from sparing.report.figures import plots
from sparing.report.markdown import render_markdown
from sparing.report.rendering import chip, environment, inline, pictures, replace_file
from sparing.report.results import Results
from sparing.report.run import Config, Run, read_run
from sparing.report.tables import dense_name, table_columns, table_rows
from sparing.report.verdict import decide
from sparing.report.words import words


def write_report(folder: Path) -> dict[str, Path]:
    """Write ``report.html``, ``report.md`` and ``figures/*.png`` into a run's folder.

    Reads ``config.json``, ``records.jsonl``, ``goals.json`` and ``failed.json`` there and nothing
    else; works while the run still goes. Each file replaces the old one at once, so an open page is
    never half written. Returns the written files by name (``html``, ``md``, and ``crossover`` and
    the other figures, with ``-dark`` for the dark form).

    Raises ``DataError`` for a folder that is no run, is damaged or cannot be written.
    """
    folder = Path(folder)
    run = read_run(folder)
    pages = (slim, adaattention, hugginggreen, calculator, kerformer, linformer)
    render = {page.__name__.rpartition(".")[2]: page.render for page in pages}
    drawn, page, markdown = render.get(str(run.config.get("study")), _render)(run)
    files: dict[str, tuple[Path, bytes]] = {}
    for plot in drawn:
        files |= pictures(plot, folder / "figures")
    files["md"] = (folder / "report.md", markdown.encode())
    files["html"] = (folder / "report.html", page.encode())
    for path, text in files.values():
        replace_file(path, text)
    return {name: path for name, (path, _) in files.items()}


def _render(run: Run) -> tuple[list[Plot], str, str]:
    results = Results(run.records, run.config)
    drawn = plots(results)
    return drawn, render_page(run, results, drawn), render_markdown(run, results, drawn)


def render_page(run: Run, results: Results, drawn: Sequence[Plot]) -> str:
    """The whole page as text, the figures inside it."""
    # Where the lines cross stands as a list beside their plot.
    every = table_columns(run.records, run.config)
    columns, caption = content.caption([c for c in every if c.key != "crossover"])
    return (
        environment()
        .get_template("page.html.jinja")
        .render(
            title=f"{content.name_of(run)}: which attention to use",
            name=content.name_of(run),
            headline=content.headline(results),
            dense=dense_name(run.config),
            verdict=decide(run.records, run.config, run.failed),
            notices=content.notices(run, results),
            figures={plot.name: inline(plot) for plot in drawn},
            chips=_chips(results),
            shares=[
                {"tokens": tokens, "share": share, "gain": gain}
                for tokens, share, gain in content.shares(results)
            ],
            crossings=[{"arm": arm, "text": text} for arm, text in content.crossings(results)],
            columns=columns,
            rows=table_rows(run.records, run.config, run.failed),
            table_words=content.table_words(results),
            caption=caption,
            blocks=content.blocks(run, results),
            facts=content.facts(run, results),
            words=words(dense_name(run.config)),
            command=str(run.config.get("command") or ""),
        )
    )


def table_html(records: Sequence[Record], config: Config, failed: Failed = ()) -> str:
    """The comparison table alone, as the notebook form of a result; every text is escaped."""
    template = environment().get_template("table.html.jinja")
    columns, caption = content.caption(table_columns(records, config))
    rows = table_rows(records, config, failed)
    return str(template.module.comparison(columns, rows, caption, {}))  # type: ignore[attr-defined]


def _chips(results: Results) -> dict[str, dict[str, object]]:
    arms = (results.baseline, *results.arms)
    return {arm: chip(results.position(arm), faded=arm in results.grey) for arm in arms}
