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
    of_record,
)
from sparing.experiment.records import RecordTable
from sparing_papers.adaattention.analysis import of_claims
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.forecasts import of_mean
from sparing_papers.adaattention.names import ADAPTIVE, AS_PRINTED, EVERY, INT8, OURS, SHAPE
from sparing_papers.adaattention.options import Options
from sparing_papers.adaattention.published import MEAN_SPEED

LEAST_CUT = 0.005  # share of heads; below it the adaptive variant is dense attention with a scorer
TIMES = "\N{MULTIPLICATION SIGN}"
LOSS = "score_difference"


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
    cuts = Condition(_cuts, "a task on which heads are cut")
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
    ]


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
    unit = "score" if name == LOSS else "ratio"
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
        scale: Scale = "plain" if name == LOSS else "log"
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
        return (name != LOSS or enough) and done == tasks and mean.count >= len(tasks)

    return Condition(guard, f"every task that was planned, with {Claim.fewest} seeds and more")


def _cuts(records: RecordTable, result: GoalResult) -> bool:
    """Whether the adaptive variant narrows heads on each task, on average over its seeds."""
    shares: dict[Label, list[float]] = {}
    for record in records.all("cut_share", arm=ADAPTIVE):
        shares.setdefault(record.labels["task"], []).append(float(record.value or 0.0))
    return all(fmean(of_task) >= LEAST_CUT for of_task in shares.values())
