"""Before a run: the differences that its seeds and test inputs could show, by committed runs.

No committed run has the tasks and variants below, so their goals have no forecast. The spread of
the same variants on other tasks replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot, sqrt

from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.claims import FEWEST_SEEDS
from sparing.experiment.forecasts.effects import committed_runs
from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.claims import WITH_LOSSES
from sparing_papers.adaattention.names import ADAPTIVE, FULL, name_of_arm
from sparing_papers.adaattention.options import Options
from sparing_papers.adaattention.published import rows

STUDY, KNOWN = "adaattention", "sst2"


def notes_of(options: Options, works: Sequence[Work]) -> tuple[str, ...]:
    """A line for each task with goals that have no forecast, and one for a shared scorer.

    Empty with too few seeds to decide, or without committed runs.
    """
    chosen = [work for work in works if work.name in WITH_LOSSES]
    if len(options.seeds) < FEWEST_SEEDS or not (chosen or options.shared):
        return ()
    folders = committed_runs("sparing_papers.adaattention", STUDY)
    runs = [RecordTable(RecordLog(folder / RECORDS).read()) for folder in folders]
    notes = [note for work in chosen for note in _of_task(options, work, runs)]
    return (*notes, *(_of_shared(options, runs) if options.shared else ()))


def _of_task(options: Options, work: Work, runs: Sequence[RecordTable]) -> Iterator[str]:
    """The reach of each row of Table I on a task, scaled from that of a known one."""
    arms = [arm.name for arm in options.arms_of(work) if arm.name in rows("Table I")]
    reaches = {}
    for arm in arms:
        record = _widest_known(runs, arm, KNOWN)
        if arm != FULL and record is not None:
            inputs = sqrt(record[1] / len(work.task.test))
            reaches[arm] = _half(record[0]) * inputs * points_of_correlation(work)
    if reaches:
        shown = ", ".join(
            f"{wording.number(100 * reach, 2)} ({name_of_arm(arm)})"
            for arm, reach in reaches.items()
        )
        yield (
            f"{work.name}: by the spread on {KNOWN}, {len(options.seeds)} seeds and "
            f"{len(work.task.test):,} test inputs show differences of about {shown} points"
        )


def _of_shared(options: Options, runs: Sequence[RecordTable]) -> Iterator[str]:
    """The reach of a mean over the tasks, by the adaptive variant's against full on each."""
    known = {task: _widest_known(runs, ADAPTIVE, task) for task in options.shared}
    halves = [_half(of_task[0]) for of_task in known.values() if of_task is not None]
    if len(halves) == len(known):
        reach = wording.number(100 * hypot(*halves) / len(halves), 2)
        yield (
            f"one scorer: by the adaptive variant's spread on {', '.join(known)}, "
            f"{len(options.seeds)} seeds show differences of about {reach} points on their mean"
        )


def points_of_correlation(work: Work) -> float:
    """How much Matthews correlation a point of accuracy is worth; 1 for other metrics.

    Of answers as frequent as the labels the correlation is Cohen's kappa, (a - e) / (1 - e), with
    the agreement e = 1 - 2 p (1 - p) by chance.
    """
    if work.task.metric != "matthews":
        return 1.0
    share = float((work.task.test.labels == 1).double().mean())
    return 1 / (2 * share * (1 - share))


def _widest_known(runs: Sequence[RecordTable], arm: str, task: str) -> tuple[Record, int] | None:
    """The difference to full with the most seeds in a committed run, and its test inputs."""
    best: tuple[Record, int] | None = None
    for records in runs:
        record = records.find("score_difference", arm=arm, task=task)
        scores = records.all("seed_score", arm=arm, task=task)
        if record is None or record.interval is None or not scores:
            continue
        if best is None or record.count > best[0].count:
            best = record, scores[0].count
    return best


def _half(record: Record) -> float:
    low, high = record.interval or (0.0, 0.0)
    return (high - low) / 2
