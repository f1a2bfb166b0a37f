"""Dashed curves among distractors, drawn for many images at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.int64]
Grid = NDArray[np.bool_]
# Along a curve, in pixels of a 32 x 32 image: a dash, a gap, and how far a step may turn.
DASH, GAP, TURN = 3, 2, 0.35
# Pixels between a curve and the image's edge; tries to place a curve, and rounds of images.
MARGIN, TRIES, ROUNDS = 2, 60, 60
# Between curves, and between both ends of a long one.
APART, LEAST_AWAY = 3, 6
DASH_LEVEL, MARK_LEVEL = 160, 255


@dataclass(frozen=True)
class Curves:
    """How curves are drawn: dashes of the two long ones, of distractors, and how many of those."""

    side: int
    dashes: int
    distractor_dashes: int
    distractors: int


def draw_images(
    chance: np.random.Generator, labels: NDArray[np.int64], curves: Curves
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Images (count, side, side) with two marked ends each, and the distance between the marks.

    Where the label is 1 the marks stand at both ends of one long curve; else at one end of each of
    two, whichever two are about as far apart as the ends of one curve.
    """
    count, side = len(labels), curves.side
    image = np.zeros((count, side, side), dtype=bool)
    points = curves.dashes * (DASH + GAP) - GAP
    ends = np.zeros((count, 2, 2, 2), dtype=np.int64)
    missing = np.arange(count)
    for _ in range(ROUNDS):
        drawn, found, good = _draw(chance, len(missing), curves)
        image[missing[good]], ends[missing[good]] = drawn[good], found[good]
        missing = missing[~good]
        if not len(missing):
            break
    if len(missing):
        raise ValueError(f"no room for two curves of {points} pixels in {side} x {side}")
    marks = _marks(chance, ends, labels)
    pixels = np.where(image, DASH_LEVEL, 0).astype(np.uint8)
    _mark(pixels, marks)
    away = np.linalg.norm((marks[:, 0] - marks[:, 1]).astype(np.float64), axis=-1)
    return pixels, away


def _draw(
    chance: np.random.Generator, count: int, curves: Curves
) -> tuple[Grid, Points, NDArray[np.bool_]]:
    """Curves in so many images, the ends of the long ones, and where both had room."""
    side, good = curves.side, np.ones(count, dtype=bool)
    taken = np.zeros((count, side, side), dtype=bool)
    image = np.zeros((count, side, side), dtype=bool)
    ends = np.zeros((count, 2, 2, 2), dtype=np.int64)
    for number in range(2):
        paths, placed = _place(chance, taken, image, curves.dashes)
        ends[:, number] = paths[:, [0, -1]]
        long = np.abs(paths[:, 0] - paths[:, -1]).max(-1) >= LEAST_AWAY
        good &= placed & long
    for _ in range(curves.distractors):
        _place(chance, taken, image, curves.distractor_dashes)
    return image, ends, good


def _place(
    chance: np.random.Generator, taken: Grid, image: Grid, dashes: int
) -> tuple[Points, NDArray[np.bool_]]:
    """Draw one curve into every image that has room for it; their points in order, and where."""
    count, side, _ = taken.shape
    points = dashes * (DASH + GAP) - GAP
    found = np.zeros((count, points, 2), dtype=np.int64)
    placed = np.zeros(count, dtype=bool)
    for _ in range(TRIES):
        missing = np.flatnonzero(~placed)
        if not len(missing):
            break
        paths, inside = _walk(chance, len(missing), points, side)
        rows = missing[:, None]
        clipped = paths.clip(0, side - 1)
        free = ~taken[rows, clipped[..., 0], clipped[..., 1]].any(1)
        good = inside & free & ~_meets_itself(paths)
        where = missing[good]
        found[where], placed[where] = paths[good], True
        _take(taken, where, paths[good])
        _paint(image, where, paths[good])
    return found, placed


def _walk(
    chance: np.random.Generator, count: int, points: int, side: int
) -> tuple[Points, NDArray[np.bool_]]:
    """Curves that turn a little at every step, anywhere in the image; and whether each fits."""
    # a bend of its own for each curve, and a little chance at every step
    bend = chance.normal(0, TURN / 3, (count, 1))
    turns = bend + chance.normal(0, TURN / 2, (count, points - 1))
    angle = chance.uniform(0, 2 * np.pi, (count, 1)) + np.cumsum(turns, 1)
    steps = np.stack([np.cos(angle), np.sin(angle)], -1)
    path = np.concatenate([np.zeros((count, 1, 2)), np.cumsum(steps, 1)], 1)
    path -= path.min(1, keepdims=True)
    room = side - 1 - 2 * MARGIN - path.max(1)
    path += MARGIN + chance.uniform(0, 1, (count, 1, 2)) * room.clip(min=0)[:, None]
    return np.rint(path).astype(np.int64), (room >= 0).all(1)


def _meets_itself(paths: Points) -> NDArray[np.bool_]:
    """Whether a curve comes near to a part of itself that is not next to it."""
    away = np.abs(paths[:, :, None] - paths[:, None]).max(-1)
    apart = np.abs(np.arange(paths.shape[1])[:, None] - np.arange(paths.shape[1])) > 2 * DASH
    return np.asarray(((away <= 2) & apart).any((1, 2)))


def _take(taken: Grid, where: NDArray[np.int64], paths: Points) -> None:
    """Nothing else may come within three pixels: farther away than the next dash."""
    side = taken.shape[1]
    for down in range(-APART, APART + 1):
        for right in range(-APART, APART + 1):
            moved = (paths + np.array((down, right))).clip(0, side - 1)
            taken[where[:, None], moved[..., 0], moved[..., 1]] = True


def _paint(image: Grid, where: NDArray[np.int64], paths: Points) -> None:
    """The dashes, without the gaps."""
    drawn = np.arange(paths.shape[1]) % (DASH + GAP) < DASH
    dashes = paths[:, drawn]
    image[where[:, None], dashes[..., 0], dashes[..., 1]] = True


def _marks(chance: np.random.Generator, ends: Points, labels: NDArray[np.int64]) -> Points:
    """Two marked places of each image (count, 2, 2), of both curves' ends (count, 2, 2, 2)."""
    ends = ends.reshape(len(labels), 4, 2)
    rows = np.arange(len(labels))
    chosen = 2 * chance.integers(0, 2, len(labels))
    together = np.stack([ends[rows, chosen], ends[rows, chosen + 1]], 1)
    own = np.linalg.norm((together[:, 0] - together[:, 1]).astype(np.float64), axis=-1)
    pairs = np.array([(0, 2), (0, 3), (1, 2), (1, 3)])
    between = ends[:, pairs[:, 0]] - ends[:, pairs[:, 1]]
    away = np.linalg.norm(between.astype(np.float64), axis=-1)
    nearest = pairs[np.abs(away - own[:, None]).argmin(1)]
    apart = np.stack([ends[rows, nearest[:, 0]], ends[rows, nearest[:, 1]]], 1)
    return np.where(labels[:, None, None] == 1, together, apart)


def _mark(pixels: NDArray[np.uint8], marks: Points) -> None:
    """A bright dot of 3 x 3 pixels at each marked place."""
    rows, side = np.arange(len(pixels))[:, None], pixels.shape[1]
    for down in range(-1, 2):
        for right in range(-1, 2):
            moved = (marks + np.array((down, right))).clip(0, side - 1)
            pixels[rows, moved[..., 0], moved[..., 1]] = MARK_LEVEL
