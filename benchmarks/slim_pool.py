"""Pool runs of slim over tasks and seeds: what was gained and lost, also from committed records.

    python benchmarks/slim_pool.py benchmarks/results --tasks sst2,mrpc,mpqa --page docs/slim.md

Nothing is run: each ``slim-TASK-seed-SEED-MACHINE-DATE`` below the folder is one finished run.
Speeds are over the fastest dense form, in our fastest engine, averaged on a logarithmic scale, a
task counting as much as another. Accuracy is compared example by example and pooled over tasks by
their test examples, with examples and seeds both as random effects (``sparing.measure.pooling``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load

from pages import put_between
from sparing.core.compressed import read_stored, stored_path
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.core.rounding import rounded_down
from sparing.core.writing import write_atomically
from sparing.experiment.owned import ANSWERS
from sparing.measure.pooling import PooledDifference, pool_differences
from sparing.report.markdown import plain_table
from sparing.report.wording import count_of
from sparing.slim.steps import DENSE

OURS, INT8, STATIC = "slim", "slim int8", "static"
ARMS = (OURS, INT8, STATIC)
NAMED = {OURS: "slim", INT8: "slim, INT8", STATIC: "fixed control"}
BATCHES = (1, 8)
HEADS = ("task", "seed", "form", "speed, batch 1", "speed, batch 8", "difference, points", "90 %")


def forms(records: Iterable[Record], name: str, arm: str, batch: int) -> list[Record]:
    """The records of one arm at one batch size, every engine."""
    wanted = {"arm": arm, "batch": batch}.items()
    return [r for r in records if r.name == name and wanted <= r.labels.items()]


def summary_of(records: Sequence[Record], arm: str, batch: int) -> dict[str, Any] | None:
    """Speed and score difference of an arm in its fastest engine; None where there is none."""
    speeds = forms(records, "speed_up", arm, batch)
    if not speeds:
        return None
    best = max(speeds, key=lambda record: record.value or 0.0)

    def alike(name: str) -> list[Record]:
        found = forms(records, name, arm, batch)
        return [record for record in found if record.labels["engine"] == best.labels["engine"]]

    (gap,) = alike("score_difference")
    # speeds may be of fewer inputs than the test split has; what is lost is told of all of them
    gap = next(
        (
            record
            for record in records
            if record.name == "whole_difference"
            and record.labels["arm"] == arm
            and record.labels["metric"] == gap.labels["metric"]
        ),
        gap,
    )
    return {
        "speed_up": best.value,
        "speed_interval": best.interval,
        # beside the dense model's own INT8 form
        "int8_speed_up": next((record.value for record in alike("int8_speed_up")), None),
        "metric": gap.labels["metric"],
        "difference": gap.value,
        "difference_interval": gap.interval,
        "examples": gap.count,
    }


def rows_of(records: Sequence[Record], task: str, seed: int) -> list[dict[str, Any]]:
    """What a run came to, an entry for each form and batch size."""
    found = {(arm, batch): summary_of(records, arm, batch) for arm in ARMS for batch in BATCHES}
    return [
        {"task": task, "seed": seed, "arm": arm, "batch": batch, **row}
        for (arm, batch), row in found.items()
        if row
    ]


def gaps_of(folder: Path, arm: str, to: str = DENSE) -> NDArray[np.float64] | None:
    """By test example: 1 where only this arm is right, -1 where only the other is, else 0."""
    answers = load(read_stored(stored_path(folder / ANSWERS) or folder / ANSWERS))
    if not {arm, to} <= answers.keys():
        return None
    right = {name: answers[name].argmax(-1) == answers["labels"] for name in (arm, to)}
    gaps: NDArray[np.float64] = (right[arm].double() - right[to].double()).numpy()
    return gaps


def pooled(
    folders: Mapping[str, Sequence[Path]], arm: str, to: str = DENSE
) -> PooledDifference | None:
    """The accuracy that an arm loses or gains over all tasks and seeds; None where none has it.

    ``folders`` are the runs of each task, one for each seed. The bound is the one-sided 95 % one.
    """
    tasks = []
    for places in folders.values():
        found = [gaps for place in places if (gaps := gaps_of(place, arm, to)) is not None]
        if found:
            tasks.append(np.stack(found))
    return pool_differences(tasks) if tasks else None


def speeds(
    rows: Iterable[Mapping[str, Any]], arm: str, batch: int, name: str = "speed_up"
) -> float | None:
    """The geometric mean of the runs' speeds; each task counts as much as the others."""
    wanted = {"arm": arm, "batch": batch}.items()
    chosen = [row for row in rows if wanted <= row.items() and row[name] is not None]
    tasks = {row["task"] for row in chosen}
    logs = [mean(log(row[name]) for row in chosen if row["task"] == task) for task in tasks]
    return exp(mean(logs)) if logs else None


def summary(rows: Sequence[Mapping[str, Any]], folders: Mapping[str, Sequence[Path]]) -> list[str]:
    """A sentence for each form: its speeds over all tasks and its pooled accuracy."""
    told = []
    for arm in ARMS:
        total = pooled(folders, arm)
        if total is None:
            continue
        parts = [
            f"{value:.2f} times as fast at batch {batch}"
            for batch in BATCHES
            if (value := speeds(rows, arm, batch)) is not None
        ]
        if (value := speeds(rows, arm, 1, "int8_speed_up")) is not None and arm == INT8:
            parts.append(f"{value:.2f} times as fast as the dense model's own INT8 form")
        told.append(
            f"{NAMED[arm]} over {count_of(total.runs, 'run')} and {total.examples:,} test "
            "examples: "
            f"{', '.join(parts)}, at {100 * total.value:+.2f} points of accuracy, with 95 % "
            f"confidence above {_above(total)}{_alone(total)}"
        )
        if arm == STATIC:
            told += _beside(folders, arm)
    return told


def _beside(folders: Mapping[str, Sequence[Path]], arm: str) -> list[str]:
    """Slim over the runs that have this arm, and the difference of the two."""
    runs = {
        task: [place for place in places if gaps_of(place, arm) is not None]
        for task, places in folders.items()
    }
    ours, gap = pooled(runs, OURS), pooled(runs, OURS, arm)
    if ours is None or gap is None:
        return []
    low, high = (100 * end for end in gap.interval)
    return [
        f"{NAMED[OURS]} over the same {count_of(ours.runs, 'run')}: at {100 * ours.value:+.2f} "
        f"points, above {_above(ours)}; less the {NAMED[arm]} {100 * gap.value:+.2f} "
        f"({low:+.2f} to {high:+.2f}, 95 %){_alone(gap)}"
    ]


def _alone(total: PooledDifference) -> str:
    """Of what the bound does not speak, where a task was trained once."""
    if total.of_other_trainings:
        return ""
    tasks = "one task has" if total.single == 1 else f"{total.single} tasks have"
    return f" for other examples, not for other trainings: {tasks} one training"


def _above(total: PooledDifference) -> str:
    """The lower bound in points, rounded so that what is said stays true."""
    return f"{rounded_down(100 * total.bound, 2):+.2f}"


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A line of the table for each run and form."""
    found: dict[tuple[str, int, str], dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["task"], row["seed"], row["arm"]), {})[row["batch"]] = row
    lines = []
    for (task, seed, arm), by_batch in found.items():
        timed = [_speed(by_batch[batch]) if batch in by_batch else "–" for batch in BATCHES]
        first = next(iter(by_batch.values()))
        metric = "" if first["metric"] == "accuracy" else f" {first['metric']}".upper()
        low, high = (100 * end for end in first["difference_interval"])
        difference = f"{100 * first['difference']:+.2f}{metric}"
        interval = f"{low:+.2f} to {high:+.2f}"
        lines.append((task, str(seed), NAMED[arm], *timed, difference, interval))
    return lines


def _speed(row: Mapping[str, Any]) -> str:
    low, high = row["speed_interval"]
    return f"{row['speed_up']:.2f} ({low:.2f} to {high:.2f})"


def show(rows: Sequence[Mapping[str, Any]], folders: Mapping[str, Sequence[Path]]) -> str:
    """The runs and what they come to, in markdown."""
    told = "\n".join(f"- {line}" for line in summary(rows, folders))
    return f"{plain_table(HEADS, lines_of(rows))}\n\n{told}"


def write_summary(
    file: Path, rows: Sequence[Mapping[str, Any]], folders: Mapping[str, Sequence[Path]]
) -> None:
    """The same as numbers."""
    totals = {arm: total for arm in ARMS if (total := pooled(folders, arm)) is not None}
    named = {arm: asdict(total) for arm, total in totals.items()}
    content = json.dumps({"runs": list(rows), "pooled_accuracy": named}, indent=2)
    write_atomically(file, content + "\n")


def recorded(root: Path, task: str, seed: int, prefix: str = "slim") -> Path:
    """The folder of one finished run."""
    found = sorted(root.glob(f"{prefix}-{task}-seed-{seed}-*"))
    if len(found) != 1:
        raise SystemExit(f"{root} holds {len(found)} runs of {task} with seed {seed}")
    for name in (RECORDS, ANSWERS):
        if stored_path(found[0] / name) is None:
            raise SystemExit(f"{found[0]} has no {name}: the run has not ended, or was cut")
    return found[0]


def main() -> None:
    """Pool what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="the folder that holds the runs")
    parser.add_argument("--tasks", default="sst2,mrpc,mpqa", help="separated by commas")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--prefix", default="slim", help="what the runs' folders begin with")
    parser.add_argument("--partial", action="store_true", help="leave out runs that are not there")
    parser.add_argument("--output", type=Path, help="a file for the numbers, as JSON")
    parser.add_argument("--page", type=Path, help="a page with marks to put the table between")
    given = parser.parse_args()
    tasks, seeds = given.tasks.split(","), [int(seed) for seed in given.seeds.split(",")]
    root, prefix = given.records, given.prefix
    runs = [
        (task, seed, recorded(root, task, seed, prefix))
        for task in tasks
        for seed in seeds
        if not given.partial or any(root.glob(f"{prefix}-{task}-seed-{seed}-*"))
    ]
    folders = {task: [place for one, _, place in runs if one == task] for task in tasks}
    rows = [
        row
        for task, seed, place in runs
        for row in rows_of(RecordLog(place / RECORDS).read(), task, seed)
    ]
    told = show(rows, folders)
    print(told)
    if given.output is not None:
        write_summary(given.output, rows, folders)
    if given.page is not None:
        put_between(given.page, f"{prefix} tasks", told)


if __name__ == "__main__":
    main()
