"""What further seeds would change of the interval of a mean over tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import variance

from sparing.core.record import Label, Labels, Record
from sparing.experiment.claims import ERROR, Scale, widened
from sparing.experiment.forecasts.needs import EXAMPLES, SEEDS, Forecast
from sparing.experiment.records import RecordTable
from sparing.measure.forecast import reach_with, rests_of
from sparing.measure.pooling import Part
from sparing_papers.adaattention.analysis import part_of_inputs
from sparing_papers.adaattention.findings import own_group_first
from sparing_papers.adaattention.names import FULL, MEAN

UNKNOWN = "more seeds or test examples: how much each adds was not recorded"
Values = dict[Label, float]


def of_mean(
    records: RecordTable, record: Record, tasks: Sequence[str], confidence: float, scale: Scale
) -> Forecast | None:
    """The forecast of a mean over tasks of equal weight, each with several seeds.

    None where a task has one seed, or no variance gives the interval.
    """
    if record.interval is None or not tasks:
        return None
    value, share = float(record.value or 0.0), 1 / len(tasks)
    logs = scale == "log"
    centre, end = (math.log(x) if logs else x for x in (value, float(record.interval[1])))
    timed = [_timed(records, record.labels, task) for task in tasks] if logs else []
    by_task = [
        *({seed: math.log(r.value or 1.0) for seed, r in of_task.items()} for of_task in timed),
        *(_gaps(records, record.labels, task) for task in (() if logs else tasks)),
    ]
    if min(map(len, by_task)) < 2:
        return None
    parts = [_part(seeds).times(share) for seeds in by_task]
    fixed = [part_of_inputs([*of_task.values()]).times(share) for of_task in timed]
    rests = [fixed] if logs else [[part] for part in rests_of(end - centre, parts, 1 - ERROR)]
    if not rests:
        return None
    rest = rests[0]  # the larger of two promises less

    def at(count: int) -> tuple[float, float]:
        reach = reach_with(parts, rest, count, 1 - ERROR)
        ends = centre - reach, centre + reach
        low, high = map(math.exp, ends) if logs else ends
        return widened(value, (low, high), confidence, None, scale)

    return Forecast(SEEDS, min(map(len, by_task)), at, EXAMPLES if len(rests) == 1 else UNKNOWN)


def _part(seeds: Values) -> Part:
    return Part(variance(seeds.values()) / len(seeds), len(seeds) - 1)


def _timed(records: RecordTable, of: Labels, task: str) -> dict[Label, Record]:
    """By seed the speed of a variant on a task: where it was timed twice, its own group counts."""
    timed = own_group_first(records.all("speed_up", arm=of["arm"], task=task, inputs="all"))
    return {
        record.labels["seed"]: record
        for record in reversed(timed)
        if record.labels.get("seed") is not None and record.value and record.interval
    }


def _gaps(records: RecordTable, of: Labels, task: str) -> Values:
    """By seed a variant's score on a task less that of what it is compared with."""
    main = records.find("score", arm=of["arm"], task=task, main=True)
    labels: Labels = {"task": task}
    if main is not None:
        labels["metric"] = main.labels["metric"]
    ours, theirs = (
        {
            r.labels["seed"]: float(r.value or 0.0)
            for r in records.all("seed_score", **labels, arm=a)
        }
        for a in (of["arm"], of.get("to", FULL))
    )
    return {seed: ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()}


def of_difference(records: RecordTable, record: Record, confidence: float) -> Forecast | None:
    """The forecast of a score difference on one task, or of its mean over those of both variants.

    None where no scores of single seeds were recorded.
    """
    task, of = record.labels.get("task"), record.labels
    arms = (of.get("arm"), of.get("to", FULL))
    both = (records.values_of("seed_score", "task", arm=arm) for arm in arms)
    known = sorted(set.intersection(*({str(name) for name in names} for names in both)))
    tasks = known if task == MEAN else [name for name in known if name == task]
    return of_mean(records, record, tasks, confidence, "plain")
