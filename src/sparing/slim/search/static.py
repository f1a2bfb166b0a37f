"""The control that adapting must beat: a fixed plan of no more arithmetic, distilled alone."""

from __future__ import annotations

from sparing.core.errors import UsageError
from sparing.core.reading import parse_json
from sparing.core.record import Record
from sparing.experiment.run import Run
from sparing.layers.plan import Plan
from sparing.slim.cells import STATIC, Steps
from sparing.slim.search.frontier import NEAR


def train_static(steps: Steps, run: Run) -> list[Record]:
    """Distil one fixed plan by itself, with the same steps as the adaptive model.

    The plan is the best one without exits that was surveyed and takes no more arithmetic than ours
    was allowed: the adaptive model's own survey says what a fixed model should be.
    """
    served = next((r for r in run.records() if r.name == "polished_plan"), None)
    allowed = served.labels.get("allowed_share") if served else None
    record = fixed_plan(run, allowed if isinstance(allowed, float) else None)
    plan = Plan.from_dict(parse_json(str(record.labels["plan"])))
    result = steps.models.train_static(plan)
    labels = {"arm": STATIC, "plan": record.labels["plan"]}
    share = float(str(record.labels["cost_share"]))
    return [
        Record("static_plan", share, "share", "measured", labels),
        Record("train_time_s", result.train_time_s, "s", "measured", {"arm": STATIC}),
        Record("train_examples", result.examples_seen, "examples", "measured", {"arm": STATIC}),
    ]


def fixed_plan(run: Run, most: float | None = None) -> Record:
    """The best surveyed plan without exits that costs nearly ``most`` and no more.

    Where none is near, it is the best that costs no more, and where none is, the cheapest.
    Unless given, ``most`` is what the chosen plan costs. Raises ``UsageError`` where nothing was
    surveyed or chosen.
    """
    chosen = next((record for record in run.records() if record.name == "chosen_plan"), None)
    fixed = _fixed(run)
    if chosen is None or not fixed:
        raise UsageError("there is no chosen plan: an earlier step has failed")
    most = chosen.value or 0.0 if most is None else most
    affordable = [record for record in fixed if _cost(record) <= most]
    if not affordable:
        return min(fixed, key=_cost)
    near = [record for record in affordable if _cost(record) >= NEAR * most] or affordable
    return max(near, key=lambda record: (record.value or 0.0, -_cost(record)))


def exits_of(run: Run) -> list[int]:
    """The layers of the surveyed model that have an exit, the last one among them."""
    return sorted({int(str(record.labels["depth"])) for record in _fixed(run)})


def _fixed(run: Run) -> list[Record]:
    """The surveyed plans without exits."""
    return [
        record
        for record in run.records()
        if record.name == "frontier_score" and record.labels["kind"] == "depth"
    ]


def _cost(record: Record) -> float:
    return float(str(record.labels["cost_share"]))
