"""Which plan slim should cut out: fine-tune others of a finished run too, and certify each.

    python benchmarks/slim_choice.py RUN [RUN ...] --plans 0.5x4,1x5 --rate 0.4 --output FILE

A plan is a width and a number of layers. Each is cut out of the run's model of all widths and
fine-tuned as slim does it; the one that the run chose is read back. The table has speeds over the
dense model in float32, with exits and the dense model at the end, for every share of changed
answers. One line is what slim expects before a plan is fine-tuned, the other one is certified
afterwards. Speeds are of FLOPs, those of a plan times ``--rate``: the time of the dense model in
INT8 over that in float32. Nothing is timed, so it may run beside other work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from slim_from_bert import steps_in
from sparing.core.errors import SparingError
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.layers.plan import Plan
from sparing.measure.calibration import most_changes
from sparing.report.markdown import plain_table
from sparing.slim.evidence.candidates import (
    OURS,
    Candidate,
    answers_at,
    candidates_of,
    losses,
    shares_to_try,
)
from sparing.slim.evidence.certified import EPSILONS, certified_frontier
from sparing.slim.search.divergence import divergence
from sparing.slim.search.exits import Outcomes, outcomes
from sparing.slim.search.expected import Rate, expected_cost, spent, ways_of, with_dense
from sparing.slim.search.fixed_width import train_at_width
from sparing.slim.search.frontier import Variant, points_of
from sparing.slim.state import Surveyed
from sparing.slim.steps import Steps
from sparing.transfer.opening import open_model

KEY = Candidate(OURS, "", "")
HEADS = ("run", "plan", "", *(f"at {100 * epsilon:g} %" for epsilon in EPSILONS))


def parsed(text: str) -> tuple[float, int]:
    """A width and a number of layers, as in ``0.5x4``."""
    try:
        width, layers = text.split("x")
        return float(width), int(layers)
    except ValueError:
        raise SystemExit(f"a plan is a width and layers, as in 0.5x4; got {text!r}") from None


def expected_speeds(steps: Steps, width: float, layers: int, rate: float) -> list[float | None]:
    """What slim expects of a plan that is not fine-tuned yet, for each epsilon."""
    model, reference, whole = steps.models.adaptive(), steps.dense_logits, steps.dense_flops
    variant = Variant(width)
    seen = outcomes(model, steps.task, steps.parts[0], variant.plan(model))
    count, delta = len(steps.parts[1]), steps.options.delta
    most = {epsilon: most_changes(count, epsilon, delta) / count for epsilon in EPSILONS}
    points = points_of(steps.task, variant, seen, (whole, reference), steps.answer)
    point = next(p for p in points if p.kind == "depth" and p.plan.layers == layers)
    ways = ways_of(seen, layers, (whole, reference), most)
    surveyed = Surveyed(point.plan, point.cost_share, 0.0, changed=point.changed, ways=ways)
    rates = [Rate(rate, 1.0)]
    costs = [expected_cost(surveyed, epsilon, most[epsilon], rates) for epsilon in EPSILONS]
    return [None if cost is None else 1 / cost for cost in costs]


def tuned_plan(steps: Steps, width: float, layers: int, precision: Any) -> Path:
    """The folder of a plan of the run that is cut out and fine-tuned, by ``train_at_width``."""
    model, chosen = steps.models.adaptive(), steps.state.chosen
    plan: Plan = Variant(width).plan(model).shortened(layers)
    if chosen is not None and chosen.plan == plan:
        return steps.models.folder / "models" / steps.state.folder
    stops = tuple(number for number in model.encoder.exits if number < layers)
    plan = replace(plan, exits=stops)
    recipe = steps.models.recipe
    models = replace(steps.models, recipe=replace(recipe, precision=precision or recipe.precision))
    folder = models.folder / "models" / f"choice-{width:g}x{layers}"
    train_at_width(models, model, plan, folder, models.fixed_width_epochs)
    return folder


def certified_speeds(steps: Steps, folder: Path, rate: float) -> list[float | None]:
    """The fastest way to serve a fine-tuned plan that is certified, for each epsilon."""
    model = open_model(str(folder))
    plan = Variant(1.0).plan(model)
    dense = (steps.dense_logits, steps.calibration_logits)
    seen = [outcomes(model, steps.task, part, plan) for part in steps.parts]
    both = [
        with_dense(one, plan.layers, reference) for one, reference in zip(seen, dense, strict=True)
    ]
    count, delta = len(steps.parts[1]), steps.options.delta
    shares = shares_to_try(count, EPSILONS, delta)
    candidates = candidates_of(KEY, both[0], dense[0], shares)
    choosing, calibration = (
        losses(candidates, {KEY: logits}, reference)
        for logits, reference in zip(both, dense, strict=True)
    )
    costs = [cost_of(one, seen[0], both[0], steps.dense_flops, rate) for one in candidates]
    divergences = np.array(
        [
            divergence(answers_at(both[0], one.threshold, cascade=one.cascade)[0], dense[0])
            for one in candidates
        ]
    )
    speeds = 1 / np.array(costs)
    points = certified_frontier(calibration, speeds, choosing, divergences, EPSILONS, delta)
    return [point.speed for point in points]


def cost_of(candidate: Candidate, seen: Outcomes, logits: Any, whole: float, rate: float) -> float:
    """The time of a candidate over that of the dense model in float32, by its FLOPs."""
    _, exits = answers_at(logits, candidate.threshold, cascade=candidate.cascade)
    flops, deferred = spent(seen, seen.plan.layers, exits)
    return rate * flops / whole + deferred


def measure(folder: Path, plans: Sequence[str], rate: float, precision: str) -> list[Any]:
    """A row for each plan of one run."""
    steps = steps_in(folder)
    rows = []
    for text, (width, layers) in zip(plans, map(parsed, plans), strict=True):
        tuned = tuned_plan(steps, width, layers, precision)
        expected = expected_speeds(steps, width, layers, rate)
        certified = certified_speeds(steps, tuned, rate)
        rows.append(
            {"run": folder.name, "plan": text, "expected": expected, "certified": certified}
        )
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Two lines for each plan of each run: expected, and certified."""
    lines = []
    for row in rows:
        for kind in ("expected", "certified"):
            speeds = ("none" if speed is None else f"{speed:.2f}" for speed in row[kind])
            lines.append((row["run"], row["plan"], kind, *speeds))
    return plain_table(HEADS, lines)


def main() -> None:
    """Fine-tune and certify the plans, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs of slim")
    parser.add_argument("--plans", default="0.5x4,1x5", help="widths and layers")
    parser.add_argument("--rate", type=float, default=0.4, help="time of INT8 over float32")
    parser.add_argument("--precision", default="", help="of the trainings; the run's by default")
    parser.add_argument("--output", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args()
    rows: list[Any] = []
    try:
        for folder in given.runs:
            rows += measure(folder, given.plans.split(","), given.rate, given.precision)
    except SparingError as error:
        raise SystemExit(str(error)) from error
    print(table(rows))
    if given.output is not None:
        names = [folder.name for folder in given.runs]
        facts = base_config("choice of a plan", {"runs": names, "rate": given.rate})
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
