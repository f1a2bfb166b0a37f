"""Cut a plan out, fine-tune it at its width, and distil the static pruned model as a control."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.layers.plan import Plan
from sparing.slim.evidence.candidates import Candidate
from sparing.slim.evidence.certify import answers_of
from sparing.slim.models import FOLLOW, Models
from sparing.slim.search.choose import best_fixed
from sparing.slim.search.exits import decide, outcomes
from sparing.slim.search.frontier import Variant, best, points_of
from sparing.slim.state import Surveyed
from sparing.slim.steps import OURS, STATIC, Steps
from sparing.train import TrainResult, train
from sparing.train.elastic import Draw
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint
from sparing.transfer.dropout import drop_nothing
from sparing.transfer.freezing import freeze

FOLDER = "fixed-width"
# At 1 the exits would be cut off. Below it inputs would leave while it is validated, and the first
# exit's answers would choose the epoch.
ALMOST = math.nextafter(1.0, 0.0)


def train_at_width(
    models: Models, model: AdaptiveClassifier, plan: Plan, folder: Path, epochs: int
) -> TrainResult:
    """Freeze a plan of ``model``, so that its widths are final, and distil the rest.

    All its exits are trained, whatever its threshold, and the whole plan chooses the epoch;
    embeddings cost no FLOPs and are not trained. There is no dropout: the model is nearly trained,
    and there are few steps. A training in ``folder`` is continued, or read back if it has ended.
    """
    drop_nothing(model.config)
    plan = replace(plan, threshold=ALMOST) if plan.exits else plan
    frozen = freeze(model, plan)
    frozen.embeddings.requires_grad_(False)
    whole = Draw((1.0,), (1.0,), (plan.tokens_kept,), plan.tokens_after)
    recipe = replace(models.recipe, epochs=epochs, distillation=FOLLOW, patience=None)
    objective = models.objective(whole)
    return train(frozen, models.taught_on, recipe, output_dir=folder, objective=objective)


def fine_tune(steps: Steps) -> TrainResult:
    """Cut the chosen plan out with an exit after each layer that has a head, and fine-tune it.

    Its thresholds are chosen later, for every engine and precision by itself. Where inputs may not
    exit it has none.
    """
    models, plan = steps.models, _chosen(steps)
    model = models.adaptive()
    if steps.answer.exits:
        stops = tuple(number for number in model.encoder.exits if number < plan.layers)
        plan = replace(plan, exits=stops)
    folder = models.folder / "models" / FOLDER
    return train_at_width(models, model, plan, folder, models.fixed_width_epochs)


def _chosen(steps: Steps) -> Plan:
    chosen = steps.state.chosen
    if chosen is None:
        raise UsageError("no plan is chosen yet: an earlier step has failed")
    return chosen.plan


def keep_tuned(steps: Steps, result: TrainResult) -> list[Record]:
    """Keep the model that ``fine_tune`` trained, and the thresholds that nothing beats."""
    plan, tuned = _chosen(steps), steps.models.opened(FOLDER)
    variant = Variant(1.0, plan.tokens_kept, plan.tokens_after)
    seen = outcomes(tuned, steps.task, steps.parts[0], variant.plan(tuned))
    dense = steps.dense_flops, steps.dense_logits
    points = points_of(steps.task, variant, seen, dense, steps.answer)
    front = best([point for point in points if point.cost_share < 1])
    steps.keep(
        folder=FOLDER,
        thresholds=tuple(FrontierPoint(p.plan, p.cost_share, p.score) for p in front),
    )
    labels: dict[str, Label] = {"arm": f"{OURS} at fixed width"}
    return [
        Record("train_time_s", result.train_time_s, "s", "measured", labels),
        Record("train_examples", result.examples_seen, "examples", "measured", labels),
        *(replace(p.record(on_front=p in front), name="fixed_width_score") for p in points),
    ]


@dataclass(frozen=True, eq=False)
class Control:
    """The static pruned model: its plan, the share of FLOPs that it must equal, its training."""

    point: Surveyed
    share: float
    result: TrainResult


def train_static(steps: Steps) -> Control | None:
    """Where exits are served, distil the best plan without exits of equal FLOPs, as a control.

    It is trained alone, from the dense model, for as many steps as slim's two trainings together.
    """
    served = steps.served()
    if not served.exits:
        return None
    share = _mean_share(steps, served)
    point = best_fixed(steps.state.fixed, share)
    return Control(point, share, steps.models.train_static(point.plan, STATIC))


def static_records(steps: Steps, control: Control | None) -> list[Record]:
    """Keep the control, if there is one."""
    if control is None:
        return []
    point, share, result = control.point, control.share, control.result
    steps.keep(static=STATIC)
    plan: dict[str, Label] = {"arm": STATIC, "plan": json.dumps(point.plan.to_dict())}
    labels: dict[str, Label] = {"arm": STATIC}
    return [
        Record("static_plan", point.cost_share, "share", "modelled", {**plan, "against": share}),
        Record("train_time_s", result.train_time_s, "s", "measured", labels),
        Record("train_examples", result.examples_seen, "examples", "measured", labels),
    ]


def _mean_share(steps: Steps, served: Candidate) -> float:
    """The mean FLOPs of the served form on the choosing texts, as a share of the dense model's."""
    model = steps.model()
    plan = steps.plan()
    seen = outcomes(model, steps.task, steps.parts[0], plan)
    decision = decide(seen, served.threshold, min(plan.stops, default=1), plan.layers)
    share = float(decision.flops.mean()) / steps.dense_flops
    if not served.cascade:
        return share
    last = decision.layers == plan.layers
    on = last & (decision.logits.softmax(-1).amax(-1) <= served.threshold)
    share += float(on.double().mean())
    if served.second < 1:
        int8 = answers_of(steps, steps.forms, "choose")[served.between][:, 0]
        on &= int8.softmax(-1).amax(-1) <= served.second
        share += float(on.double().mean())
    return share
