"""The paper's claims, and the claims of this project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from sparing.core.record import Label, Record
from sparing.experiment.claims import (
    Claim,
    Condition,
    Estimate,
    GoalResult,
    Guard,
    Measure,
    Scale,
    decide,
    of_pairs,
    of_record,
)
from sparing.experiment.records import RecordTable
from sparing_papers.adaattention.analysis import of_claims
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.forecasts import of_mean
from sparing_papers.adaattention.further.teaching import name_of_taught
from sparing_papers.adaattention.names import (
    ADAPTIVE,
    AS_PRINTED,
    EVERY,
    FULL,
    INT8,
    ONE,
    OURS,
    OWN,
    SHAPE,
    SHARED,
)
from sparing_papers.adaattention.options import Options
from sparing_papers.adaattention.published import MEAN_SPEED, figures, rows

TABLE = "Table I"
LEAST_CUT = 0.005  # share of heads; below it the adaptive variant is dense attention with a scorer
TIMES = "\N{MULTIPLICATION SIGN}"
LOSS, GAP = "score_difference", "arm_difference"
WITH_LOSSES = ("cola",)
LEAST_SCORE = 0.1
CUTS = "a task on which heads are cut"
SEEDS_NEEDED = f"every task that was planned, with {Claim.fewest} seeds and more"


def decide_goals(
    records: Sequence[Record], options: Options, works: Sequence[Work]
) -> list[GoalResult]:
    """Evaluate each claim on what was measured."""
    return decide(claims_of(options, works), RecordTable(records))


def claims_of(options: Options, works: Sequence[Work]) -> list[Claim]:
    """The printed claims on the method, and the declared ones on slim.

    A claim on several tasks stays undecided until all of them have every seed, unless it is missed
    already. An adaptive variant that cuts nothing is dense attention, so its difference decides
    nothing.
    """
    texts: dict[str, Label] = {"task": EVERY}
    adaptive, ours = {**texts, "arm": ADAPTIVE}, {**texts, "arm": OURS}
    shape: dict[str, Label] = {"shape": SHAPE, "tokens": 512}
    printed: dict[str, Label] = {"arm": AS_PRINTED}
    whole = partial(_whole, options, works)
    over = tuple(of_claims(works))
    speed, at_512 = f"{MEAN_SPEED}{TIMES}", "at 512 tokens, BERT-base's shape"
    of_texts = f"printed: adaptive {speed} on the tasks' texts"
    adds = f"printed: adds to INT8 {at_512}"  # the printed 2.3 comes from INT8 alone
    memory = {**printed, "tokens": 512}
    same = f"ours: {speed}, same engine"
    cuts = Condition(_cuts, CUTS)
    return [
        _claim(of_texts, "speed_up", adaptive, MEAN_SPEED, whole("speed_up", adaptive), over=over),
        _claim(f"printed: 1.9{TIMES} {at_512}", "speed_up", {**shape, **printed}, 1.9),
        _claim(
            "printed: adaptive loses at most 0.2 points",
            LOSS,
            adaptive,
            -0.002,
            cuts,
            whole(LOSS, adaptive),
            over=over,
        ),
        _claim(adds, "gain_over_int8", shape, 1.0),
        _claim("printed: at most 0.8 of the memory", "memory_ratio", memory, 0.8),
        _claim(same, "speed_up", ours, MEAN_SPEED, whole("speed_up", ours), over=over),
        _claim("ours: loses at most 0.5 points", LOSS, ours, -0.005, whole(LOSS, ours), over=over),
        *_of_tasks(options, works),
        *_of_taught(options, works),
        *(_of_shared(options) if options.shared else ()),
    ]


def _of_tasks(options: Options, works: Sequence[Work]) -> list[Claim]:
    """The printed losses of Table I as goals of the run, in the task's own metric."""
    claims = []
    for work in (work for work in works if work.name in WITH_LOSSES):
        learned = Condition(partial(_learned, work.name), f"a full model that learns {work.name}")
        for arm in (arm.name for arm in options.arms_of(work)):
            if arm == FULL or arm not in rows(TABLE):
                continue
            lost = figures(TABLE, FULL)[work.name] - figures(TABLE, arm)[work.name]
            labels: dict[str, Label] = {"task": work.name, "arm": arm}
            guards = [learned, Condition(partial(_seeded, options, labels), SEEDS_NEEDED)]
            guards += [Condition(_cuts, CUTS)] if arm == ADAPTIVE else []
            text = f"printed: on {work.name} {arm} loses at most {lost:.1f} points"
            bound = -round(lost / 100, 4)
            claims.append(_claim(text, LOSS, labels, bound, *guards, over=[work.name]))
    return claims


def _of_taught(options: Options, works: Sequence[Work]) -> list[Claim]:
    """What teaching the layers first adds: over the plain form, and beside the printed loss."""
    over, claims = tuple(of_claims(works)), []
    for arm in options.taught:
        loss: dict[str, Label] = {"task": EVERY, "arm": name_of_taught(arm)}
        gain: dict[str, Label] = {**loss, "to": arm}
        text = f"ours: {arm} scores higher with layers taught first"
        claims.append(_claim(text, GAP, gain, 0.0, _whole(options, works, GAP, gain), over=over))
        if arm in rows(TABLE):
            lost = figures(TABLE, FULL)["mean"] - figures(TABLE, arm)["mean"]
            text = f"printed: {arm} with layers taught first loses at most {lost:.1f} points"
            whole, bound = _whole(options, works, LOSS, loss), -round(lost / 100, 4)
            claims.append(_claim(text, LOSS, loss, bound, whole, over=over))
    return claims


def _of_shared(options: Options) -> list[Claim]:
    """One scorer for several tasks beside one for each: score, and attention computed."""
    labels: dict[str, Label] = {"arm": ONE, "to": OWN, "task": SHARED}
    cuts = Condition(partial(_own_cut, options.shared), CUTS)
    seeds = Condition(partial(_shared_seeded, options), SEEDS_NEEDED)
    text = "ours: one scorer for all tasks loses at most 0.5 points against one for each"
    return [
        _claim(text, GAP, labels, -0.005, seeds, cuts, over=options.shared),
        Claim(
            "ours: one scorer for all tasks computes no more of the widths than one for each",
            partial(_width_gap, options.shared),
            0.0,
            "share",
            at_most=True,
            guards=(seeds, cuts),
            family="ours",
        ),
    ]


def _width_gap(tasks: Sequence[str], records: RecordTable, confidence: float) -> Estimate | None:
    """The mean width of heads over the tasks, with one scorer less with one each, by seed."""

    def by_seed(arm: str) -> dict[Label, float]:
        widths: dict[Label, list[float]] = {}
        for record in records.all("width_share", arm=arm):
            if record.labels["task"] in tasks and "seed" in record.labels:
                widths.setdefault(record.labels["seed"], []).append(float(record.value or 0.0))
        return {seed: fmean(of) for seed, of in widths.items() if len(of) == len(tasks)}

    return of_pairs(by_seed(ONE), by_seed(OWN), confidence)


def _shared_seeded(options: Options, records: RecordTable, result: GoalResult) -> bool:
    """Whether each task has every planned seed of both trainings, and they are enough."""
    done = [
        len(records.all("width_share", arm=arm, task=task))
        for arm in (ONE, OWN)
        for task in options.shared
    ]
    return len(options.seeds) >= Claim.fewest and min(done) >= len(options.seeds)


def _own_cut(tasks: Sequence[str], records: RecordTable, result: GoalResult) -> bool:
    """Whether scorers of their own narrow heads, on average over tasks and seeds."""
    cut = [r for task in tasks for r in records.all("cut_share", arm=OWN, task=task)]
    return bool(cut) and fmean(float(record.value or 0.0) for record in cut) >= LEAST_CUT


def _seeded(
    options: Options, labels: dict[str, Label], records: RecordTable, result: GoalResult
) -> bool:
    """Whether a difference on one task rests on every planned seed, and they are enough."""
    record = records.find(LOSS, **labels)
    planned = len(options.seeds)
    return record is not None and planned >= Claim.fewest and record.count >= planned


def _learned(task: str, records: RecordTable, result: GoalResult) -> bool:
    """Whether the full model's score is well above 0, which chance gives in a correlation."""
    score = records.find("score", arm=FULL, task=task, main=True)
    return score is not None and float(score.value or 0.0) >= LEAST_SCORE


def _claim(
    text: str,
    name: str,
    labels: dict[str, Label],
    bound: float,
    *guards: Guard,
    over: Sequence[str] = (),
) -> Claim:
    """A claim on the newest record of a name; the printed claims are decided together.

    ``over`` are the tasks that the record is the mean of; others are of one shape.
    """
    unit = "score" if name in (LOSS, GAP) else "ratio"
    measure, family = _measured(name, labels, over), text.partition(":")[0]
    at_most = name == "memory_ratio"
    return Claim(text, measure, bound, unit, at_most, guards=guards, family=family)


def _measured(name: str, labels: dict[str, Label], over: Sequence[str]) -> Measure:
    """The newest record with these labels; memory is counted, not sampled."""

    def measure(records: RecordTable, confidence: float) -> Estimate | None:
        record = records.find(name, **labels)
        if record is None or record.value is None:
            return None
        if name == "memory_ratio":
            return Estimate(record.value, (record.value, record.value))
        scale: Scale = "plain" if name in (LOSS, GAP) else "log"
        estimate = of_record(record, confidence, records, scale, of_seeds=False)
        if not over:
            return estimate
        more = of_mean(records, record, over, confidence, scale)
        return replace(
            estimate, forecast=more, lacks=f"at least {Claim.fewest} seeds of every task"
        )

    return measure


def _whole(options: Options, works: Sequence[Work], name: str, labels: dict[str, Label]) -> Guard:
    """Whether a mean over tasks has every task that its variant runs on, with every seed."""

    def guard(records: RecordTable, result: GoalResult) -> bool:
        mean = records.find(name, **labels)
        if mean is None or result.met is False:
            return True
        arm = str(labels["arm"]).removesuffix(f" {INT8}")
        tasks = {
            work.name
            for work in works
            if work.name in of_claims(works) and arm in (a.name for a in options.arms_of(work))
        }
        seeds = {str(r.labels["task"]): r.count for r in records.all(LOSS, arm=arm)}
        enough = len(options.seeds) >= Claim.fewest
        done = {task for task in tasks if seeds.get(task, 0) >= len(options.seeds)}
        scores = name in (LOSS, GAP)
        return (not scores or enough) and done == tasks and mean.count >= len(tasks)

    return Condition(guard, SEEDS_NEEDED)


def _cuts(records: RecordTable, result: GoalResult) -> bool:
    """Whether the adaptive variant narrows heads on each task, on average over its seeds."""
    shares: dict[Label, list[float]] = {}
    for record in records.all("cut_share", arm=ADAPTIVE):
        shares.setdefault(record.labels["task"], []).append(float(record.value or 0.0))
    return all(fmean(of_task) >= LEAST_CUT for of_task in shares.values())
