"""The fastest form for each share of changed answers, certified for all shares at once.

- Forms are put in order by their changes on the choosing examples, and equal ones by divergence.
  Candidates are those that are faster than all before them. For each epsilon they are those with at
  most that share of changes there.
- Each epsilon with a candidate, and with enough examples for a pass, gets an equal part of delta.
  Its candidates are tested in turn for a risk above epsilon, by the exact binomial p-value. The
  first one that is not rejected ends the sequence.
- If all candidates of an epsilon pass, its level is added to that of the next smaller one.
- A form that is certified for an epsilon is certified for all larger ones.

Source: Angelopoulos et al., "Learn then Test", 2021, arXiv 2110.01052 (fixed-sequence testing);
Laufer-Goldshtein et al., "Efficiently controlling multiple risks with Pareto testing", 2022, arXiv
2210.07913 (candidates and their order come from other examples); Bretz et al., "A graphical
approach to sequentially rejective multiple test procedures", 2009, Statistics in Medicine 28 (a
finished sequence passes its level on).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparing.core.errors import UsageError
from sparing.measure.calibration import binomial_p_value, examples_needed

EPSILONS = (0.01, 0.02, 0.03, 0.05, 0.08)


@dataclass(frozen=True)
class CertifiedPoint:
    """The forms that change at most a share ``epsilon`` of the answers of the reference.

    ``form`` is the fastest of ``forms``, all certified forms by their column, and ``speed`` its
    speed. Both are None if no form is certified. ``changed`` of ``examples`` calibration answers of
    ``form`` differ.
    """

    epsilon: float
    form: int | None
    speed: float | None
    changed: int | None
    examples: int
    forms: tuple[int, ...]


def certified_frontier(
    losses: NDArray[Any],
    speeds: NDArray[Any],
    choosing_losses: NDArray[Any],
    divergences: NDArray[Any],
    epsilons: Sequence[float] = EPSILONS,
    delta: float = 0.05,
) -> list[CertifiedPoint]:
    """For each epsilon the fastest form with at most that share of changed answers.

    The promise is simultaneous: with confidence 1 - ``delta`` every point is true, each of its
    ``forms`` included. So a user may look at the whole frontier and take any point.

    ``losses`` (examples, forms) is 1 where a form answers a calibration example otherwise than the
    reference, else 0. ``choosing_losses`` is the same for examples to choose on. ``speeds`` (forms)
    and ``divergences`` (forms), how far the answers to the choosing examples are from the
    reference's, must not come from the calibration examples. These must be independent samples of
    the examples in use; no training and no choice may have seen them. The reference needs no
    certificate, so leave it out: a point without a form means to keep it.

    Returns one point for each epsilon, the smallest first. Raises ``UsageError`` for tables of
    other shapes or values, speeds that are not positive, divergences that are not finite, epsilons
    or delta outside (0, 1), and duplicate epsilons.
    """
    table, choosing = _tables(losses, choosing_losses)
    speed, divergence = _numbers(speeds, divergences, table.shape[1])
    ordered = _ordered(epsilons)
    order = candidates(choosing, divergence, speed)
    passed = _passed(table, order, choosing.mean(axis=0), ordered, delta)
    points: list[CertifiedPoint] = []
    certified: set[int] = set()
    for epsilon in ordered:
        certified.update(passed.get(epsilon, ()))
        points.append(_point(epsilon, certified, speed, table))
    return points


def candidates(
    choosing_losses: NDArray[np.float64],
    divergences: NDArray[np.float64],
    speeds: NDArray[np.float64],
) -> list[int]:
    """The forms in the order of their tests, each faster than all before it.

    A few hundred examples often give the fastest and the safest form equally many changes. If the
    fastest alone were tested, its failure would end the sequence. So equal ones go by divergence.
    """
    order = np.lexsort((-speeds, divergences, choosing_losses.sum(axis=0)))
    front: list[int] = []
    for form in order.tolist():
        if not front or speeds[form] > speeds[front[-1]]:
            front.append(form)
    return front


def _passed(
    losses: NDArray[np.float64],
    order: Sequence[int],
    shares: NDArray[np.float64],
    epsilons: Sequence[float],
    delta: float,
) -> dict[float, list[int]]:
    """The forms that pass at each epsilon, those of smaller ones not included."""
    examples, changed = len(losses), losses.sum(axis=0)
    needed = {epsilon: examples_needed(epsilon, delta) for epsilon in epsilons}
    sequences = {epsilon: [j for j in order if shares[j] <= epsilon] for epsilon in epsilons}
    tested = [e for e in epsilons if sequences[e] and examples >= needed[e]]
    passed: dict[float, list[int]] = {}
    level = 0.0
    for epsilon in reversed(tested):
        level += delta / len(tested)
        passed[epsilon] = []
        for form in sequences[epsilon]:
            if binomial_p_value(float(changed[form]), examples, epsilon) > level:
                break
            passed[epsilon].append(form)
        if len(passed[epsilon]) < len(sequences[epsilon]):
            level = 0.0
    return passed


def _point(
    epsilon: float, certified: set[int], speeds: NDArray[np.float64], losses: NDArray[np.float64]
) -> CertifiedPoint:
    examples, changed = len(losses), losses.sum(axis=0)
    if not certified:
        return CertifiedPoint(epsilon, None, None, None, examples, ())
    form = max(certified, key=lambda column: (speeds[column], -changed[column], -column))
    forms = tuple(sorted(certified))
    return CertifiedPoint(epsilon, form, float(speeds[form]), int(changed[form]), examples, forms)


def _ordered(epsilons: Sequence[float]) -> list[float]:
    ordered = sorted(float(epsilon) for epsilon in epsilons)
    if not ordered or len(set(ordered)) < len(ordered):
        raise UsageError(f"epsilons must be different shares, at least one; got {epsilons}")
    return ordered


def _tables(
    losses: NDArray[Any], choosing_losses: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both tables as float64; ``UsageError`` for other shapes or values."""
    tables = []
    for name, given in (("losses", losses), ("choosing_losses", choosing_losses)):
        table = np.asarray(given, dtype=np.float64)
        if table.ndim != 2 or not table.size:
            raise UsageError(f"{name} must be (examples, forms), not empty; got {table.shape}")
        if not ((table == 0) | (table == 1)).all():
            raise UsageError(f"{name} must be 0 or 1: 1 where the answer is changed")
        tables.append(table)
    shapes = tables[0].shape, tables[1].shape
    if shapes[0][1] != shapes[1][1]:
        raise UsageError(
            f"losses {shapes[0]} and choosing_losses {shapes[1]} must be of the same forms"
        )
    return tables[0], tables[1]


def _numbers(
    speeds: NDArray[Any], divergences: NDArray[Any], forms: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both as float64, a number for each form; ``UsageError`` for other shapes or values."""
    speed = np.asarray(speeds, dtype=np.float64)
    divergence = np.asarray(divergences, dtype=np.float64)
    for name, given in (("speeds", speed), ("divergences", divergence)):
        if given.shape != (forms,):
            raise UsageError(f"{name} must be one number for each of {forms} forms: {given.shape}")
    if not (np.isfinite(speed) & (speed > 0)).all():
        raise UsageError(f"speeds must be positive and finite; got {speed.tolist()}")
    if not np.isfinite(divergence).all():
        raise UsageError(f"divergences must be finite; got {divergence.tolist()}")
    return speed, divergence
