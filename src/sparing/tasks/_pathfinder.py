"""Dashed curves among distractors, drawn for many images at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.int64]
Grid = NDArray[np.bool_]
# Along a curve, in pixels of a 32 x 32 image: a dash, a gap, and how far a step may turn.
DASH, GAP, TURN = 3, 2, 0.35
# The first and the last dash of a curve that may be marked: a mark must not hide the whole of it.
END_DASH = 4
# Pixels between a curve and the image's edge; tries to place a curve, and rounds of so many
# images at least, fewer where the first ones give none.
MARGIN, TRIES, ROUNDS, HOPELESS, FEWEST = 2, 60, 60, 4, 50
# Between curves, and between both ends of a long one.
APART, LEAST_AWAY = 3, 6
# How much both kinds of marks may differ, as shares of the side: in their distance from each other,
# and in theirs from the middle. Then the pairs of an end of either curve.
DISTANCE_SHARE, PLACE_SHARE = 1 / 64, 1 / 16
PAIRS = np.array([(0, 2), (0, 3), (1, 2), (1, 3)])
DASH_LEVEL, MARK_LEVEL = 160, 255


@dataclass(frozen=True)
class Curves:
    """How curves are drawn: dashes of the two long ones, of distractors, and how many of those."""

    side: int
    dashes: int
    distractor_dashes: int
    distractors: int


@dataclass(frozen=True)
class _Choice:
    """Which ends may be marked: of one curve (count, 2, 2), and of both; and whether they may."""

    together: Points
    apart: Points
    alike: NDArray[np.bool_]


def draw_images(
    chance: np.random.Generator, labels: NDArray[np.int64], curves: Curves
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Images (count, side, side) with two marked ends each, and the distance between the marks.

    Where the label is 1 the marks stand at both ends of one long curve; else at one end of each of
    two. An image is kept only where both could be marked, about equally far apart and as far out:
    what is drawn does not depend on the label, and where the marks are tells little of it.
    """
    count, found = len(labels), list[tuple[Grid, Points]]()
    for _ in range(ROUNDS):
        found.append(_draw(chance, max(count, FEWEST), curves))
        kept = sum(len(ends) for _, ends in found)
        if kept >= count or (not kept and len(found) == HOPELESS):
            break
    image = np.concatenate([each for each, _ in found])[:count]
    ends = np.concatenate([each for _, each in found])[:count]
    if len(image) < count:
        points = curves.dashes * (DASH + GAP) - GAP
        raise ValueError(
            f"no room for two curves of {points} pixels in {curves.side} x {curves.side}"
        )
    choice = _choose(ends, curves.side)
    marks = np.where(labels[:, None, None] == 1, choice.together, choice.apart)
    pixels = np.where(image, DASH_LEVEL, 0).astype(np.uint8)
    _mark(pixels, marks)
    return pixels, _length(marks[:, 0] - marks[:, 1])


def _draw(chance: np.random.Generator, count: int, curves: Curves) -> tuple[Grid, Points]:
    """At most so many images of curves, and the ends of the long ones (count, 2, 2, 2)."""
    side, good = curves.side, np.ones(count, dtype=bool)
    taken = np.zeros((count, side, side), dtype=bool)
    image = np.zeros((count, side, side), dtype=bool)
    ends = np.zeros((count, 2, 2, 2), dtype=np.int64)
    for number in range(2):
        paths, placed = _place(chance, taken, image, curves.dashes, END_DASH)
        ends[:, number] = paths[:, [0, -1]]
        long = np.abs(paths[:, 0] - paths[:, -1]).max(-1) >= LEAST_AWAY
        good &= placed & long
    good &= _choose(ends, side).alike
    taken, image, ends = taken[good], image[good], ends[good]
    for _ in range(curves.distractors):
        _place(chance, taken, image, curves.distractor_dashes, DASH)
    return image, ends


def _place(
    chance: np.random.Generator, taken: Grid, image: Grid, dashes: int, end_dash: int
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
        good = inside & free
        good[good] = ~_meets_itself(paths[good])
        where = missing[good]
        found[where], placed[where] = paths[good], True
        _take(taken, where, paths[good])
        _paint(image, where, paths[good], end_dash)
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
    meets = np.abs(np.arange(paths.shape[1])[:, None] - np.arange(paths.shape[1])) > 2 * DASH
    for axis in np.moveaxis(paths.astype(np.int16), -1, 0):
        meets = meets & (np.abs(axis[:, :, None] - axis[:, None]) <= 2)
    return np.asarray(meets.any((1, 2)))


def _take(taken: Grid, where: NDArray[np.int64], paths: Points) -> None:
    """Nothing else may come within three pixels: farther away than the next dash."""
    side, reach = taken.shape[1], np.arange(-APART, APART + 1)
    rows = (paths[..., 0, None] + reach).clip(0, side - 1)[..., None]
    columns = (paths[..., 1, None] + reach).clip(0, side - 1)[..., None, :]
    taken[where[:, None, None, None], rows, columns] = True


def _paint(image: Grid, where: NDArray[np.int64], paths: Points, end_dash: int) -> None:
    """The dashes, without the gaps."""
    drawn = np.arange(paths.shape[1]) % (DASH + GAP) < DASH
    drawn[:end_dash] = drawn[-end_dash:] = True
    dashes = paths[:, drawn]
    image[where[:, None], dashes[..., 0], dashes[..., 1]] = True


def _choose(ends: Points, side: int) -> _Choice:
    """Of both curves and the four pairs of their ends (count, 2, 2, 2), those most alike.

    They are chosen without a look at the label, so that the choice says nothing about it.
    """
    rows, four = np.arange(len(ends)), ends.reshape(len(ends), 4, 2)
    own, own_out = _described(ends[:, :, 0], ends[:, :, 1], side)
    between, out = _described(four[:, PAIRS[:, 0]], four[:, PAIRS[:, 1]], side)
    unlike = np.maximum(
        np.abs(own[:, :, None] - between[:, None]) / (DISTANCE_SHARE * side),
        np.abs(own_out[:, :, None] - out[:, None]).max(-1) / (PLACE_SHARE * side),
    ).reshape(len(ends), -1)
    curve, pair = np.divmod(unlike.argmin(1), len(PAIRS))
    return _Choice(ends[rows, curve], four[rows[:, None], PAIRS[pair]], unlike.min(1) <= 1)


def _described(
    one: Points, other: Points, side: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far two places are from each other, and from the middle, the nearer one first."""
    out = [np.abs(place - (side - 1) / 2).max(-1) for place in (one, other)]
    return _length(one - other), np.sort(np.stack(out, -1), -1)


def _length(steps: Points) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(steps.astype(np.float64), axis=-1))


def _mark(pixels: NDArray[np.uint8], marks: Points) -> None:
    """A bright dot of 3 x 3 pixels at each marked place."""
    rows, side = np.arange(len(pixels))[:, None], pixels.shape[1]
    for down in range(-1, 2):
        for right in range(-1, 2):
            moved = (marks + np.array((down, right))).clip(0, side - 1)
            pixels[rows, moved[..., 0], moved[..., 1]] = MARK_LEVEL
