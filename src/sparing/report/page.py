"""The page: one HTML file with everything in it, its Markdown twin and its figures."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.report import content
from sparing.report.cells import Failed
from sparing.report.drawing import Plot, to_png, to_svg
from sparing.report.figures import plots
from sparing.report.markdown import render_markdown
from sparing.report.palette import DARK, LIGHT, Look, marker_outline, variables
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
    results = Results(run.records, run.config)
    drawn = plots(results)
    files: dict[str, tuple[Path, bytes]] = {}
    for plot in drawn:
        if plot.draw is None:
            continue
        for suffix, look in (("", LIGHT), ("-dark", DARK)):
            name = plot.name + suffix
            files[name] = (folder / "figures" / f"{name}.png", to_png(plot.draw, look))
    files["md"] = (folder / "report.md", render_markdown(run, results, drawn).encode())
    files["html"] = (folder / "report.html", render_page(run, results, drawn).encode())
    for path, text in files.values():
        _replace(path, text)
    return {name: path for name, (path, _) in files.items()}


def render_page(run: Run, results: Results, drawn: Sequence[Plot]) -> str:
    """The whole page as text, the figures inside it."""
    # Where the lines cross stands as a list beside their plot.
    every = table_columns(run.records, run.config)
    columns, caption = content.caption([c for c in every if c.key != "crossover"])
    environment = _environment()
    return environment.get_template("page.html.jinja").render(
        title=f"{content.name_of(run)}: which attention to use",
        name=content.name_of(run),
        headline=content.headline(results),
        dense=dense_name(run.config),
        verdict=decide(run.records, run.config, run.failed),
        notices=content.notices(run, results),
        figures={plot.name: _inline(plot) for plot in drawn},
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
        light=LIGHT,
        dark=DARK,
    )


def table_html(records: Sequence[Record], config: Config, failed: Failed = ()) -> str:
    """The comparison table alone, as the notebook form of a result; every text is escaped."""
    template = _environment().get_template("table.html.jinja")
    columns, caption = content.caption(table_columns(records, config))
    rows = table_rows(records, config, failed)
    return str(template.module.comparison(columns, rows, caption, {}))  # type: ignore[attr-defined]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["variables"] = _style_variables
    environment.filters["tight"] = _tight
    return environment


def _tight(text: str) -> str:
    """Keeps a per cent sign and a unit of time or length on the line of its number."""
    return re.sub(r"(?<=\d) (?=(%|ms|s|tokens?|points?)(\b|\W|$))", "\N{NO-BREAK SPACE}", text)


def _style_variables(look: Look) -> Markup:
    """A look as declarations of the page's style; the palette is our own text."""
    return Markup(" ".join(f"--{name}: {value};" for name, value in variables(look).items()))


def _chips(results: Results) -> dict[str, dict[str, object]]:
    positions = {arm: results.position(arm) for arm in (results.baseline, *results.arms)}
    return {
        arm: {
            "outline": marker_outline(position),
            "colour": _chip_colour(position, faded=arm in results.grey),
        }
        for arm, position in positions.items()
    }


def _chip_colour(position: int, *, faded: bool) -> str:
    """The name of the page's variable."""
    if faded:
        return "muted"
    return "ink" if position == 0 else f"arm-{(position - 1) % len(LIGHT.arms)}"


def _inline(plot: Plot) -> dict[str, object]:
    """A plot for the template; its drawings are escaped by the SVG writer, so they are markup."""
    drawing = {"wide": Markup(), "narrow": Markup()}
    if plot.draw is not None:
        for form in drawing:
            narrow = form == "narrow"
            drawing[form] = Markup(to_svg(plot.draw, f"{plot.name}-{form}", narrow=narrow))
    return {
        "title": plot.title,
        "description": plot.description,
        "legend": plot.legend,
        "missing": plot.missing,
        **drawing,
    }


def _replace(path: Path, content_bytes: bytes) -> None:
    """Put a file in place whole or not at all."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content_bytes)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
