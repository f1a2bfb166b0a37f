"""Fine-tune plans at fixed width, one after the other, until one is good enough."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.core.scratch import scratch_beside
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import Plan
from sparing.slim.fixed_width import train_slim
from sparing.slim.models import SURE
from sparing.slim.search.choose import best_fixed
from sparing.slim.search.exits import Outcomes, outcomes
from sparing.slim.search.frontier import Point, Variant, best, decided, points_of
from sparing.slim.state import ALONE, CHOSEN, FALLBACK, SHALLOW, Form, State, served, write_state
from sparing.slim.steps import OURS, Steps
from sparing.transfer.adaptive import AdaptiveClassifier, FrontierPoint
from sparing.transfer.confidence import fit_confidence
from sparing.transfer.opening import open_model

# The name of plans fine-tuned at fixed width, in variants and folders.
FIXED_WIDTH = "fixed-width"
# The share of answers that an earlier exit may change, against exits as late as affordable.
CHANGED = 0.01
# A fixed plan may cost so much more than the limit, as its exits reduce the cost.
EXITS_SAVE = 1.1


@dataclass(frozen=True)
class Attempt:
    """A plan to train, its limit as a share of the dense FLOPs, and its kind (see ``Form``)."""

    plan: Plan
    share: float
    kind: str


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of an attempt: a form, all points of its thresholds, and the training cost."""

    form: Form
    points: list[Point]
    train_time_s: float
    examples: int


def attempts(state: State) -> list[Attempt]:
    """The plans to train, in order, until one is good enough.

    First a shallow plan: the best fixed one of about the chosen plan's FLOPs, with every exit
    before its end. Fine-tuned alone, its last layer may be as accurate as the whole model, and most
    inputs exit earlier. Then the chosen plan. Last the fallback, if the chosen plan was fast but
    did not keep the floor: it kept the floor before fine-tuning.
    """
    chosen = state.chosen
    if chosen is None:
        raise UsageError("no plan is chosen yet: an earlier step has failed")
    share = chosen.cost_share
    tries = [Attempt(chosen.plan, share, CHOSEN)]
    fixed = best_fixed(state, EXITS_SAVE * share).plan
    depths = sorted({point.plan.layers for point in state.fixed})
    exits = tuple(depth for depth in depths if depth < fixed.layers)
    if exits and chosen.plan.stops and fixed.layers < chosen.plan.layers:
        shallow = replace(fixed, exits=exits, threshold=chosen.plan.threshold)
        tries.insert(0, Attempt(shallow, share, SHALLOW))
    if state.fallback is not None:
        tries.append(Attempt(state.fallback.plan, state.fallback.cost_share, FALLBACK))
    return tries


def fine_tune(steps: Steps) -> list[Record]:
    """Fine-tune plans one by one until one is good enough, and set its threshold anew.

    With ``learned_confidence`` confidence heads are fitted too, and the better kind is taken. With
    ``static_control`` the static pruned model is a candidate too, tried before a plan that is not
    fast. ``served`` decides between the candidates.
    """
    tried, alone = _tried(steps)
    state = replace(
        steps.state,
        fine_tuned=tuple(trained.form for trained in tried),
        alone=tuple(trained.form for trained in alone),
        threshold=None,
    )
    last = next(trained for trained in (*tried, *alone) if trained.form is served(state))
    front = best([point for point in last.points if point.cost_share < 1])
    thresholds = tuple(FrontierPoint(p.plan, p.cost_share, p.score) for p in front)
    write_state(steps.models.folder, replace(state, thresholds=thresholds))
    return [
        *(record for trained in tried for record in _records(trained)),
        *(_plan_record("attempted_plan", trained.form) for trained in alone),
        *(replace(p.record(on_front=p in front), name="fixed_width_score") for p in last.points),
        _plan_record("fixed_width_plan", last.form),
    ]


def _tried(steps: Steps) -> tuple[list[Trained], list[Trained]]:
    """The plans fine-tuned up to the first good one, and the fixed ones distilled alone."""
    tried: list[Trained] = []
    alone: list[Trained] = []
    control = steps.options.static_control
    for attempt in attempts(steps.state):
        if control and attempt.kind == FALLBACK:
            alone.append(_alone(steps, tried[-1].form.allowed_share, len(alone)))
            if alone[-1].form.good:
                return tried, alone
        tried.append(_trained(steps, attempt, _numbered(FIXED_WIDTH, len(tried))))
        if tried[-1].form.good:
            break
    if control:
        alone.append(_alone(steps, tried[-1].form.allowed_share, len(alone)))
    return tried, alone


def _numbered(name: str, before: int) -> str:
    """The folder of a training of this kind, after so many others."""
    return f"{name}-{before + 1}" if before else name


def _alone(steps: Steps, share: float, before: int) -> Trained:
    """The best fixed plan of at most this share, distilled alone."""
    plan, folder = best_fixed(steps.state, share).plan, _numbered("static", before)
    result = steps.models.train_static(plan, folder)
    model = steps.models.opened(folder)
    variant = Variant(1.0, plan.tokens_kept, plan.tokens_after)
    seen = outcomes(model, steps.task, steps.parts[0], variant.plan(model))
    points = points_of(steps.task, variant, seen, steps.dense_flops)
    final = max(points, key=lambda point: point.plan.layers)
    form = _form(steps, Attempt(plan, share, ALONE), folder, final, seen)
    return Trained(form, points, result.train_time_s, result.examples_seen)


def _trained(steps: Steps, attempt: Attempt, folder: str) -> Trained:
    """Fine-tune one plan at fixed width, survey it again, and choose its threshold."""
    models, plan = steps.models, attempt.plan
    path = models.folder / "models" / folder
    epochs, rate = models.fixed_width_epochs, models.recipe.learning_rate
    result = train_slim(models, models.adaptive(), plan, path, epochs, rate, rounded=False)
    if steps.options.learned_confidence and plan.stops:
        _fit(steps, folder)
    model = models.opened(folder)
    points: list[Point] = []
    finals: list[tuple[Point, Outcomes]] = []
    for kind in ("softmax", "learned") if model.encoder.confidences else ("softmax",):
        variant = Variant(1.0, plan.tokens_kept, plan.tokens_after, confidence=kind)
        seen = outcomes(model, steps.task, steps.parts[0], variant.plan(model))
        of_kind = points_of(steps.task, variant, seen, steps.dense_flops)
        points += of_kind
        finals.append((boldest_alike(of_kind, seen, plan, attempt.share), seen))
    final, seen = max(finals, key=lambda pair: pair[0].score)
    form = _form(steps, attempt, folder, final, seen)
    return Trained(form, points, result.train_time_s, result.examples_seen)


def _form(steps: Steps, attempt: Attempt, folder: str, final: Point, seen: Outcomes) -> Form:
    """The form of an attempt, and whether it keeps the floor where plans are chosen."""
    return Form(
        kind=attempt.kind,
        folder=folder,
        plan=final.plan,
        allowed_share=attempt.share,
        cost_share=final.cost_share,
        score=final.score,
        good=steps.keeps_floor(decided(seen, final).logits),
    )


def _records(trained: Trained) -> list[Record]:
    labels: dict[str, Label] = {"arm": f"{OURS} {FIXED_WIDTH}", "attempt": trained.form.kind}
    return [
        Record("train_time_s", trained.train_time_s, "s", "measured", labels),
        Record("train_examples", trained.examples, "examples", "measured", labels),
        _plan_record("attempted_plan", trained.form),
    ]


def _plan_record(name: str, form: Form) -> Record:
    labels: dict[str, Label] = {
        "plan": json.dumps(form.plan.to_dict()),
        "cost_share": form.cost_share,
        "score": form.score,
        "attempt": form.kind,
        "allowed_share": form.allowed_share,
        "good": form.good,
    }
    return Record(name, form.cost_share, "share", "modelled", labels)


def boldest_alike(
    points: Iterable[Point], seen: Outcomes, plan: Plan, share: float, changed: float = CHANGED
) -> Point:
    """The cheapest threshold of a plan with almost the answers of the most cautious one.

    The most cautious is the most expensive of at most ``share``, but for rounding, or else the
    cheapest. Few inputs cannot show which of two thresholds scores better. But they show the share
    of answers that differ: it is at most ``changed``.
    """
    same = [
        point
        for point in points
        if point.plan.layers == plan.layers and point.plan.stops in ((), plan.stops)
    ]
    same.sort(key=lambda point: point.cost_share)
    affordable = [point for point in same if point.cost_share <= share * (1 + 1e-9)]
    if not affordable:
        return same[0]
    cautious = decided(seen, affordable[-1]).answers
    return next(
        point
        for point in affordable
        if float((decided(seen, point).answers != cautious).double().mean()) <= changed
    )


def _fit(steps: Steps, folder: str) -> None:
    """Save the fine-tuned model with confidence heads; written whole or not at all."""
    path = steps.models.folder / "models" / folder
    model = open_model(str(path))
    assert isinstance(model, AdaptiveClassifier)
    fit_confidence(model, steps.task, seed=steps.models.seed)
    with scratch_beside(path / SURE) as part:
        write_pretrained(model, part)
        shutil.rmtree(path / SURE, ignore_errors=True)
        part.replace(path / SURE)
