"""The chosen plan, trained on by itself: its widths are final, and no other need be served."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from sparing.core.record import Label, Record
from sparing.layers.plan import Plan
from sparing.studies._exits import dense_flops, outcomes
from sparing.studies._frontier import Point, Variant, best, points_of
from sparing.studies._run import Run
from sparing.studies._slim_aware import train_slim
from sparing.studies._slim_cells import OURS, Steps, chosen_plan, chosen_share
from sparing.studies._slim_models import SURE, Telling
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.confidence import fit_confidence
from sparing.transfer.opening import open_model

POLISHED = f"{OURS} polished"


def polish(steps: Steps, run: Run, tell: Telling, *, learned: bool = False) -> list[Record]:
    """Train the chosen plan on, survey what it has become, and set its threshold anew.

    The new threshold is the most cautious one that takes no more arithmetic on the first half of
    the held-out inputs than the chosen plan did before: few inputs cannot tell which of two is
    better, and what costs more is not the worse. ``learned`` fits confidence heads too; of both
    kinds the one with the better score is taken.
    """
    models, plan = steps.models, chosen_plan(run)
    epochs, place = models.polish_epochs, models.polished_place
    rate = models.recipe.learning_rate
    result = train_slim(models, models.adaptive(), plan, place, epochs, tell, rate, rounded=False)
    if learned and plan.stops:
        _fit(steps, place / SURE)
    points = _points(steps, run)
    final = most_cautious(points, plan, chosen_share(run))
    front = best([point for point in points if point.cost_share < 1])
    labels: dict[str, Label] = {
        "plan": json.dumps(final.plan.to_dict()),
        "cost_share": final.cost_share,
        "score": final.score,
    }
    return [
        Record("train_time_s", result.train_time_s, "s", "measured", {"arm": POLISHED}),
        Record("train_examples", result.examples_seen, "examples", "measured", {"arm": POLISHED}),
        *(replace(p.record(on_front=p in front), name="polished_score") for p in points),
        Record("polished_plan", final.cost_share, "share", "measured", labels),
    ]


def _points(steps: Steps, run: Run) -> list[Point]:
    """Every depth and threshold of the polished model; costs are shares of the dense model's."""
    chosen_on, plan = steps.parts[0], chosen_plan(run)
    whole = float(dense_flops(steps.models.adaptive(), chosen_on).mean())
    model = steps.models.served()
    kinds = ("softmax", "learned") if model.encoder.confidences else ("softmax",)
    points: list[Point] = []
    for kind in kinds:
        variant = Variant(1.0, plan.tokens_kept, plan.tokens_after, confidence=kind)
        found = outcomes(model, steps.task, chosen_on, variant.plan(model))
        points += points_of(steps.task, variant, found, whole)
    return points


def _fit(steps: Steps, place: Path) -> None:
    """Save the polished model with confidence heads; the folder appears whole or not at all."""
    model = open_model(str(place.parent))
    assert isinstance(model, AdaptiveClassifier)
    fit_confidence(model, steps.task, seed=steps.models.seed)
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    try:
        model.save_pretrained(beside)
        beside.rename(place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def most_cautious(points: list[Point], plan: Plan, share: float) -> Point:
    """The dearest of a plan's thresholds that costs no more than a share, but for rounding.

    Of each kind of confidence there is one; the better is taken. Where none is so cheap, the
    cheapest.
    """
    same = [p for p in points if (p.plan.layers, p.plan.stops) == (plan.layers, plan.stops)]
    dearest: dict[str, Point] = {}
    for point in sorted(same, key=lambda each: each.cost_share):
        if point.cost_share <= share * (1 + 1e-9):
            dearest[point.plan.confidence] = point
    if not dearest:
        return min(same, key=lambda point: point.cost_share)
    return max(dearest.values(), key=lambda point: point.score)
