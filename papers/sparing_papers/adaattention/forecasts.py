"""What further seeds would change of the interval of a mean over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import variance

from sparing.core.record import Label, Labels, Record
from sparing.experiment.claims import ERROR, Scale, widened
from sparing.experiment.needs import SEEDS, Forecast
from sparing.experiment.records import RecordTable
from sparing.measure.forecast import reach_with, rest_of
from sparing.measure.pooling import Part
from sparing_papers.adaattention.findings import own_group_first
from sparing_papers.adaattention.names import FULL, MEAN

BySeed = Mapping[Label, float]


def of_mean(
    records: RecordTable, record: Record, tasks: Sequence[str], confidence: float, scale: Scale
) -> Forecast | None:
    """The forecast of a mean over tasks of equal weight, each with several seeds.

    The parts of seeds follow from what was measured of every seed, what is left of the interval is
    of test examples or inputs. None where a task has one seed, or no variance gives the interval.
    """
    logs = scale == "log"
    of_task = _speeds if logs else _gaps
    by_task = [dict(of_task(records, record.labels, task)) for task in tasks]
    value = float(record.value or 0.0)
    if record.interval is None or min(map(len, by_task), default=0) < 2:
        return None
    centre, end = (math.log(x) if logs else x for x in (value, float(record.interval[1])))
    parts = [_part(seeds).times(1 / len(tasks)) for seeds in by_task]
    rest = rest_of(end - centre, parts, 1 - ERROR)
    if rest is None:
        return None

    def at(count: int) -> tuple[float, float]:
        reach = reach_with(parts, [rest], count, 1 - ERROR)
        ends = centre - reach, centre + reach
        low, high = map(math.exp, ends) if logs else ends
        return widened(value, (low, high), confidence, None, scale)

    return Forecast(SEEDS, min(map(len, by_task)), at)


def _part(seeds: BySeed) -> Part:
    return Part(variance(seeds.values()) / len(seeds), len(seeds) - 1)


def _speeds(records: RecordTable, of: Labels, task: str) -> Iterator[tuple[Label, float]]:
    """By seed the log speed of a variant on a task."""
    timed = own_group_first(records.all("speed_up", arm=of["arm"], task=task, inputs="all"))
    for record in reversed(timed):  # where a seed was timed twice, the variant's own group counts
        if record.labels.get("seed") is not None and record.value:
            yield record.labels["seed"], math.log(record.value)


def _gaps(records: RecordTable, of: Labels, task: str) -> Iterator[tuple[Label, float]]:
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
    for seed in ours.keys() & theirs.keys():
        yield seed, ours[seed] - theirs[seed]


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
