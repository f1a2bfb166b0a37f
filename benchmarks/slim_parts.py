"""Which parts of slim paid before December 2026: speed, points, and minutes of training.

    python benchmarks/slim_parts.py benchmarks/results/slim-before-2026-12

Nothing is run. A gain is that of the part over what is named beside it. Speeds are at batch 1.
Intervals have 90 %: of speed and of scores on the choosing half over runs, of test points over
rows and runs. A part pays on a task if it gives 2 % of speed or 0.2 points, and its interval
excludes a loss.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from slim_rules import (
    CONFIDENCE,
    DENSE_INT8,
    INT8,
    OURS,
    STATIC,
    Gain,
    SlimRun,
    over_runs,
    points,
    runs_of,
)
from sparing.core.record import Record
from sparing.measure.pooling import pool_differences
from sparing.report.markdown import plain_table

SHOWN = ("runs", "speed, %", "accuracy, points", "agreement, points", "minutes")
HEADS = ("part", "beside", *SHOWN, "pays on")
TASK_HEADS = ("part", "beside", "task", *SHOWN, "pays")
SPEED, POINTS = 0.02, 0.002
SCALES = ("per tensor", "per block", "per channel")
Number = Callable[[SlimRun], float]


@dataclass(frozen=True)
class Part:
    """A part, what it is compared with, and the runs that show it.

    ``speed`` is the factor of a run, with its interval if one was recorded, and ``gain`` its points
    of score. If ``forms`` is given, points come from the test rows of two forms, and agreement too.
    """

    name: str
    beside: str
    shows: Callable[[SlimRun], bool]
    speed: Callable[[SlimRun], Gain] | None = None
    gain: Number | None = None
    forms: tuple[str, str] | None = None
    minutes: Number | None = None

    def cells(self, runs: Sequence[SlimRun]) -> tuple[str, ...]:
        """The cells of some runs after the task."""
        speed = _percent([self.speed(run) for run in runs]) if self.speed else None
        score, agreement = self._points(runs)
        minutes = f"{np.mean([self.minutes(run) for run in runs]):.0f}" if self.minutes else "–"
        shown = (points(gain) for gain in (speed, score, agreement))
        return (str(len(runs)), *shown, minutes, pays(speed, (score, agreement)))

    def _points(self, runs: Sequence[SlimRun]) -> tuple[Gain | None, Gain | None]:
        if self.forms:
            first, second = (row_gains(runs, n, self.forms) for n in ("accuracy", "agreement"))
            return first, second
        return (over_runs([self.gain(run) for run in runs]), None) if self.gain else (None, None)


def pays(speed: Gain | None, scores: Sequence[Gain | None]) -> str:
    """Whether a gain is shown: "yes", "no", or "trade" where the other is shown to be lost."""
    pairs = [(speed, SPEED), *((gain, POINTS) for gain in scores)]
    given = [(gain, least) for gain, least in pairs if gain is not None and gain[1] is not None]
    won = any(gain[0] >= least and gain[1][0] > 0 for gain, least in given)
    lost = any(gain[1][1] < 0 for gain, _ in given)
    return ("trade" if lost else "yes") if won else "no"


def row_gains(runs: Sequence[SlimRun], name: str, forms: tuple[str, str]) -> Gain:
    """The first form's accuracy or agreement less the second's, over rows and runs."""
    tasks = [
        np.stack([r.rows[forms[0]][name] - r.rows[forms[1]][name] for r in runs if r.task == task])
        for task in sorted({run.task for run in runs})
    ]
    total = pool_differences(tasks, confidence=CONFIDENCE)
    return total.value, total.interval


def _percent(factors: Sequence[Gain]) -> Gain:
    """The geometric mean of factors less 1, over runs; a single run has its own interval."""
    if len(factors) == 1:
        value, interval = factors[0]
        return value - 1, interval and (interval[0] - 1, interval[1] - 1)
    mean, ends = over_runs([log(value) for value, _ in factors])
    return exp(mean) - 1, ends and (exp(ends[0]) - 1, exp(ends[1]) - 1)


def served(run: SlimRun) -> str:
    """The kind of the form that slim serves; "adaptive" in runs without fine-tuning."""
    plans = run.all("fixed_width_plan")
    return str(plans[0].labels["attempt"]) if plans else "adaptive"


def exits(run: SlimRun) -> bool:
    """Whether test inputs exit after more than one layer."""
    return sum((r.value or 0.0) > 0 for r in run.all("exit_rate")) > 1


def trained(*attempts: str) -> Number:
    """The minutes of the trainings at fixed width of these kinds, of all kinds unless given."""

    def minutes(run: SlimRun) -> float:
        trainings = run.all("train_time_s", arm="slim fixed-width")
        chosen = [t for t in trainings if not attempts or t.labels["attempt"] in attempts]
        return sum(float(t.value or 0.0) for t in chosen) / 60

    return minutes


def static_minutes(run: SlimRun) -> float:
    """The minutes of the static pruned model's training."""
    return run.value("train_time_s", arm=STATIC) / 60


def over_adaptive(run: SlimRun, form: str) -> float | None:
    """Test score of a form less that of the adaptive model at the same speed, by interpolation.

    The adaptive model's plans were timed and scored on the test. None if the speed is beyond those
    of its plans that lose at most five points.
    """
    speeds = {r.labels["plan"]: float(r.value or 1.0) for r in run.all("front_speed_up")}
    gaps = {r.labels["plan"]: float(r.value or 0.0) for r in run.all("front_difference")}
    known = sorted((log(speeds[plan]), gap) for plan, gap in gaps.items() if gap >= -0.05)
    labels = {"arm": form, "batch": 1}
    if not known or not run.all("speed_up", **labels):
        return None
    speed = log(run.speed(form))
    if not known[0][0] <= speed <= known[-1][0]:
        return None
    gap = run.all("score_difference", engine="onnxruntime", **labels)[0].value or 0.0
    return float(gap - np.interp(speed, *zip(*known, strict=True)))


def over_random(run: SlimRun) -> float | None:
    """Score of plans with one exit less that of random exits at the same rate, on average.

    Random exits score as the two depths do, weighted by the rate. All thresholds with a rate from
    10 to 90 % count, so none was selected by its score.
    """
    points_ = [r for r in run.all("frontier_score") if "narrow" not in r.labels]
    depths = {_shape(r): float(r.value or 0.0) for r in points_ if r.labels["kind"] == "depth"}
    gains = []
    for record in points_:
        exits_ = json.loads(str(record.labels["plan"]))["exits"]
        if record.labels["kind"] != "exits" or len(exits_) != 1:
            continue
        deep, mean = int(record.labels["depth"]), float(record.labels["mean_layers"])
        rate = (deep - mean) / (deep - exits_[0])
        if 0.1 <= rate <= 0.9:
            early, late = (depths[_shape(record, depth)] for depth in (exits_[0], deep))
            gains.append(float(record.value or 0.0) - rate * early - (1 - rate) * late)
    return float(np.mean(gains)) if gains else None


def _shape(record: Record, depth: int | None = None) -> tuple[Any, ...]:
    labels = record.labels
    return labels["width"], labels["tokens_kept"], depth or labels["depth"]


def _fallback(run: SlimRun) -> tuple[Gain, float]:
    """The compute of the attempt before over the fallback's, and the points gained."""
    tried = [p for p in run.all("attempted_plan") if p.labels["attempt"] != "alone"]
    before, last = tried[-2].labels, tried[-1].labels
    score = float(last["score"]) - float(before["score"])
    return (float(before["cost_share"]) / float(last["cost_share"]), None), score


def int8_trials(run: SlimRun) -> dict[str, Record]:
    """The INT8 forms of slim that were tried, by their scales."""
    trials: dict[str, Record] = {}
    for trial in run.all("int8_trial", arm=INT8):
        settings = str(trial.labels["settings"])
        name = next(scales for scales in SCALES if scales in settings)
        if "float32:" in settings:
            name = f"mixed, {settings.partition('float32:')[2].count(',') + 1} in float32"
        trials[name] = trial
    return trials


def _int8_part(name: str) -> Part:
    def both(run: SlimRun) -> tuple[Record, Record]:
        trials = int8_trials(run)
        return trials[name], trials["per channel"]

    def speed(run: SlimRun) -> Gain:
        first, second = both(run)
        return (first.value or 1.0) / (second.value or 1.0), None

    def gain(run: SlimRun) -> float:
        first, second = both(run)
        return float(first.labels["score"]) - float(second.labels["score"])

    return Part(f"INT8 {name}", "per channel", lambda run: name in int8_trials(run), speed, gain)


def _beside_static(run: SlimRun) -> Gain:
    record = run.all("static_speed_up", batch=1)[0]
    return record.value or 1.0, record.interval


def _over_int8(form: str) -> Part:
    def speed(run: SlimRun) -> Gain:
        recorded = run.all("int8_speed_up", arm=form)
        if recorded:
            return recorded[0].value or 1.0, recorded[0].interval
        return run.speed(form) / run.speed(DENSE_INT8), None

    return Part(
        *(form, DENSE_INT8, lambda run: form in run.answers, speed), forms=(form, DENSE_INT8)
    )


def parts() -> list[Part]:
    """All parts that the records show."""
    pair = (OURS, STATIC)
    return [
        Part(
            *("shallow plan with exits", "static pruned model"),
            lambda run: run.pair and served(run) == "shallow",
            *(_beside_static, None, pair, trained("shallow")),
        ),
        Part(
            *("chosen plan, fine-tuned", "static pruned model"),
            lambda run: run.pair and served(run) == "chosen",
            *(_beside_static, None, pair, trained("chosen")),
        ),
        Part(
            *("fine-tuning at fixed width", "adaptive, same speed"),
            lambda run: served(run) not in ("adaptive", "alone") and _known(run, OURS),
            *(None, lambda run: over_adaptive(run, OURS) or 0.0, None, trained()),
        ),
        Part(
            *("static pruned model", "adaptive, same speed"),
            lambda run: _known(run, STATIC),
            *(None, lambda run: over_adaptive(run, STATIC) or 0.0, None, static_minutes),
        ),
        Part(
            *("second fallback", "attempt before"),
            lambda run: trained("fallback")(run) > 0,
            *(lambda run: _fallback(run)[0], lambda run: _fallback(run)[1], None),
            trained("fallback"),
        ),
        Part(
            *("exits by confidence", "random exits"),
            lambda run: over_random(run) is not None,
            *(None, lambda run: over_random(run) or 0.0),
        ),
        *map(_int8_part, ("per tensor", "per block", *(f"mixed, {n} in float32" for n in (2, 4)))),
        *map(_over_int8, (OURS, INT8)),
    ]


def _known(run: SlimRun, form: str) -> bool:
    return over_adaptive(run, form) is not None


def parts_table(runs: Sequence[SlimRun]) -> str:
    """A line for each part over all tasks, with the tasks where it pays."""
    lines = []
    for part in parts():
        shown = [run for run in runs if part.shows(run)]
        if not shown:
            continue
        paid = {task: part.cells(_of(shown, task))[-1] for task in _tasks(shown)}
        marks = {"yes": "", "trade": " (trade)"}
        on = ", ".join(task + marks[kind] for task, kind in paid.items() if kind in marks)
        lines.append((part.name, part.beside, *part.cells(shown)[:-1], on or "none"))
    return plain_table(HEADS, lines)


def tasks_table(runs: Sequence[SlimRun]) -> str:
    """A line for each part and task."""
    lines = []
    for part in parts():
        shown = [run for run in runs if part.shows(run)]
        lines += [
            (part.name, part.beside, task, *part.cells(_of(shown, task))) for task in _tasks(shown)
        ]
    return plain_table(TASK_HEADS, lines)


def _tasks(runs: Sequence[SlimRun]) -> list[str]:
    return sorted({run.task for run in runs})


def _of(runs: Sequence[SlimRun], task: str) -> list[SlimRun]:
    return [run for run in runs if run.task == task]


def main() -> None:
    """Print the table of all tasks, and that by task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="the folder that holds the runs")
    runs = runs_of(parser.parse_args().records)
    print(f"{parts_table(runs)}\n\n{tasks_table(runs)}")


if __name__ == "__main__":
    main()
