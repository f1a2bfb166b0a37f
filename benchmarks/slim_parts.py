"""What each part of slim gives: the certified frontier of finished runs, with the part left out.

    python benchmarks/slim_parts.py runs/slim-tasks --output runs/slim-tasks/parts.json

Nothing is run: every form of a run has answered all texts to choose and to calibrate on, and every
candidate has been timed. So the frontier can be certified again without some candidates. A part's
gain is the speed with it over the speed without it, at each point and as their geometric mean. A
point without a certified form has the speed 1. Fine-tuning at fixed
width is shown by the answers that the cut plan changes, before and after. A task counts as much as
another. Intervals have 90 %, over runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log1p
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from slim_pool import SlimRun, finished
from sparing.core.writing import write_atomically
from sparing.experiment.run import read_tensors
from sparing.measure.statistics import mean_difference
from sparing.report.markdown import plain_table
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate, losses
from sparing.slim.evidence.certified import EPSILONS, certified_frontier
from sparing.slim.evidence.certify import FILE, PARTS, stored_name
from sparing.slim.state import State, is_reference, read_state

CONFIDENCE, LEAST = 0.90, 0.02
SHOWN = (0.03, 0.05, 0.08)
HEADS = ("left out", "runs", *(f"at {100 * share:g} %" for share in SHOWN), "mean", "pays on")
TUNED_HEADS = ("run", "changed before", "changed after", "minutes")
Left = Callable[[Candidate], bool]
LEFT_OUT: Mapping[str, Left] = {
    "the slim model": lambda one: one.model == OURS,
    "exits and cascades of slim": lambda one: one.exits,
    "exits of slim without a cascade": lambda one: one.exits and not one.cascade,
    "the first layers alone": lambda one: one.layers is not None,
    "all cascades": lambda one: one.cascade,
    "dense INT8 in cascades of slim": lambda one: one.second < 1,
    "cascades of dense INT8": lambda one: one.model == DENSE and one.cascade,
    "INT8": lambda one: one.precision == "int8",
    "bfloat16": lambda one: one.precision == "bfloat16",
    "ONNX Runtime": lambda one: one.engine == "onnxruntime",
    "OpenVINO": lambda one: one.engine == "openvino",
    "PyTorch": lambda one: one.engine == "eager",
}


@dataclass(frozen=True)
class Gain:
    """The certified speeds of one run at all points, with a part and without it."""

    part: str
    run: str
    task: str
    whole: list[float]
    without: list[float]


def gains_of(run: SlimRun) -> list[Gain]:
    """What every part gives to a run; parts without a candidate there are left out."""
    folder = run.run.folder
    assert folder is not None
    state, answers = read_state(folder), read_tensors(folder / FILE)
    name = f"{run.task}-{run.seed}"
    whole = speeds_without(state, answers, lambda one: False)
    gains = []
    for part, left in LEFT_OUT.items():
        if not any(left(timed.candidate) for timed in state.candidates):
            continue
        gains.append(Gain(part, name, run.task, whole, speeds_without(state, answers, left)))
    return gains


def speeds_without(state: State, answers: Mapping[str, Tensor], left: Left) -> list[float]:
    """The speed at each point of the frontier that is certified without some candidates."""
    stored = {
        part: {key: answers[stored_name(key, part)] for key in state.competing} for part in PARTS
    }
    exact = next(
        key for key in state.competing if key.model == DENSE and key.precision == "float32"
    )
    competing = [
        timed
        for timed in state.candidates
        if timed.good and timed.speed > 1 and not is_reference(timed) and not left(timed.candidate)
    ]
    if not competing:
        return [1.0] * len(EPSILONS)
    forms = [timed.candidate for timed in competing]
    tables = {part: losses(forms, held, held[exact][:, 0]) for part, held in stored.items()}
    speeds = np.array([timed.speed for timed in competing])
    divergences = np.array([timed.divergence for timed in competing])
    points = certified_frontier(tables["calibrate"], speeds, tables["choose"], divergences)
    return [point.speed or 1.0 for point in points]


def tuned_of(run: SlimRun) -> dict[str, Any]:
    """The answers that the cut plan changes before and after fine-tuning, and its minutes."""
    assert run.run.folder is not None
    chosen = read_state(run.run.folder).chosen
    assert chosen is not None
    table = run.run.table
    after = table.all("fixed_width_score", kind="depth", depth=chosen.plan.layers)[0]
    seconds = table.value("train_time_s", arm=f"{OURS} at fixed width") or 0.0
    return {
        "run": f"{run.task}-{run.seed}",
        "before": chosen.changed,
        "after": after.labels["changed"],
        "minutes": seconds / 60,
    }


def summary(runs: Sequence[SlimRun]) -> dict[str, Any]:
    """All gains as numbers."""
    gains = [asdict(gain) for run in runs for gain in gains_of(run)]
    return {"gains": gains, "tuned": [tuned_of(run) for run in runs]}


def parts_table(stored: Mapping[str, Any]) -> str:
    """A line for each part: its gain over all runs, and the tasks on which it gives 2 %."""
    lines = []
    for part in LEFT_OUT:
        rows = [row for row in stored["gains"] if row["part"] == part]
        if not rows:
            lines.append((part, "0", *("–" for _ in (*SHOWN, None)), "not measured"))
            continue
        shown = (_percent(rows, share) for share in (*SHOWN, None))
        lines.append((part, str(len(rows)), *shown, ", ".join(pays_on(rows)) or "none"))
    return plain_table(HEADS, lines)


def pays_on(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tasks on which a part gives at least 2 % at some point, and never slows a run there."""
    tasks = []
    for task in sorted({row["task"] for row in rows}):
        here = [row for row in rows if row["task"] == task]
        logs = [_logs(here, share) for share in EPSILONS]
        if any(float(np.mean(x)) >= log1p(LEAST) and min(x) >= 0 for x in logs):
            tasks.append(task)
    return tasks


def _logs(rows: Sequence[Mapping[str, Any]], share: float | None) -> list[float]:
    """The logarithm of each run's gain at one point, or its mean over all points."""
    gains = [np.log(row["whole"]) - np.log(row["without"]) for row in rows]
    if share is None:
        return [float(gain.mean()) for gain in gains]
    return [float(gain[EPSILONS.index(share)]) for gain in gains]


def _percent(rows: Sequence[Mapping[str, Any]], share: float | None) -> str:
    """The geometric mean over tasks less 1, with the interval over runs."""
    tasks = sorted({row["task"] for row in rows})
    value = np.mean([np.mean(_logs([r for r in rows if r["task"] == t], share)) for t in tasks])
    logs = _logs(rows, share)
    ends = mean_difference(logs, [0.0] * len(logs), confidence=CONFIDENCE).interval
    text = f"{100 * (exp(float(value)) - 1):+.0f} %"
    if ends is None:
        return text
    low, high = (100 * (exp(end) - 1) for end in ends)
    return f"{text} ({low:+.0f} to {high:+.0f})"


def tuned_table(stored: Mapping[str, Any]) -> str:
    """A line for each run: the answers that its cut plan changes, and what training took."""
    lines = [
        (
            row["run"],
            *(f"{100 * row[name]:.2f} %" for name in ("before", "after")),
            f"{row['minutes']:.0f}",
        )
        for row in stored["tuned"]
    ]
    return plain_table(TUNED_HEADS, lines)


def main() -> None:
    """Certify without each part, print both tables, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the folder that holds the runs")
    parser.add_argument("--output", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args()
    runs = finished(given.runs)
    if not runs:
        raise SystemExit(f"{given.runs} holds no finished run of slim")
    stored = summary(runs)
    print(parts_table(stored), tuned_table(stored), sep="\n\n")
    if given.output is not None:
        write_atomically(given.output, json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
