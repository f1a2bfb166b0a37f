"""The HTML writer of a page, and its drawings as files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import jinja2
from markupsafe import Markup

from sparing.core.errors import DataError
from sparing.core.writing import write_atomically
from sparing.report.blocks import Block, name_of
from sparing.report.figures.drawing import Plot, to_png, to_svg
from sparing.report.figures.palette import DARK, LIGHT, Look, marker_outline, variables
from sparing.report.sections import CLOSING, Document, Part, Raw, Section, Table, Text


def environment(folder: Path = Path(__file__).parent) -> jinja2.Environment:
    """The templates of a folder; texts are escaped, and a text that is missing is an error."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["tight"] = _tight
    return templates


def page_html(page: Document) -> str:
    """The page as one file."""
    chips = {name: _chip(position, name in page.faded) for name, position in page.positions.items()}
    template = _writer(chips).get_template("base.html.jinja")
    return template.render(page=page, name=name_of(page.run))


def part_html(part: Part) -> str:
    """One part without signs, for a place of its own."""
    return str(_writer({}).filters["markup"](part))


def _writer(chips: Mapping[str, Mapping[str, str]]) -> jinja2.Environment:
    """The kit's templates with the filter that writes any part by the macro of its kind."""
    templates = environment()

    def markup(part: Part) -> Markup:
        if isinstance(part, Raw):
            return part.html
        if isinstance(part, Block):
            table = Table(part.heads, part.rows, part.summary)
            part = Section(part.key, part.title, (Text(part.explain), table))
        return Markup(getattr(macros, type(part).__name__.lower())(part))

    templates.globals.update(variables=_style_variables, light=LIGHT, dark=DARK, closing=CLOSING)
    templates.filters.update(markup=markup, drawing=_drawing)
    macros = templates.get_template("parts.html.jinja").make_module({"chips": chips})
    return templates


def _drawing(plot: Plot, narrow: bool) -> Markup:
    """A plot's drawing; the SVG writer escapes its texts, so it is markup."""
    form = "narrow" if narrow else "wide"
    name = f"{plot.name}-{form}"
    return Markup(to_svg(plot.draw, name, narrow=narrow) if plot.draw else "")


def pictures(plot: Plot, folder: Path) -> dict[str, tuple[Path, bytes]]:
    """A plot as files in ``folder``, light and dark; none where there is nothing to draw."""
    if plot.draw is None:
        return {}
    looks = {plot.name: LIGHT, f"{plot.name}-dark": DARK}
    return {name: (folder / f"{name}.png", to_png(plot.draw, look)) for name, look in looks.items()}


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in place whole or not at all; ``DataError`` where it cannot be written."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def _tight(text: str) -> str:
    """Keeps a per cent sign and a unit of time or length on the line of its number."""
    return re.sub(r"(?<=\d) (?=(%|ms|s|tokens?|points?)(\b|\W|$))", "\N{NO-BREAK SPACE}", text)


def _style_variables(look: Look) -> Markup:
    """A look as declarations of the page's style; the palette is our own text."""
    return Markup(" ".join(f"--{name}: {value};" for name, value in variables(look).items()))


def _chip(position: int, faded: bool) -> dict[str, str]:
    """A sign beside a name: the marker's outline and the name of its colour's variable."""
    colour = "ink" if position == 0 else f"arm-{(position - 1) % len(LIGHT.arms)}"
    return {"outline": marker_outline(position), "colour": "muted" if faded else colour}
