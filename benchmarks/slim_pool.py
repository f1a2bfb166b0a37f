"""Pool runs of slim over tasks and seeds: speed, accuracy and what was certified.

    python benchmarks/slim_pool.py runs/slim-tasks --output runs/slim-tasks/summary.json

Nothing is run: each folder below the given one with a run of slim that reached its end counts. It
is named TASK-SEED, as ``slim_tasks.py`` names it. Speeds are averaged on a logarithmic scale, a
task counting as much as another. Accuracy is compared with the dense model in float32, input by
input, and pooled over tasks by their inputs, with inputs and seeds both as random effects
(``sparing.measure.pooling``). Texts without labels have the dense model's answers as their labels,
so that their difference is the share of changed answers. They are pooled alone.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor

from sparing.core.compressed import read_stored, stored_path
from sparing.core.record import Record
from sparing.core.rounding import rounded_down
from sparing.core.writing import write_atomically
from sparing.experiment.owned import ANSWERS
from sparing.measure.pooling import PooledDifference, pool_differences
from sparing.report.estimates import interval_text
from sparing.report.markdown import plain_table
from sparing.report.run import Run, read_run
from sparing.slim.evidence.certified import EPSILONS
from sparing.slim.promise import form_of, promise_of

NAME = re.compile(r"(?:slim-)?(?P<task>.+?)-(?:seed-)?(?P<seed>\d+)(?:-[0-9a-f]{8}-\d{4}-\d\d)?")
BATCHES, EXACT, SERVED = (1, 8), "float32", "served"
# Speed over the best dense form of any precision, and over the fastest dense form in float32.
OVER_BEST, OVER_FLOAT32 = "over best dense", "over dense float32"
CLASSES = {"float32": "float32", "bfloat16": "bfloat16", "int8": "INT8"}
SPEEDS = (OVER_BEST, *CLASSES, OVER_FLOAT32)
SPEED_NAMES = [CLASSES.get(name, name) for name in SPEEDS]
SPEED_HEADS = ("task", "seed", "served form", "batch", *SPEED_NAMES)
POOLED_HEADS = ("batch", "runs", *SPEED_NAMES)
ACCURACY_HEADS = ("form", "runs", "inputs", "difference, points", "above, 95 %", "holds for other")
STATIC_HEADS = (
    *("run", "served form", "batch", "FLOPs, served", "FLOPs, static"),
    *("served over static", "difference, points"),
)
FRONTIER_HEADS = ("task", "seed", *(f"{100 * epsilon:g} %" for epsilon in EPSILONS))


@dataclass(frozen=True, eq=False)
class SlimRun:
    """One finished run of slim: the task and seed of its folder's name, and its records."""

    task: str
    seed: int
    run: Run

    @property
    def labelless(self) -> bool:
        """Whether the dense model's answers take the place of labels."""
        return bool(self.run.config["task"].get("metric") == "agreement")

    @property
    def followed(self) -> bool:
        """Whether labels only score the forms at the end: answers are no classes."""
        return "chosen_by" in self.run.config["task"]

    @property
    def count(self) -> int:
        """How many inputs the run had in all its parts."""
        return sum(self.run.config["task"]["examples"].values())

    @property
    def served(self) -> str:
        """The name of the served form."""
        promise = promise_of(self.run.table)
        assert promise is not None  # ``finished`` has seen it
        return str(promise.form)

    def speed(self, name: str, batch: int) -> Record | None:
        """A speed at one batch size; None where no form of that precision was compared."""
        table = self.run.table
        if name == OVER_BEST:
            return table.find("served_speed_up", batch=batch)
        if name in CLASSES:
            return table.find("class_speed_up", precision=name, batch=batch)
        named = (r for r in table.all("speed_up", batch=batch) if str(form_of(r)) == self.served)
        return next(named, None)

    def form(self, precision: str) -> str | None:
        """slim's fastest form of a precision at the first batch size, or the served form."""
        if precision == SERVED:
            return self.served
        record = self.run.table.find("class_speed_up", precision=precision, batch=BATCHES[0])
        return None if record is None else str(record.labels["form"])

    @cached_property
    def answers(self) -> dict[str, Tensor]:
        """The logits on the test inputs by form, and their labels."""
        assert self.run.folder is not None
        path = stored_path(self.run.folder / ANSWERS)
        assert path is not None  # ``finished`` has seen it
        answers: dict[str, Tensor] = load(read_stored(path))
        return answers

    @cached_property
    def dense(self) -> str:
        """The name of the dense form in float32 that was timed first."""
        forms = (form_of(r) for r in self.run.table.all("agreement", arm="dense"))
        return next(str(form) for form in forms if form.precision == EXACT)

    def gaps(self, form: str) -> NDArray[np.float64]:
        """By test input: 1 where only this form is right, -1 where only dense is, else 0."""
        labels = self.answers["labels"]
        right, before = (self.answers[name].argmax(-1) == labels for name in (form, self.dense))
        gaps: NDArray[np.float64] = (right.double() - before.double()).numpy()
        return gaps


def finished(root: Path, *, followed: bool = False) -> list[SlimRun]:
    """The runs of slim in a folder that have answers, by task and seed.

    Those on tasks with one class, or the others: see ``SlimRun.followed``. Of the others the scores
    are enough: two numbers for each token of 10,000 passages are too large to keep.
    """
    runs = []
    for path in sorted(root.glob("*/config.json")):
        if json.loads(path.read_text(encoding="utf-8")).get("study") != "slim":
            continue
        name, run = NAME.fullmatch(path.parent.name), read_run(path.parent)
        answered = stored_path(path.parent / ANSWERS) is not None
        if promise_of(run.table) is None or not (answered or run.table.all("whole_score")):
            continue
        if name is None:
            raise SystemExit(f"{path.parent}: the folder of a run is named TASK-SEED")
        one = SlimRun(name["task"], int(name["seed"]), run)
        if one.followed is followed and (answered or followed):
            runs.append(one)
    return sorted(runs, key=lambda run: (run.task, run.seed))


def pooled_speed(runs: Iterable[SlimRun], name: str, batch: int) -> float | None:
    """The geometric mean of the runs' speeds; each task counts as much as the others."""
    logs: dict[str, list[float]] = {}
    for run in runs:
        if (record := run.speed(name, batch)) is not None:
            logs.setdefault(run.task, []).append(log(float(record.value or 0.0)))
    return exp(mean(map(mean, logs.values()))) if logs else None


def pooled_accuracy(runs: Sequence[SlimRun], precision: str) -> PooledDifference | None:
    """The accuracy that slim's form loses or gains over all tasks and seeds.

    ``precision`` may be "served". None where no run has such a form. The bound is one-sided, 95 %.
    """
    tasks: dict[str, list[NDArray[np.float64]]] = {}
    for run in runs:
        if (form := run.form(precision)) is not None:
            tasks.setdefault(run.task, []).append(run.gaps(form))
    return pool_differences([np.stack(gaps) for gaps in tasks.values()]) if tasks else None


def speed_table(runs: Sequence[SlimRun]) -> str:
    """A line for each run and batch size."""
    lines = [
        (run.task, str(run.seed), run.served, str(batch), *(_speed(run, n, batch) for n in SPEEDS))
        for run in runs
        for batch in BATCHES
    ]
    return plain_table(SPEED_HEADS, lines)


def _speed(run: SlimRun, name: str, batch: int) -> str:
    return interval_text(run.speed(name, batch), "{:.2f}".format)


def static_table(runs: Sequence[SlimRun]) -> str:
    """Served exits beside the static pruned model of equal FLOPs, where it was trained.

    FLOPs are those of the choosing texts, as shares of the dense model's. Both run in the same
    engine and precision. The difference is in the score against the labels, which are the dense
    model's answers where texts have none.
    """
    lines = []
    for run in runs:
        table = run.run.table
        for speed in table.all("static_speed_up"):
            batch = speed.labels["batch"]
            plan, gap = table.find("static_plan"), table.find("static_difference", batch=batch)
            assert plan is not None  # an earlier step made it
            flops = (f"{float(share or 0):.2f}" for share in (plan.labels["against"], plan.value))
            points = interval_text(gap, lambda share: f"{100 * share:+.2f}")
            cells = (interval_text(speed, "{:.2f}".format), points)
            lines.append((f"{run.task}-{run.seed}", run.served, str(batch), *flops, *cells))
    return plain_table(STATIC_HEADS, lines)


def pooled_table(runs: Sequence[SlimRun]) -> str:
    """The speeds over all tasks, a line for each batch size."""
    lines = []
    for batch in BATCHES:
        speeds = (pooled_speed(runs, name, batch) for name in SPEEDS)
        shown = ("–" if speed is None else f"{speed:.2f}" for speed in speeds)
        lines.append((str(batch), str(len(runs)), *shown))
    return plain_table(POOLED_HEADS, lines)


def accuracy_table(runs: Sequence[SlimRun]) -> str:
    """A line for the served form and for slim's fastest form of each precision."""
    lines = []
    for name in (SERVED, *CLASSES):
        total = pooled_accuracy(runs, name)
        if total is not None:
            counts = (str(total.runs), f"{total.examples:,}")
            # rounded so that what is said stays true
            bound = f"{rounded_down(100 * total.bound, 2):+.2f}"
            other = "inputs and trainings" if total.of_other_trainings else "inputs alone"
            shown = f"{100 * total.value:+.2f}"
            lines.append((CLASSES.get(name, name), *counts, shown, bound, other))
    return plain_table(ACCURACY_HEADS, lines)


def frontier_table(runs: Sequence[SlimRun]) -> str:
    """The fastest certified form at each share of changed answers, and its speed."""
    lines = []
    for run in runs:
        points = (run.run.table.find("certified_speed", epsilon=epsilon) for epsilon in EPSILONS)
        cells = ("none" if p is None else f"{p.value:.2f}, {form_of(p)}" for p in points)
        lines.append((run.task, str(run.seed), *cells))
    return plain_table(FRONTIER_HEADS, lines)


def show(runs: Sequence[SlimRun]) -> str:
    """All tables in markdown, first the runs with labels, then those without."""
    parts = []
    for title, labelless in (("With labels", False), ("Without labels", True)):
        group = [run for run in runs if run.labelless is labelless]
        if group:
            tables = (pooled_table, speed_table, accuracy_table, frontier_table)
            parts += [f"## {title}", *(table(group) for table in tables)]
    return "\n\n".join(parts)


def summary(runs: Sequence[SlimRun]) -> dict[str, Any]:
    """The same as numbers, by whether texts have labels."""
    groups = {"labels": [r for r in runs if not r.labelless]}
    groups["no labels"] = [r for r in runs if r.labelless]
    return {title: _numbers(group) for title, group in groups.items() if group}


def _numbers(runs: Sequence[SlimRun]) -> dict[str, Any]:
    accuracy = {name: pooled_accuracy(runs, name) for name in (SERVED, *CLASSES)}
    return {
        "runs": [{"task": r.task, "seed": r.seed, "served": r.served} for r in runs],
        "speed": {b: {name: pooled_speed(runs, name, b) for name in SPEEDS} for b in BATCHES},
        "accuracy": {name: total and asdict(total) for name, total in accuracy.items()},
    }


def write_summary(file: Path, runs: Sequence[SlimRun]) -> None:
    """Write the numbers as JSON."""
    write_atomically(file, json.dumps(summary(runs), indent=2) + "\n")


def pool(root: Path, output: Path | None) -> None:
    """Print the tables of the finished runs in a folder, and write their numbers."""
    runs = finished(root)
    if not runs:
        raise SystemExit(f"{root} holds no finished run of slim")
    print(show(runs))
    if output is not None:
        write_summary(output, runs)


def main() -> None:
    """Pool what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="the folder that holds the runs")
    parser.add_argument("--output", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args()
    pool(given.records, given.output)


if __name__ == "__main__":
    main()
