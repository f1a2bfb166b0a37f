"""What every page shares: its templates, its style variables, and its drawings as markup."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
from markupsafe import Markup

from sparing.core.errors import DataError
from sparing.core.writing import write_atomically
from sparing.report.drawing import Plot, to_png, to_svg
from sparing.report.palette import DARK, LIGHT, Look, marker_outline, variables


def environment(*folders: Path) -> jinja2.Environment:
    """The templates of the kit and of ``folders``; texts are escaped.

    What a page forgets to give its template is an error.
    """
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, *folders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(variables=_style_variables, light=LIGHT, dark=DARK)
    found.filters["tight"] = _tight
    return found


def inline(plot: Plot) -> dict[str, object]:
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


def chip(position: int, *, faded: bool = False) -> dict[str, object]:
    """A sign beside a name: the marker's outline and the name of its colour's variable."""
    return {"outline": marker_outline(position), "colour": _chip_colour(position, faded=faded)}


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


def _chip_colour(position: int, *, faded: bool) -> str:
    """The name of the page's variable."""
    if faded:
        return "muted"
    return "ink" if position == 0 else f"arm-{(position - 1) % len(LIGHT.arms)}"
