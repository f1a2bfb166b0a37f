"""Dashed curves among distractors, generated for many images at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.int64]
Grid = NDArray[np.bool_]
Numbers = NDArray[np.float64]
# How far a step along a curve may turn. The bend drifts along the curve (its deviation, and after
# how many steps it is mostly forgotten), and each step adds independent noise. With one constant
# bend, the distance of a curve's ends would reveal its direction there.
TURN, BEND, FORGOTTEN, CHANCE = 0.5, 0.18, 8, 0.12
# Dashes of the ends of a curve that may be marked: a mark must not hide the whole dash.
END_DASH = 4
# Pixels between a curve and the image's edge; tries to place a curve; the least curves in a round.
# Then the rounds without an image before giving up, and partners that each curve is tried with.
MARGIN, TRIES, ROUNDS, HOPELESS, FEWEST, PARTNERS = 2, 60, 400, 2, 400, 200
# Between both ends of a long curve.
LEAST_AWAY = 6
# How much both kinds of marks may differ: in the distance from each other and from the middle, as
# shares of the side. Also in the angles at which curves leave them, seen from the line between
# them. Then the pairs of an end of either curve.
DISTANCE_SHARE, PLACE_SHARE, ANGLE = 1 / 64, 1 / 16, 0.3
PAIRS = np.array([(0, 2), (0, 3), (1, 2), (1, 3)])
DASH_LEVEL, MARK_LEVEL = 160, 255


@dataclass(frozen=True)
class Curves:
    """The parameters of curves: dashes of the two long ones and of distractors, and their number.

    ``dash`` and ``gap`` are pixels along a curve. Curves keep ``apart``: farther from each other
    than from the next dash.
    """

    side: int
    dashes: int
    distractor_dashes: int
    distractors: int
    dash: int = 3
    gap: int = 2

    @property
    def apart(self) -> int:
        """The least distance of other curves to a curve, in pixels."""
        return self.gap + 1

    def points(self, dashes: int) -> int:
        """Pixels along a curve of ``dashes`` dashes."""
        return dashes * (self.dash + self.gap) - self.gap


@dataclass(frozen=True)
class _Choice:
    """The ends to mark: of one curve (count, 2, 2), or of both; and whether they may be marked."""

    together: Points
    apart: Points
    alike: Grid


def draw_images(
    chance: np.random.Generator, labels: NDArray[np.int64], curves: Curves
) -> tuple[NDArray[np.uint8], Numbers]:
    """Images (count, side, side) with two marked ends each, and the distance between the marks.

    Where the label is 1 the marks are at both ends of one long curve; else at one end of each of
    two. The curves of an image allow both kinds of marks: about equally far from each other and
    from the middle, with the curves leaving them at like angles. So the picture does not depend on
    the label, and the surroundings of the marks reveal little of it.
    """
    count, batches = len(labels), list[tuple[Grid, Points, Points]]()
    for _ in range(ROUNDS):
        batches.append(_draw(chance, max(count, FEWEST), curves))
        total = sum(len(image) for image, *_ in batches)
        if total >= count or (not total and len(batches) == HOPELESS):
            break
    image, together, apart = (np.concatenate(parts)[:count] for parts in zip(*batches, strict=True))
    if len(image) < count:
        raise ValueError(
            f"no room for two curves of {curves.points(curves.dashes)} pixels in "
            f"{curves.side} x {curves.side}"
        )
    marks = np.where(labels[:, None, None] == 1, together, apart)
    pixels = np.where(image, DASH_LEVEL, 0).astype(np.uint8)
    _mark(pixels, marks)
    return pixels, _length(marks[:, 0] - marks[:, 1])


def _draw(chance: np.random.Generator, count: int, curves: Curves) -> tuple[Grid, Points, Points]:
    """At most ``count`` images of curves, and the positions to mark (count, 2, 2) by label."""
    one = _long(chance, count, curves)
    paths, together, apart = _paired(one, _long(chance, count, curves) if len(one) else one, curves)
    taken = np.zeros((len(paths), curves.side, curves.side), dtype=bool)
    image, every = np.zeros_like(taken), np.arange(len(paths))
    for number in range(2):
        _take(taken, every, paths[:, number], curves)
        _paint(image, every, paths[:, number], curves, END_DASH)
    for _ in range(curves.distractors):
        _add_distractor(chance, taken, image, curves)
    return image, together, apart


def _long(chance: np.random.Generator, count: int, curves: Curves) -> Points:
    """At most ``count`` long curves (count, points, 2), each in an image of its own."""
    points, batches, total = curves.points(curves.dashes), list[Points](), 0
    for _ in range(TRIES):
        paths, good = _walk(chance, count, points, curves.side)
        good &= np.abs(paths[:, 0] - paths[:, -1]).max(-1) >= LEAST_AWAY
        good[good] = ~_meets_itself(paths[good], curves)
        batches.append(paths[good])
        total += int(good.sum())
        if total >= count:
            break
    return np.concatenate(batches)[:count]


def _paired(one: Points, other: Points, curves: Curves) -> tuple[Points, Points, Points]:
    """Pairs of curves (count, 2, points, 2) that do not touch, and the positions to mark.

    Positions are given for both labels. Each curve is in one pair at most. Trying many partners
    costs less than generating new curves.
    """
    size, inward = min(len(one), len(other)), min(END_DASH, one.shape[1]) - 1
    tips = [paths[:, [[0, inward], [-1, -1 - inward]]] for paths in (one, other)]
    missing, free = np.arange(size), np.ones(size, dtype=bool)
    taken = np.zeros((size, curves.side, curves.side), dtype=bool)
    _take(taken, missing, one[:size], curves)
    groups = [(missing[:0], missing[:0], *[np.zeros((0, 2, 2), dtype=np.int64)] * 2)]
    for shift in range(min(size, PARTNERS)):
        partner = (missing + shift) % size
        rows, columns = np.moveaxis(other[partner], -1, 0)
        clear = free[partner] & ~taken[missing[:, None], rows, columns].any(1)
        first, second = missing[clear], partner[clear]
        choice = _choose(np.stack([tips[0][first], tips[1][second]], 1), curves.side)
        first, second = first[choice.alike], second[choice.alike]
        groups.append((first, second, choice.together[choice.alike], choice.apart[choice.alike]))
        free[second] = False
        missing = np.setdiff1d(missing, first)
    first, second, together, apart = (np.concatenate(parts) for parts in zip(*groups, strict=True))
    return np.stack([one[first], other[second]], 1), together, apart


def _add_distractor(chance: np.random.Generator, taken: Grid, image: Grid, curves: Curves) -> None:
    """Draw one distractor into every image that has room for it."""
    count, side, _ = taken.shape
    missing = np.arange(count)
    for _ in range(TRIES):
        if not len(missing):
            break
        points = curves.points(curves.distractor_dashes)
        paths, good = _walk(chance, len(missing), points, side)
        clipped = paths.clip(0, side - 1)
        good &= ~taken[missing[:, None], clipped[..., 0], clipped[..., 1]].any(1)
        good[good] = ~_meets_itself(paths[good], curves)
        _take(taken, missing[good], paths[good], curves)
        _paint(image, missing[good], paths[good], curves, curves.dash)
        missing = missing[~good]


def _walk(chance: np.random.Generator, count: int, points: int, side: int) -> tuple[Points, Grid]:
    """Curves that turn a little at every step, anywhere in the image; and whether each fits."""
    turns = _bends(chance, count, points - 1) + chance.normal(0, CHANCE, (count, points - 1))
    angle = chance.uniform(0, 2 * np.pi, (count, 1)) + np.cumsum(turns.clip(-TURN, TURN), 1)
    steps = np.stack([np.cos(angle), np.sin(angle)], -1)
    path = np.concatenate([np.zeros((count, 1, 2)), np.cumsum(steps, 1)], 1)
    path -= path.min(1, keepdims=True)
    room = side - 1 - 2 * MARGIN - path.max(1)
    path += MARGIN + chance.uniform(0, 1, (count, 1, 2)) * room.clip(min=0)[:, None]
    return np.rint(path).astype(np.int64), (room >= 0).all(1)


def _bends(chance: np.random.Generator, count: int, steps: int) -> Numbers:
    """Bends that drift (count, steps): an autoregressive process of the first order."""
    share = np.exp(-1 / FORGOTTEN)
    bends = chance.normal(0, BEND, (count, steps))
    for step in range(1, steps):
        bends[:, step] = share * bends[:, step - 1] + np.sqrt(1 - share**2) * bends[:, step]
    return bends


def _meets_itself(paths: Points, curves: Curves) -> Grid:
    """Whether a curve comes near to a part of itself that is not adjacent."""
    places = np.arange(paths.shape[1])
    meets = np.abs(places[:, None] - places) > 2 * curves.dash
    for axis in np.moveaxis(paths.astype(np.int16), -1, 0):
        meets = meets & (np.abs(axis[:, :, None] - axis[:, None]) <= 2)
    return np.asarray(meets.any((1, 2)))


def _take(taken: Grid, where: NDArray[np.int64], paths: Points, curves: Curves) -> None:
    """Nothing else may come near."""
    side, reach = taken.shape[1], np.arange(-curves.apart, curves.apart + 1)
    rows = (paths[..., 0, None] + reach).clip(0, side - 1)[..., None]
    columns = (paths[..., 1, None] + reach).clip(0, side - 1)[..., None, :]
    taken[where[:, None, None, None], rows, columns] = True


def _paint(
    image: Grid, where: NDArray[np.int64], paths: Points, curves: Curves, end_dash: int
) -> None:
    """The dashes, without the gaps."""
    drawn = np.arange(paths.shape[1]) % (curves.dash + curves.gap) < curves.dash
    drawn[:end_dash] = drawn[-end_dash:] = True
    dashes = paths[:, drawn]
    image[where[:, None], dashes[..., 0], dashes[..., 1]] = True


def _choose(tips: Points, side: int) -> _Choice:
    """The pair of ends, out of the four pairs of two curves, that is most alike.

    ``tips`` are the ends (count, curve, end, 2, 2), each with a point a little farther in. The
    choice ignores the label, so it reveals nothing about it.
    """
    rows, four = np.arange(len(tips)), tips.reshape(len(tips), 4, 2, 2)
    ends = _described(tips[:, :, 0], tips[:, :, 1], side)
    pair = _described(four[:, PAIRS[:, 0]], four[:, PAIRS[:, 1]], side)
    (far, out, angles), (far_pair, out_pair, angles_pair) = ends, pair
    unlike = np.maximum.reduce(
        [
            np.abs(far[:, :, None] - far_pair[:, None]) / (DISTANCE_SHARE * side),
            np.abs(out[:, :, None] - out_pair[:, None]).max(-1) / (PLACE_SHARE * side),
            _turned(angles[:, :, None], angles_pair[:, None]) / ANGLE,
        ]
    ).reshape(len(tips), 2 * len(PAIRS))
    curve, number = np.divmod(unlike.argmin(1), len(PAIRS))
    places = four[:, :, 0]
    together, apart = tips[rows, curve, :, 0], places[rows[:, None], PAIRS[number]]
    return _Choice(together, apart, unlike.min(1) <= 1)


def _described(one: Points, other: Points, side: int) -> tuple[Numbers, Numbers, Numbers]:
    """The distance of two ends from each other, and from the middle, the nearer one first.

    Then the angle at which each curve leaves its end, seen from the line to the other end.
    """
    here, there = one[..., 0, :], other[..., 0, :]
    out = [np.abs(end - (side - 1) / 2).max(-1) for end in (here, there)]
    angles = []
    for tip, line in ((one, there - here), (other, here - there)):
        inward = tip[..., 1, :] - tip[..., 0, :]
        across = inward[..., 0] * line[..., 1] - inward[..., 1] * line[..., 0]
        angles.append(np.arctan2(across, (inward * line).sum(-1)))
    return _length(here - there), np.sort(np.stack(out, -1), -1), np.stack(angles, -1)


def _turned(angles: Numbers, pair: Numbers) -> Numbers:
    """The difference of two angles from two others, up to exchange of ends and mirroring."""
    ways = (pair, -pair, pair[..., ::-1], -pair[..., ::-1])
    differences = [np.abs((angles - way + np.pi) % (2 * np.pi) - np.pi).max(-1) for way in ways]
    return np.asarray(np.minimum.reduce(differences))


def _length(steps: Points) -> Numbers:
    return np.asarray(np.linalg.norm(steps.astype(np.float64), axis=-1))


def _mark(pixels: NDArray[np.uint8], marks: Points) -> None:
    """A bright dot of 3 x 3 pixels at each marked position."""
    rows, side = np.arange(len(pixels))[:, None], pixels.shape[1]
    for down in range(-1, 2):
        for right in range(-1, 2):
            moved = (marks + np.array((down, right))).clip(0, side - 1)
            pixels[rows, moved[..., 0], moved[..., 1]] = MARK_LEVEL
