"""Slim one pretrained encoder on several tasks and seeds, and pool what was gained and lost.

    python benchmarks/slim_tasks.py --model PATH --tasks sst2,mrpc,imdb --seeds 0,1,2

Each (task, seed) is a run of ``sparing slim`` in its own folder, with the dense rival trained on
as long as ours is distilled, plans chosen on the dev set and judged on the labelled test set; what
is finished is read back, so the whole may be run in pieces. Data comes from SPARING_DATA. On one
thread of a 2020s server expect an hour for each run of sst2 or mrpc, several for imdb.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from sparing.core.record import Record
from sparing.report import write_report
from sparing.studies import slim
from sparing.studies._run import write_atomically

ONE_SIDED = 1.645
TASKS: dict[str, dict[str, Any]] = {
    "sst2": {
        "task_options": {"test": "labelled", "examples": 20000},
        "choose_on": "dev",
        "dense_epochs": 2,
        "epochs": 4,
    },
    "mrpc": {
        "task_options": {"test": "labelled"},
        "choose_on": "dev",
        "dense_epochs": 4,
        "epochs": 8,
    },
    "imdb": {
        "task_options": {"max_tokens": 512, "examples": 5000},
        "dense_epochs": 2,
        "epochs": 3,
        "timed_examples": 500,
    },
}


def options_of(task: str, model: str, seed: int, speed: float) -> slim.Options:
    """The settings of one run."""
    common = slim.Options(
        model=model,
        task=task,
        speed=speed,
        seed=seed,
        continue_dense=True,
        static_control=seed == 0,
        compiled=True,
        precision="bfloat16",
        attention_dropout=False,
    )
    return replace(common, **TASKS[task])


def forms(records: Iterable[Record], name: str, arm: str, batch: int) -> list[Record]:
    """The records of one arm at one batch size, every engine."""
    wanted = {"arm": arm, "batch": batch}.items()
    return [r for r in records if r.name == name and wanted <= r.labels.items()]


def summary_of(records: list[Record], batch: int) -> dict[str, float] | None:
    """Speed and score difference of ours in its fastest engine; None where there is none."""
    speeds = forms(records, "speed_up", "slim", batch)
    if not speeds:
        return None
    best = max(speeds, key=lambda record: record.value or 0.0)
    gap = next(
        record
        for record in forms(records, "score_difference", "slim", batch)
        if record.labels["engine"] == best.labels["engine"]
    )
    assert gap.interval is not None
    low, high = gap.interval
    return {
        "speed_up": float(best.value or 0.0),
        "difference": float(gap.value or 0.0),
        "standard_error": (high - low) / (2 * ONE_SIDED),
        "examples": gap.count,
    }


def pooled(rows: list[dict[str, Any]]) -> dict[str, float]:
    """All tasks and seeds together, tasks weighted by their test examples.

    Seeds of one task share its test examples, so that their errors are taken as one: the mean of
    the differences has the mean of the standard errors. Tasks are independent. Speeds are averaged
    as logarithms.
    """
    tasks = sorted({row["task"] for row in rows})
    groups = [[row for row in rows if row["task"] == task] for task in tasks]
    counts = [group[0]["examples"] for group in groups]
    shares = [count / sum(counts) for count in counts]
    differences = [mean(row["difference"] for row in group) for group in groups]
    errors = [mean(row["standard_error"] for row in group) for group in groups]
    difference = sum(s * d for s, d in zip(shares, differences, strict=True))
    error = sqrt(sum((s * e) ** 2 for s, e in zip(shares, errors, strict=True)))
    return {
        "speed_up": exp(mean(log(row["speed_up"]) for row in rows)),
        "difference": difference,
        "one_sided_95_bound": difference - ONE_SIDED * error,
        "examples": sum(counts),
        "runs": len(rows),
    }


def show(rows: list[dict[str, Any]], totals: dict[int, dict[str, float]]) -> None:
    """The runs and what they come to."""
    table = Table("task", "seed", "batch", "speed over the fastest dense", "difference", box=None)
    for row in rows:
        error = ONE_SIDED * row["standard_error"]
        gap = f"{100 * row['difference']:+.2f} +- {100 * error:.2f} points"
        table.add_row(
            row["task"], str(row["seed"]), str(row["batch"]), f"{row['speed_up']:.2f}", gap
        )
    console = Console()
    console.print(table)
    for batch, total in totals.items():
        console.print(
            f"batch {batch}: {total['speed_up']:.2f} times as fast, "
            f"{100 * total['difference']:+.2f} points, above "
            f"{100 * total['one_sided_95_bound']:+.2f} with 95 % confidence, over "
            f"{total['examples']:.0f} test examples and {total['runs']:.0f} runs"
        )


def main() -> None:
    """Do what is missing, then pool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a pretrained encoder's folder")
    parser.add_argument("--tasks", default="sst2,mrpc,imdb", help="separated by commas")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--speed", type=float, default=2.0, help="the speed to aim for")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/slim-tasks"))
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Progress() as bar:
        for task in given.tasks.split(","):
            for seed in map(int, given.seeds.split(",")):
                place = given.output_dir / f"{task}-{seed}"
                line = bar.add_task(place.name, total=1.0)
                result = slim.run(
                    options_of(task, given.model, seed, given.speed),
                    place,
                    on_progress=lambda share, _, line=line: bar.update(line, completed=share),
                )
                write_report(place)
                for batch in (1, 8):
                    found = summary_of(result.records, batch)
                    if found is not None:
                        rows.append({"task": task, "seed": seed, "batch": batch, **found})
    totals = {
        batch: pooled([row for row in rows if row["batch"] == batch])
        for batch in sorted({row["batch"] for row in rows})
    }
    show(rows, totals)
    content = json.dumps({"runs": rows, "pooled": totals}, indent=2)
    write_atomically(given.output_dir / "summary.json", content + "\n")


if __name__ == "__main__":
    main()
