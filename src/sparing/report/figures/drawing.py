"""A sheet to draw on in pixels, and labels that keep out of each other's way."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from sparing.report.figures.palette import STAND_INS, Look, marker, variable_by_stand_in

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_POINTS_PER_INCH = 72

Number = int | float
Draw = Callable[[Look, bool], Figure]


@dataclass(frozen=True)
class Sheet:
    """A figure of so many pixels; ``narrow`` is the form for a phone."""

    width: int
    height: int
    look: Look
    narrow: bool = False

    @property
    def text(self) -> float:
        """The size of ordinary text in pixels."""
        return 11.0 if self.narrow else 13.0

    def figure(self) -> Figure:
        """An empty figure of this size."""
        size = (self.width / _POINTS_PER_INCH, self.height / _POINTS_PER_INCH)
        return Figure(figsize=size, dpi=_POINTS_PER_INCH, facecolor=self.look.ground)

    def axes(
        self, figure: Figure, left: Number, top: Number, right: Number, bottom: Number
    ) -> Axes:
        """Axes that end so many pixels from the figure's edges, with hairlines and no frame."""
        bounds = (
            left / self.width,
            bottom / self.height,
            1 - (left + right) / self.width,
            1 - (top + bottom) / self.height,
        )
        axes = figure.add_axes(bounds)
        axes.set_facecolor("none")
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(self.look.muted)
        axes.spines["bottom"].set_linewidth(0.8)
        axes.grid(axis="y", color=self.look.grid, linewidth=1)
        axes.set_axisbelow(True)
        axes.tick_params(
            which="both", length=0, pad=7, labelsize=self.text, labelcolor=self.look.muted
        )
        return axes

    def write(
        self,
        axes: Axes,
        text: str,
        at: tuple[Number, Number],
        shift: tuple[Number, Number] = (0, 0),
        coords: str | tuple[str, str] = "data",
        **style: Any,
    ) -> None:
        """A text so many pixels from a point of the axes, as it is; ink unless styled."""
        usual: dict[str, Any] = {"fontsize": self.text, "color": self.look.ink, "parse_math": False}
        usual |= {"xycoords": coords, "textcoords": "offset points", "annotation_clip": False}
        axes.annotate(text, xy=at, xytext=shift, **usual | style)

    def caption(self, axes: Axes, text: str, rise: Number = 12) -> None:
        """What the vertical axis shows, written flat so many pixels above it."""
        self.write(axes, text, (0, 1), (0, rise), "axes fraction", color=self.look.muted)

    def level(self, axes: Axes, height: Number, text: str, rise: Number) -> None:
        """A dashed line to compare with, its name at its right end so many pixels above it."""
        axes.axhline(height, color=self.look.muted, lw=1, linestyle=(0, (4, 4)), zorder=1)
        style = {"color": self.look.muted, "fontsize": self.text - 1, "ha": "right"}
        self.write(axes, text, (1, height), (-2, rise), ("axes fraction", "data"), **style)


@dataclass(frozen=True)
class Plot:
    """One plot: its name, what it shows, and how to draw it in a look, wide or narrow.

    ``legend`` lists the variants in the key that the narrow form needs beside it. ``missing`` says
    why there is nothing to draw; then ``draw`` is None.
    """

    name: str
    title: str
    description: str
    draw: Draw | None
    legend: tuple[str, ...] = ()
    missing: str = ""


def no_plot(name: str, title: str, missing: str) -> Plot:
    """A plot that cannot be shown yet; ``missing`` says why."""
    return Plot(name, title, "", None, missing=missing)


@contextmanager
def plain_settings() -> Iterator[None]:
    """Matplotlib's own defaults while drawing, whatever a user's settings say; restored after."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.fonttype"] = "none"
        matplotlib.rcParams["svg.hashsalt"] = "sparing"
        yield


def to_png(draw: Draw, look: Look) -> bytes:
    """The wide drawing as pixels, twice as fine as its size on the page."""
    with plain_settings():
        figure = draw(look, False)
        figure.set_dpi(2 * _POINTS_PER_INCH)
        target = io.BytesIO()
        FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})
        return target.getvalue()


def to_svg(draw: Draw, name: str, *, narrow: bool) -> str:
    """The drawing as an element for the page.

    Its colours are the page's variables, its text has the page's typeface, and every identifier
    begins with ``name``, so that figures on one page do not meet. Text in it is escaped.
    """
    with plain_settings():
        target = io.StringIO()
        figure = draw(STAND_INS, narrow)
        FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    root = ElementTree.fromstring(target.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        _restyle(element, name)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("style", "stroke-linejoin: round; stroke-linecap: round")
    root.set("aria-hidden", "true")
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(element: ElementTree.Element, name: str) -> None:
    attributes = element.attrib
    if "id" in attributes:
        attributes["id"] = f"{name}-{attributes['id']}"
    link = attributes.get(f"{{{_LINK}}}href")
    if link is not None and link.startswith("#"):  # not an embedded picture
        attributes[f"{{{_LINK}}}href"] = f"#{name}-{link[1:]}"
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("url(#", f"url(#{name}-")
    if "style" in attributes:
        style = re.sub(r"font-family:[^;]*;?\s*", "", attributes["style"])
        for colour, variable in variable_by_stand_in().items():
            style = style.replace(colour, variable)
        attributes["style"] = style
    for key in ("d", "x", "y", "transform", "points"):
        if key in attributes:
            rounded = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.2f}", attributes[key])
            attributes[key] = " ".join(rounded.split())


def spread(targets: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the targets, at distances of at least ``gap``, within the limits if they fit.

    Neighbours that would overlap are centred together on the mean of their targets.
    """
    order = sorted(range(len(targets)), key=targets.__getitem__)
    groups: list[list[int]] = []
    centres: list[float] = []
    for index in order:
        groups.append([index])
        centres.append(_within(targets[index], 1, gap, low, high))
        while len(groups) > 1 and _touch(groups, centres, gap):
            groups[-2:] = [groups[-2] + groups[-1]]
            members = groups[-1]
            mean = sum(targets[i] for i in members) / len(members)
            centres[-2:] = [_within(mean, len(members), gap, low, high)]
    places = [0.0] * len(targets)
    for members, centre in zip(groups, centres, strict=True):
        for step, index in enumerate(members):
            places[index] = centre + gap * (step - (len(members) - 1) / 2)
    return places


def _touch(groups: list[list[int]], centres: list[float], gap: float) -> bool:
    reach = gap * (len(groups[-1]) + len(groups[-2])) / 2
    return centres[-1] - centres[-2] < reach - 1e-9


def _within(centre: float, count: int, gap: float, low: float, high: float) -> float:
    half = gap * (count - 1) / 2
    return max(low + half, min(high - half, centre)) if high - low >= 2 * half else (low + high) / 2


Box = tuple[float, float, float, float]


def free_place(
    point: tuple[float, float], size: tuple[float, float], taken: list[Box], bounds: Box
) -> tuple[float, float] | None:
    """The left lower corner of a free box of this size beside its point, or None.

    Right of the point first, then left, above and below; boxes are (left, bottom, right, top).
    """
    (x, y), (width, height) = point, size
    away = 10.0
    corners = [
        (x + away, y - height / 2),
        (x - away - width, y - height / 2),
        (x - width / 2, y + away),
        (x - width / 2, y - away - height),
        (x + away, y + away / 2),
        (x + away, y - away / 2 - height),
        (x - away - width, y + away / 2),
        (x - away - width, y - away / 2 - height),
    ]
    for left, bottom in corners:
        box = (left, bottom, left + width, bottom + height)
        inside = box[0] >= bounds[0] and box[1] >= bounds[1]
        inside = inside and box[2] <= bounds[2] and box[3] <= bounds[3]
        if inside and not any(_overlap(box, other) for other in taken):
            return left, bottom
    return None


def name_points(
    sheet: Sheet,
    axes: Axes,
    named: Sequence[tuple[float, float, str]],
    room: Number = 6,
    lines: Sequence[Box] = (),
) -> None:
    """Texts beside their points where there is room, off the lines where possible.

    ``room`` is half the size of a point's sign, in pixels.
    """
    centres = [axes.transData.transform((x, y)) for x, y, _ in named]
    taken: list[Box] = [(x - room, y - room, x + room, y + room) for x, y in centres]
    edge = axes.get_window_extent()
    bounds = (edge.x0, edge.y0, edge.x1 + 10, edge.y1)
    for (_, _, text), (x, y) in zip(named, centres, strict=True):
        size = (0.62 * sheet.text * len(text), sheet.text * 1.25)
        point = (float(x), float(y))
        free = free_place(point, size, [*taken, *lines], bounds)
        free = free or free_place(point, size, taken, bounds)
        if free is None:
            continue
        left, bottom = free
        right = left + size[0]
        taken.append((left, bottom, right, bottom + size[1]))
        across, side = (left, "left") if left > x else (right, "right")
        if left < x < right:
            across, side = point[0], "center"
        at = (across, bottom + size[1] / 2)
        sheet.write(axes, text, at, coords="figure points", ha=side, va="center_baseline")


def _overlap(one: Box, other: Box) -> bool:
    apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    return not apart


def key_column(
    sheet: Sheet, axes: Axes, names: Sequence[str], positions: Mapping[str, int]
) -> None:
    """Signs and names in a column to the right of the axes."""
    height = float(axes.get_position().height) * sheet.height
    pixel = 1 / (float(axes.get_position().width) * sheet.width)
    for number, name in enumerate(names):
        at = (1 + 22 * pixel, 1 - 22 * number / height)
        signed_name(sheet, axes, at, 12 * pixel, name, positions[name])


def signed_name(
    sheet: Sheet,
    axes: Axes,
    at: tuple[float, float],
    gap: float,
    name: str,
    position: int,
) -> None:
    """A sign, and its name so far to the right of it; positions are in parts of the axes."""
    left, level = at
    sign = axes.plot([left], [level], marker=marker(position), markeredgewidth=0)
    for drawn in sign:
        colour = sheet.look.colour(position)
        drawn.set(color=colour, transform=axes.transAxes, clip_on=False, markersize=7)
    axes.text(
        left + gap,
        level,
        name,
        transform=axes.transAxes,
        fontsize=sheet.text,
        color=sheet.look.ink,
        verticalalignment="center_baseline",
        parse_math=False,
    )
