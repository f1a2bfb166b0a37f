"""Table I of the paper on one page: every task, as printed and as the committed runs have it."""

from __future__ import annotations

from collections.abc import Mapping

from sparing.core.record import Label
from sparing.experiment.claims import ERROR, Estimate, of_pairs
from sparing.experiment.records import RecordTable
from sparing.report import wording
from sparing.report.markdown import plain_table
from sparing.report.run import Run
from sparing_papers.adaattention.findings import difference, speed_on
from sparing_papers.adaattention.names import FULL, GLUE_TASKS, name_of_arm
from sparing_papers.adaattention.published import figures, rows

SOURCE, METRICS = "Table I", {"stsb": "pearson", "cola": "matthews"}
ACCURACY, NOT_RUN = "accuracy", "not run"


def table_one(runs: Mapping[str, Run]) -> str:
    """A row for each task: each variant's points to the full model and speed, printed and measured.

    Markdown. A cell is of the first run that compared the two models' answers. Where none did, it
    is the mean difference of the trainings of one seed, with its interval over seeds.
    """
    arms = [row for row in rows(SOURCE) if row != FULL]
    lines = []
    for task in GLUE_TASKS:
        cells = [_cell(runs, task, arm) for arm in arms]
        used = dict.fromkeys(name for _, name in cells if name)
        lines.append([task, *(words for words, _ in cells), ", ".join(used) or NOT_RUN])
    return plain_table(["Task", *map(name_of_arm, arms), "Runs"], lines)


def _cell(runs: Mapping[str, Run], task: str, arm: str) -> tuple[str, str]:
    """The words, and the run; such as: printed -0.2, 1.78x; here -0.1 (-1.0 to +0.8), 0.74x."""
    printed = (figures(SOURCE, arm)[task] - figures(SOURCE, FULL)[task]) / 100
    words = f"printed {wording.points(printed)}"
    speed = figures(SOURCE, arm).get(f"speed, {task}")
    words += "" if speed is None else f", {wording.factor(speed)}"
    for measure in (_of_answers, _of_seeds):
        for name, run in runs.items():
            gap = measure(run.table, task, arm)
            if gap is not None:
                return f"{words}; here {_words(run.table, task, arm, gap)}", name
    return words, ""


def _of_answers(records: RecordTable, task: str, arm: str) -> Estimate | None:
    """The difference of a run that compared answers, over examples and seeds."""
    record = difference(records, arm, task)
    if record is None or record.value is None:
        return None
    return Estimate(record.value, record.interval)


def _of_seeds(records: RecordTable, task: str, arm: str) -> Estimate | None:
    """The mean difference of trainings of one seed; None without two of them."""
    candidate, baseline = (_by_seed(records, task, one) for one in (arm, FULL))
    gap = of_pairs(candidate, baseline, 1 - ERROR)
    return None if gap is None or gap.interval is None else gap


def _by_seed(records: RecordTable, task: str, arm: str) -> dict[Label, float]:
    scores = records.all("seed_score", task=task, arm=arm, metric=METRICS.get(task, ACCURACY))
    return {record.labels["seed"]: float(record.value or 0.0) for record in scores}


def _words(records: RecordTable, task: str, arm: str, gap: Estimate) -> str:
    """The difference with its interval, and the speed where it was timed."""
    ends = gap.interval
    words = wording.points(gap.value, *(ends or ()))
    words += f" ({wording.points_interval(gap.value, ends)})" if ends else ""
    speed = speed_on(records, arm, task)
    if speed is None or speed.value is None:
        return words
    return f"{words}, {wording.factor(speed.value)}"
