"""Pool the runs of slim's pipeline before December 2026, from their committed records.

Nothing is run; ``tables.py`` writes the tables. Each ``PREFIX-TASK-seed-SEED-MACHINE-DATE`` in
``results/slim-before-2026-12`` is one run. Speeds are over the fastest dense form, in slim's
fastest engine, averaged on a logarithmic scale, a task counting as much as another. Accuracy is
compared example by example and pooled over tasks by their test examples, with examples and seeds
both as random effects (``sparing.measure.pooling``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load

from sparing.core.compressed import read_stored, stored_path
from sparing.core.record import Record
from sparing.core.rounding import rounded_down
from sparing.experiment.owned import ANSWERS
from sparing.measure.pooling import PooledDifference, pool_differences
from sparing.report.markdown import plain_table
from sparing.report.run import read_run

DENSE, OURS, INT8, STATIC = "dense", "slim", "slim int8", "static"
ARMS = (OURS, INT8, STATIC)
NAMED = {OURS: "slim", INT8: "slim, INT8", STATIC: "static pruned model"}
BATCHES = (1, 8)
HEADS = ("task", "seed", "form", "speed, batch 1", "speed, batch 8", "difference, points", "90 %")
TOTALS = (
    *("form", "runs", "test examples", "speed, batch 1", "speed, batch 8", "over dense INT8"),
    *("difference, points", "above, 95 %", "holds for other"),
)
POOLED = "Pooled over tasks and seeds, in accuracy:"


def forms(records: Iterable[Record], name: str, arm: str, batch: int) -> list[Record]:
    """The records of one variant at one batch size, every engine."""
    labels = {"arm": arm, "batch": batch}.items()
    return [r for r in records if r.name == name and labels <= r.labels.items()]


def summary_of(records: Sequence[Record], arm: str, batch: int) -> dict[str, Any] | None:
    """Speed and score difference of a variant in its fastest engine; None where there is none."""
    speeds = forms(records, "speed_up", arm, batch)
    if not speeds:
        return None
    best = max(speeds, key=lambda record: record.value or 0.0)

    def alike(name: str) -> list[Record]:
        candidates = forms(records, name, arm, batch)
        return [record for record in candidates if record.labels["engine"] == best.labels["engine"]]

    (gap,) = alike("score_difference")
    # speeds may be of fewer inputs than the test split has; the loss is measured on all of them
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
    summaries = {(arm, batch): summary_of(records, arm, batch) for arm in ARMS for batch in BATCHES}
    return [
        {"task": task, "seed": seed, "arm": arm, "batch": batch, **row}
        for (arm, batch), row in summaries.items()
        if row
    ]


def gaps_of(folder: Path, arm: str, to: str = DENSE) -> NDArray[np.float64] | None:
    """By test example: 1 where only this variant is right, -1 where only the other is, else 0."""
    answers = load(read_stored(stored_path(folder / ANSWERS) or folder / ANSWERS))
    if not {arm, to} <= answers.keys():
        return None
    right = {name: answers[name].argmax(-1) == answers["labels"] for name in (arm, to)}
    gaps: NDArray[np.float64] = (right[arm].double() - right[to].double()).numpy()
    return gaps


def pooled(
    folders: Mapping[str, Sequence[Path]], arm: str, to: str = DENSE
) -> PooledDifference | None:
    """The accuracy that a variant loses or gains over all tasks and seeds; None where none has it.

    ``folders`` are the runs of each task, one for each seed. The bound is the one-sided 95 % one.
    """
    tasks = []
    for places in folders.values():
        gaps_by_run = [gaps for folder in places if (gaps := gaps_of(folder, arm, to)) is not None]
        if gaps_by_run:
            tasks.append(np.stack(gaps_by_run))
    return pool_differences(tasks) if tasks else None


def speeds(
    rows: Iterable[Mapping[str, Any]], arm: str, batch: int, name: str = "speed_up"
) -> float | None:
    """The geometric mean of the runs' speeds; each task counts as much as the others."""
    labels = {"arm": arm, "batch": batch}.items()
    chosen = [row for row in rows if labels <= row.items() and row[name] is not None]
    tasks = {row["task"] for row in chosen}
    logs = [mean(log(row[name]) for row in chosen if row["task"] == task) for task in tasks]
    return exp(mean(logs)) if logs else None


def totals(
    rows: Sequence[Mapping[str, Any]], folders: Mapping[str, Sequence[Path]]
) -> list[tuple[str, ...]]:
    """A line for each form: its speeds over all tasks and its pooled accuracy."""
    lines = []
    for arm in ARMS:
        total = pooled(folders, arm)
        if total is None:
            continue
        factors = [speeds(rows, arm, batch) for batch in BATCHES]
        factors.append(speeds(rows, arm, 1, "int8_speed_up") if arm == INT8 else None)
        shown = ["–" if value is None else f"{value:.2f}" for value in factors]
        difference = f"{100 * total.value:+.2f}"
        lines.append((NAMED[arm], *_counts(total), *shown, difference, _above(total), _of(total)))
        if arm == STATIC:
            lines += _beside(folders, arm)
    return lines


def _beside(folders: Mapping[str, Sequence[Path]], arm: str) -> list[tuple[str, ...]]:
    """Slim over the runs that have this variant, and the difference of the two."""
    runs = {
        task: [folder for folder in places if gaps_of(folder, arm) is not None]
        for task, places in folders.items()
    }
    ours, gap = pooled(runs, OURS), pooled(runs, OURS, arm)
    if ours is None or gap is None:
        return []
    low, high = (100 * end for end in gap.interval)
    value = f"{100 * ours.value:+.2f}"
    less = f"{100 * gap.value:+.2f} ({low:+.2f} to {high:+.2f})"
    blank = ("–",) * 3
    return [
        (f"{NAMED[OURS]}, same runs", *_counts(ours), *blank, value, _above(ours), _of(ours)),
        (f"{NAMED[OURS]} less {NAMED[arm]}", *_counts(gap), *blank, less, "–", _of(gap)),
    ]


def _counts(total: PooledDifference) -> tuple[str, str]:
    return str(total.runs), f"{total.examples:,}"


def _of(total: PooledDifference) -> str:
    """What interval and bound hold for: a task that was trained once says nothing of trainings."""
    return "examples and trainings" if total.of_other_trainings else "examples alone"


def _above(total: PooledDifference) -> str:
    """The lower bound in points, rounded so that what is said stays true."""
    return f"{rounded_down(100 * total.bound, 2):+.2f}"


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A line of the table for each run and form."""
    by_form: dict[tuple[str, int, str], dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        by_form.setdefault((row["task"], row["seed"], row["arm"]), {})[row["batch"]] = row
    lines = []
    for (task, seed, arm), by_batch in by_form.items():
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
    pooled_table = plain_table(TOTALS, totals(rows, folders))
    return f"{plain_table(HEADS, lines_of(rows))}\n\n{POOLED}\n\n{pooled_table}"


def recorded_runs(
    root: Path, tasks: Sequence[str], seeds: Sequence[int], prefix: str = "slim"
) -> list[tuple[str, int, Path]]:
    """Task, seed and folder of the runs that are there."""
    return [
        (task, seed, folder)
        for task in tasks
        for seed in seeds
        for folder in sorted(root.glob(f"{prefix}-{task}-seed-{seed}-*"))
    ]


def pooled_rows(
    runs: Sequence[tuple[str, int, Path]],
) -> tuple[list[dict[str, Any]], dict[str, list[Path]]]:
    """The rows of all runs, and each task's folders."""
    folders: dict[str, list[Path]] = {}
    rows: list[dict[str, Any]] = []
    for task, seed, folder in runs:
        folders.setdefault(task, []).append(folder)
        rows += rows_of(read_run(folder).records, task, seed)
    return rows, folders


def markdown(runs: Sequence[tuple[str, int, Path]]) -> str:
    """The table of these runs, and what they come to."""
    return show(*pooled_rows(runs))
