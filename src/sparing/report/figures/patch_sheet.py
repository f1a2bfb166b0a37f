"""Pictures beside the patches that each score keeps, and the scores as maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparing.report.figures.drawing import Draw, Sheet
from sparing.report.figures.palette import Look

CELL, GAP, HEAD, SIDE = 168, 10, 34, 14
# The opacity of a dropped patch: just visible.
FAINT = 0.14

Grid = NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """One score of one picture: patches by row and column, and the mask of kept ones."""

    scores: Grid
    keep_mask: NDArray[np.bool_]


@dataclass(frozen=True)
class Picture:
    """A picture, (height, width, 3) from 0 to 1, and its scores by name."""

    name: str
    pixels: Grid
    scored: Mapping[str, Scored]


def patch_sheet(pictures: Sequence[Picture]) -> Draw:
    """A drawing: a row of kept patches and one of score maps for each picture."""

    def draw(look: Look, narrow: bool) -> Figure:
        names = list(pictures[0].scored)
        width = 2 * SIDE + (1 + len(names)) * (CELL + GAP) - GAP
        height = HEAD + len(pictures) * 2 * (CELL + GAP) + SIDE
        sheet = Sheet(width, height, look, narrow)
        figure = sheet.figure()
        for row, picture in enumerate(pictures):
            _whole(_cell(sheet, figure, 2 * row, 0), picture, look, row == 0)
            for column, name in enumerate(names, start=1):
                scored = picture.scored[name]
                patches = _cell(sheet, figure, 2 * row, column)
                patches.imshow(_faded(picture.pixels, scored.keep_mask), interpolation="nearest")
                if row == 0:
                    _title(patches, name, look)
                score_map = _cell(sheet, figure, 2 * row + 1, column)
                score_map.imshow(_stretched(scored.scores), cmap="gray", vmin=0, vmax=1)
        return figure

    return draw


def _cell(sheet: Sheet, figure: Figure, row: int, column: int) -> Axes:
    """The axes of one square, without anything around it."""
    left = SIDE + column * (CELL + GAP)
    top = HEAD + row * (CELL + GAP)
    bounds = (
        left / sheet.width,
        1 - (top + CELL) / sheet.height,
        CELL / sheet.width,
        CELL / sheet.height,
    )
    axes = figure.add_axes(bounds)
    axes.set_axis_off()
    return axes


def _whole(axes: Axes, picture: Picture, look: Look, first: bool) -> None:
    axes.imshow(picture.pixels, interpolation="nearest")
    if first:
        _title(axes, "the picture", look)
    axes.text(
        0.0,
        -0.05,
        f"{picture.name}\n\nabove: what is kept\nbelow: the scores;\nbright is high"
        if first
        else picture.name,
        transform=axes.transAxes,
        va="top",
        color=look.muted,
        fontsize=11,
        parse_math=False,
    )


def _title(axes: Axes, text: str, look: Look) -> None:
    axes.set_title(text, loc="left", color=look.ink, fontsize=13, pad=7, parse_math=False)


def _faded(pixels: Grid, keep_mask: NDArray[np.bool_]) -> Grid:
    """The picture with its dropped patches almost transparent."""
    size = pixels.shape[0] // keep_mask.shape[0], pixels.shape[1] // keep_mask.shape[1]
    whole = np.kron(keep_mask, np.ones(size, dtype=bool))
    rows, columns = whole.shape
    seen = pixels[:rows, :columns]
    return np.concatenate([seen, np.where(whole, 1.0, FAINT)[..., None]], axis=-1)


def _stretched(scores: Grid) -> Grid:
    """From 0, the lowest score of the picture, to 1; all of them 0 where none differs."""
    spread = float(np.ptp(scores))
    scaled: Grid = (scores - scores.min()) / spread if spread else np.zeros_like(scores)
    return scaled
