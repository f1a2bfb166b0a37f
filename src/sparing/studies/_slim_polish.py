"""The chosen plan, trained on by itself: its widths are final, and no other need be served."""

from __future__ import annotations

import json
from dataclasses import replace

from sparing.core.record import Label, Record
from sparing.studies._exits import dense_flops, outcomes
from sparing.studies._frontier import Point, Variant, best, points_of
from sparing.studies._run import Run
from sparing.studies._slim_aware import train_slim
from sparing.studies._slim_cells import OURS, Steps, chosen_plan, chosen_share
from sparing.studies._slim_models import Telling

POLISHED = f"{OURS} polished"


def polish(steps: Steps, run: Run, tell: Telling) -> list[Record]:
    """Train the chosen plan on, survey what it has become, and set its threshold anew.

    The new threshold is the best one that takes no more arithmetic on the first half of the
    held-out inputs than the chosen plan did before.
    """
    models, plan = steps.models, chosen_plan(run)
    epochs, place = models.polish_epochs, models.polished_place
    result = train_slim(models, models.adaptive(), plan, place, epochs, tell, rounded=False)
    points = _points(steps, run)
    final = _within_cost(points, chosen_share(run))
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
    variant = Variant(1.0, plan.tokens_kept, plan.tokens_after)
    found = outcomes(model, steps.task, chosen_on, variant.plan(model))
    return points_of(steps.task, variant, found, whole)


def _within_cost(points: list[Point], share: float) -> Point:
    """The best that costs no more than a share of the dense model, but for rounding."""
    affordable = best([point for point in points if point.cost_share <= share * (1 + 1e-9)])
    return affordable[-1] if affordable else min(points, key=lambda point: point.cost_share)
