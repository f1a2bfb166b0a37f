"""The chosen plan, trained on by itself: its widths are final, and no other need be served."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from sparing.core.reading import parse_json
from sparing.core.record import Label, Record
from sparing.core.scratch import scratch_beside
from sparing.experiment.run import Run
from sparing.foreign.pretrained import write_pretrained
from sparing.layers.plan import Plan
from sparing.slim.aware import train_slim
from sparing.slim.cells import OURS, Steps, all_logits, chosen_plan, chosen_share, fallback
from sparing.slim.models import SURE
from sparing.slim.search.exits import Decision, Outcomes, decide, outcomes
from sparing.slim.search.frontier import Point, Variant, best, points_of
from sparing.slim.search.resampling import good_enough
from sparing.slim.search.static import exits_of, fixed_plan
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.confidence import fit_confidence
from sparing.transfer.opening import open_model

POLISHED = f"{OURS} polished"
# The share of answers that leaving earlier may change beside leaving as late as is affordable.
CHANGED = 0.01
ALONE, FALLBACK = "alone", "fallback"
# A fixed plan may cost so much more than what its exits are to bring it down to.
EXITS_SAVE = 1.1


@dataclass(frozen=True)
class Attempt:
    """A plan to train on, the arithmetic that it may take, and what it is."""

    plan: Plan
    share: float
    kind: str


@dataclass(frozen=True, eq=False)
class Trained:
    """What an attempt came to: its plan with its threshold, all its points, and whether it is good.

    ``good`` is what ``good_enough`` says on the inputs that plans are chosen on.
    """

    attempt: Attempt
    final: Point
    points: list[Point]
    good: bool
    train_time_s: float
    examples: int


def attempts(run: Run) -> list[Attempt]:
    """What is tried, one after the other, until one is good enough.

    First a shallow plan: the best fixed one that takes about the chosen plan's arithmetic, with
    every exit before its end. Trained by itself, its last layer answers as well as the whole model
    did, and most inputs need not even go so far. Then the chosen plan; and where that was fast but
    not good enough before it was trained on, the one that was.
    """
    chosen, share = chosen_plan(run), chosen_share(run)
    found = [Attempt(chosen, share, "chosen")]
    fixed = Plan.from_dict(parse_json(str(fixed_plan(run, EXITS_SAVE * share).labels["plan"])))
    exits = tuple(place for place in exits_of(run) if place < fixed.layers)
    if exits and chosen.stops and fixed.layers < chosen.layers:
        shallow = replace(fixed, exits=exits, threshold=chosen.threshold)
        found.insert(0, Attempt(shallow, share, "shallow"))
    safe = fallback(run)
    if safe is not None:
        found.append(Attempt(safe.plan, safe.cost_share, FALLBACK))
    return found


def polish(steps: Steps, run: Run, *, learned: bool = False, control: bool = False) -> list[Record]:
    """Train plans on by themselves until one is good enough, and set its threshold anew.

    The last one tried is served, good or not; ``served`` reads it. ``learned`` fits confidence
    heads too; of both kinds the one with the better score is taken. With ``control`` the fixed plan
    that is distilled alone is held against it, and served where it is ``better``; and before a
    plan is tried that is not fast, the fixed one of as much arithmetic as the fast ones is.
    """
    tried, alone = _tried(steps, run, learned=learned, control=control)
    last = tried[-1]
    if control:
        last = better(tried[-1], alone[-1])
        if last is alone[-1]:
            steps.models.serve_static(len(tried))
    front = best([point for point in last.points if point.cost_share < 1])
    return [
        *(record for each in tried for record in _records(each)),
        *(_plan_record("attempted_plan", each) for each in alone),
        *(replace(p.record(on_front=p in front), name="polished_score") for p in last.points),
        _plan_record("polished_plan", last),
    ]


def _tried(
    steps: Steps, run: Run, *, learned: bool, control: bool
) -> tuple[list[Trained], list[Trained]]:
    """The plans that were trained on, up to the first good one, and the fixed ones beside them."""
    tried: list[Trained] = []
    alone: list[Trained] = []
    for number, attempt in enumerate(attempts(run)):
        if control and attempt.kind == FALLBACK:
            alone.append(_alone(steps, run, tried[-1].attempt.share, len(alone)))
            if alone[-1].good:
                return tried, alone
        place = steps.models.polishing_place(number)
        tried.append(_trained(steps, attempt, place, learned=learned))
        if tried[-1].good:
            break
    if control:
        alone.append(_alone(steps, run, tried[-1].attempt.share, len(alone)))
    return tried, alone


def better(polished: Trained, alone: Trained) -> Trained:
    """Which of the two is served, by the inputs that plans are chosen on.

    The one that is good enough; else the one with the better score, and where that is the same,
    the cheaper. Both take no more arithmetic than is allowed, so that both are fast enough; how
    well they answer is what few inputs leave in doubt, and what speed beyond the target may buy.
    """
    if polished.good != alone.good:
        return polished if polished.good else alone
    ours, theirs = polished.final, alone.final
    if ours.score != theirs.score:
        return polished if ours.score > theirs.score else alone
    return alone if theirs.cost_share < ours.cost_share else polished


def _alone(steps: Steps, run: Run, share: float, number: int) -> Trained:
    """The best fixed plan of no more arithmetic, distilled alone: the control, as a candidate."""
    models, chosen_on = steps.models, steps.parts[0]
    plan = Plan.from_dict(parse_json(str(fixed_plan(run, share).labels["plan"])))
    result = models.train_static(plan, number)
    model = models.static(number)
    assert model is not None
    variant = Variant(1.0, plan.tokens_kept, plan.tokens_after)
    found = outcomes(model, steps.task, chosen_on, variant.plan(model))
    points = points_of(steps.task, variant, found, steps.dense_flops)
    final = max(points, key=lambda point: point.plan.layers)
    good, attempt = _is_good(steps, final, found), Attempt(plan, share, ALONE)
    return Trained(attempt, final, points, good, result.train_time_s, result.examples_seen)


def _is_good(steps: Steps, point: Point, found: Outcomes) -> bool:
    """Whether a trained plan keeps the floor where plans are chosen, as far as that can tell."""
    chosen_on = steps.parts[0]
    dense = all_logits(steps, chosen_on, steps.models.rival())
    logits = decided(found, point).logits
    return good_enough(steps.task.metric, logits, dense, chosen_on.labels, steps.floor)[2]


def _records(tried: Trained) -> Iterator[Record]:
    kind = tried.attempt.kind
    labels: dict[str, Label] = {"arm": POLISHED, "attempt": kind}
    yield Record("train_time_s", tried.train_time_s, "s", "measured", labels)
    yield Record("train_examples", tried.examples, "examples", "measured", labels)
    yield _plan_record("attempted_plan", tried)


def _plan_record(name: str, tried: Trained) -> Record:
    final = tried.final
    labels: dict[str, Label] = {
        "plan": json.dumps(final.plan.to_dict()),
        "cost_share": final.cost_share,
        "score": final.score,
        "attempt": tried.attempt.kind,
        "allowed_share": tried.attempt.share,
        "good": tried.good,
    }
    return Record(name, final.cost_share, "share", "measured", labels)


def _trained(steps: Steps, attempt: Attempt, place: Path, *, learned: bool) -> Trained:
    """Train one plan on, survey what it has become, and choose its threshold."""
    models, plan = steps.models, attempt.plan
    epochs, rate = models.polish_epochs, models.recipe.learning_rate
    result = train_slim(models, models.adaptive(), plan, place, epochs, rate, rounded=False)
    if learned and plan.stops:
        _fit(steps, place / SURE)
    chosen_on = steps.parts[0]
    model = models.polished(place)
    kinds = ("softmax", "learned") if model.encoder.confidences else ("softmax",)
    points: list[Point] = []
    finals: list[tuple[Point, Outcomes]] = []
    for kind in kinds:
        variant = Variant(1.0, plan.tokens_kept, plan.tokens_after, confidence=kind)
        found = outcomes(model, steps.task, chosen_on, variant.plan(model))
        mine = points_of(steps.task, variant, found, steps.dense_flops)
        points += mine
        finals.append((boldest_alike(mine, found, plan, attempt.share), found))
    final, found = max(finals, key=lambda each: each[0].score)
    good = _is_good(steps, final, found)
    return Trained(attempt, final, points, good, result.train_time_s, result.examples_seen)


def boldest_alike(
    points: Iterable[Point], found: Outcomes, plan: Plan, share: float, changed: float = CHANGED
) -> Point:
    """The cheapest of a plan's thresholds that answers almost as the most cautious one does.

    The most cautious is the dearest that costs no more than ``share``, but for rounding, or the
    cheapest where none is so cheap. Few inputs cannot tell which of two thresholds is the better,
    but they tell well how many answers differ: at most ``changed`` of them.
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
    cautious = decided(found, affordable[-1]).answers
    return next(
        point
        for point in affordable
        if float((decided(found, point).answers != cautious).double().mean()) <= changed
    )


def decided(found: Outcomes, point: Point) -> Decision:
    """What the inputs of a survey do under one of its points."""
    plan = point.plan
    return decide(found, plan.threshold, min(plan.stops, default=1), plan.layers)


def _fit(steps: Steps, place: Path) -> None:
    """Save the polished model with confidence heads; the folder appears whole or not at all."""
    model = open_model(str(place.parent))
    assert isinstance(model, AdaptiveClassifier)
    fit_confidence(model, steps.task, seed=steps.models.seed)
    with scratch_beside(place) as part:
        write_pretrained(model, part)
        shutil.rmtree(place, ignore_errors=True)
        part.replace(place)
