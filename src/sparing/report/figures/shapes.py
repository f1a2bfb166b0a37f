"""A figure of the matrix products of a mechanism: rectangles with their sizes at their sides."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sparing.core.errors import UsageError
from sparing.core.products import Products
from sparing.core.writing import write_atomically
from sparing.report.figures.drawing import Sheet, plain_settings, to_png
from sparing.report.figures.palette import LIGHT, Look
from sparing.report.shapes import rank

SIDES = (34.0, 72.0, 120.0)  # of a rectangle in pixels, by the rank of its size
ROW, WIDTH, APART = 185, 700, 60
ENDINGS = (".png", ".svg")


def save_products(products: Products, path: Path) -> None:
    """Write the figure as PNG or SVG; raises ``UsageError`` for another ending."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"a drawing is .png or .svg; got {path.name!r}")
    if path.suffix == ".png":
        write_atomically(path, to_png(lambda look, narrow: _figure(products, look), LIGHT))
        return
    target = io.StringIO()
    with plain_settings():
        FigureCanvasSVG(_figure(products, LIGHT)).print_svg(target, metadata={"Date": None})
    write_atomically(path, target.getvalue())


def _figure(products: Products, look: Look) -> Figure:
    """A row for each product, from top to bottom."""
    sheet = Sheet(WIDTH, ROW * len(products.steps) + 30, look)
    figure = sheet.figure()
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, sheet.width)
    axes.set_ylim(sheet.height, 0)
    axes.set_axis_off()
    named = [f"{s} = {products.sizes[s]:,} {products.meanings[s]}" for s in products.sizes]
    sheet.write(axes, "one head: " + ", ".join(named), (12, 20), color=look.muted)
    for number, step in enumerate(products.steps):
        rows, inner, columns = step.sizes
        matrices = [
            (step.left, rows, inner, ""),
            (step.right, inner, columns, "\N{MULTIPLICATION SIGN}"),
            (step.result, rows, columns, "="),
        ]
        left, top = 40.0, 60.0 + ROW * number
        for position, (name, height, width, sign) in enumerate(matrices):
            high, wide = SIDES[rank(products, height)], SIDES[rank(products, width)]
            colour = look.colour(1 if position == 2 else 0)
            sheet.write(axes, sign, (left - 38, top + 24))
            _draw(sheet, axes, (left, top, wide, high), (name, height, width), colour)
            left += wide + APART
        sheet.write(axes, step.says, (left - 20, top + 24), color=look.muted)
    return figure


def _draw(
    sheet: Sheet,
    axes: Axes,
    box: tuple[float, float, float, float],
    names: tuple[str, str, str],
    colour: str,
) -> None:
    """A rectangle with the matrix's name in it, its rows at the left, its columns above."""
    left, top, width, height = box
    name, rows, columns = names
    axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=colour, lw=1.4))
    middle, centre = left + width / 2, top + height / 2
    style: dict[str, Any] = {"ha": "center", "va": "center"}
    sheet.write(axes, name, (middle, centre), color=colour, **style)
    sheet.write(axes, rows, (left - 9, centre), color=sheet.look.muted, **style)
    sheet.write(axes, columns, (middle, top - 10), color=sheet.look.muted, **style)
