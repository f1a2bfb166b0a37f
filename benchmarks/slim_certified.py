"""How to certify a frontier of forms: procedures compared on the runs of slim before December 2026.

    python benchmarks/slim_certified.py benchmarks/results/slim-before-2026-12

Nothing is run. A run's forms are slim, slim in INT8, the static pruned model, dense in INT8, and
cascades. In a cascade one of these answers if its largest probability reaches a threshold, else
dense does, in float32 or INT8. The speed of a cascade is computed from those of both forms.

The test rows are the population: rows to choose on and rows to calibrate on are sampled from them
with replacement. So the true share of changed answers of each form is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from slim_rules import DENSE, DENSE_INT8, INT8, OURS, STATIC, SlimRun, runs_of
from sparing.report.markdown import plain_table
from sparing.slim.evidence.certified import EPSILONS, candidates, certified_frontier

Array = NDArray[np.float64]
Forms = list[set[int]]
THRESHOLDS = (0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
DELTA, DRAWS = 0.05, 20
SIZES = ((500, 300), (1000, 1000))
HEADS = (
    *("procedure", "rows", "false frontiers", *(f"{100 * e:g} %" for e in EPSILONS)),
    "mean speed",
)
POOL_HEADS = ("candidates", *HEADS[3:])


def forms_of(run: SlimRun) -> tuple[Array, Array, list[str]]:
    """Changed answers (rows, forms), the speed and the name of each form."""
    dense = run.answers[DENSE].argmax(1)
    speeds = {name: run.speed(name) for name in run.rows} | {DENSE: 1.0}
    names = list(run.rows)
    changed = [_answers(run, name) != dense for name in names]
    factors = [speeds[name] for name in names]
    for first, second in cascades(run.rows):
        sure = _largest_probability(run.answers[first])
        for threshold in THRESHOLDS:
            passed_on = sure < threshold
            answers = np.where(passed_on, _answers(run, second), _answers(run, first))
            changed.append(answers != dense)
            factors.append(1 / (1 / speeds[first] + float(passed_on.mean()) / speeds[second]))
            names.append(f"{first} to {second}")
    return np.array(changed, dtype=np.float64).T, np.array(factors), names


def cascades(forms: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of a form that answers first and the dense one that takes what it is unsure of."""
    firsts = [name for name in (OURS, INT8, STATIC, DENSE_INT8) if name in forms]
    return [(first, dense) for first in firsts for dense in (DENSE, DENSE_INT8) if dense != first]


def _answers(run: SlimRun, form: str) -> NDArray[Any]:
    answers: NDArray[Any] = run.answers[form].argmax(1)
    return answers


def _largest_probability(logits: NDArray[Any]) -> Array:
    wide = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    share: Array = (wide / wide.sum(1, keepdims=True)).max(1)
    return share


def sequence(
    order: Callable[[Array, Array], Sequence[int]], delta: float
) -> Callable[[Array, Array, Array], Forms]:
    """Forms tested one after the other, at ``delta`` for each epsilon."""

    def certify(losses: Array, speeds: Array, choosing: Array) -> Forms:
        forms: Forms = []
        ordered = order(choosing, speeds)
        for values in p_values(losses):
            failed = [n for n, form in enumerate(ordered) if values[form] > delta]
            forms.append(set(ordered[: min(failed, default=len(ordered))]))
        return forms

    return certify


def p_values(losses: Array) -> Array:
    """Exact p-values (epsilons, forms) for a larger risk than each epsilon."""
    totals = losses.sum(0)[None]
    values: Array = stats.binom.cdf(totals, len(losses), np.array(EPSILONS)[:, None])
    return values


def bonferroni(losses: Array, speeds: Array, choosing: Array) -> Forms:
    """Every form at delta over their number: one bound for each form holds for all epsilons."""
    return [set(np.flatnonzero(v <= DELTA / len(speeds)).tolist()) for v in p_values(losses)]


def holm(losses: Array, speeds: Array, choosing: Array) -> Forms:
    """Holm's steps over all pairs of form and epsilon."""
    values = p_values(losses)
    forms: Forms = [set() for _ in EPSILONS]
    order = np.argsort(values, axis=None, kind="stable")
    for step, flat in enumerate(order.tolist()):
        epsilon, form = divmod(flat, len(speeds))
        if values[epsilon, form] > DELTA / (values.size - step):
            break
        forms[epsilon].add(form)
    return forms


def ours(losses: Array, speeds: Array, choosing: Array) -> Forms:
    """The library's procedure."""
    points = certified_frontier(losses, speeds, choosing, EPSILONS, DELTA)
    return [set(point.forms) for point in points]


def by_agreement(choosing: Array, speeds: Array) -> list[int]:
    """All forms, the fewest changes first."""
    return [int(form) for form in np.lexsort((-speeds, choosing.mean(0)))]


def by_speed(choosing: Array, speeds: Array) -> list[int]:
    """All forms, the slowest first."""
    return [int(form) for form in np.argsort(speeds, kind="stable")]


PART = DELTA / len(EPSILONS)
OURS_NAME = "certified_frontier"
POOLS: dict[str, Callable[[str], bool]] = {
    "dense INT8": lambda name: name == DENSE_INT8,
    "dense INT8, and passing on to float32": lambda name: name.startswith(DENSE_INT8),
    "slim, static and dense INT8": lambda name: " to " not in name,
    "these, and passing on to dense": lambda name: True,
}
PROCEDURES: dict[str, Callable[[Array, Array, Array], Forms]] = {
    OURS_NAME: ours,
    "sequence by agreement, delta / 5": sequence(by_agreement, PART),
    "sequence of candidates, delta / 5": sequence(candidates, PART),
    "sequence by speed, delta / 5": sequence(by_speed, PART),
    "Bonferroni over forms": bonferroni,
    "Holm over forms and points": holm,
    "sequence of candidates, delta (each point alone)": sequence(candidates, DELTA),
}


def simulated(
    losses: Array,
    speeds: Array,
    rows: tuple[int, int],
    draws: int = DRAWS,
    procedures: Iterable[str] = (),
) -> dict[str, Array]:
    """By procedure and draw: whether a point is false, then the logarithm of each point's speed."""
    risks = losses.mean(0)
    outcomes: dict[str, list[list[float]]] = {name: [] for name in procedures or PROCEDURES}
    for seed in range(draws):
        generator = np.random.default_rng(seed)
        choosing, held = (losses[generator.integers(0, len(losses), count)] for count in rows)
        for name in outcomes:
            forms = PROCEDURES[name](held, speeds, choosing)
            pairs = list(zip(EPSILONS, forms, strict=True))
            false = any(risks[form] > epsilon for epsilon, certified in pairs for form in certified)
            best = [max([1.0, *(speeds[form] for form in certified)]) for certified in forms]
            outcomes[name].append([float(false), *np.log(best)])
    return {name: np.array(listed) for name, listed in outcomes.items()}


def certified_table(runs: Sequence[SlimRun], draws: int = DRAWS) -> str:
    """False frontiers and the speed that each procedure reaches at each share of changes."""
    tables = [forms_of(run) for run in runs if run.answers]
    lines = []
    for rows in SIZES:
        outcomes = [simulated(losses, speeds, rows, draws) for losses, speeds, _ in tables]
        for name in PROCEDURES:
            means = np.concatenate([outcome[name] for outcome in outcomes]).mean(0)
            speeds = [f"{speed:.2f}" for speed in np.exp([*means[1:], means[1:].mean()])]
            false = f"{100 * means[0]:.1f} %"
            lines.append((name, f"{rows[0]:,} and {rows[1]:,}", false, *speeds))
    return plain_table(HEADS, lines)


def pools_table(runs: Sequence[SlimRun], draws: int = DRAWS) -> str:
    """The speed that ``certified_frontier`` reaches with some of the forms as candidates."""
    tables = [forms_of(run) for run in runs if run.answers]
    lines = []
    for pool, has in POOLS.items():
        chosen = [[has(name) for name in names] for _, _, names in tables]
        reached = [
            simulated(losses[:, keep], speeds[keep], SIZES[-1], draws, (OURS_NAME,))[OURS_NAME]
            for (losses, speeds, _), keep in zip(tables, chosen, strict=True)
        ]
        logs = np.concatenate(reached).mean(0)[1:]
        lines.append((pool, *(f"{speed:.2f}" for speed in np.exp([*logs, logs.mean()]))))
    return plain_table(POOL_HEADS, lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="the folder that holds the runs")
    runs = runs_of(parser.parse_args().records)
    print(f"{certified_table(runs)}\n\n{pools_table(runs)}")


if __name__ == "__main__":
    main()
