"""Which rule for choosing a form would have chosen best on the runs of slim before December 2026.

    python benchmarks/slim_rules.py benchmarks/results/slim-before-2026-12

Nothing is run. The runs hold test logits of the dense model, of slim, of the static pruned model,
and of one INT8 form of dense and slim. So rules are compared as choices between these forms: each
chooses on some of the test rows and is evaluated on the others. Surveyed plans and other INT8
forms have scores on the choosing half alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from sparing.core.compressed import read_stored, stored_path
from sparing.core.reading import read_json
from sparing.core.record import Record
from sparing.experiment.owned import ANSWERS
from sparing.measure.statistics import Interval, mean_difference
from sparing.report.markdown import plain_table
from sparing.report.run import read_run

Array = NDArray[np.float64]
Gain = tuple[float, Interval | None]
DENSE, OURS, STATIC = "dense", "slim", "static"
INT8, DENSE_INT8 = "slim int8", "dense int8"
FLOAT32, ALL = (OURS, STATIC), (OURS, STATIC, INT8, DENSE_INT8)
CHOOSE_ON, SPLITS, FLOOR, CONFIDENCE = 400, 50, 0.995, 0.90
# What each rule maximises, in order; of equal forms the faster one is taken.
RULES = {
    "accuracy within the floor (today)": ("good", "accuracy"),
    "agreement": ("agreement",),
    "KL divergence": ("divergence",),
    "squared difference of log-odds": ("squares",),
    "agreement within the floor": ("good", "agreement"),
    "KL divergence within the floor": ("good", "divergence"),
}
RULE_HEADS = ("forms", "rule", "agreement", "best", "accuracy", "best", "speed")
EVIDENCE_HEADS = ("measured before, beside the same on test", "values", "correlation", "in a task")


@dataclass(frozen=True, eq=False)
class SlimRun:
    """One committed run: its task, its records, and its logits by form (empty if not kept)."""

    task: str
    records: Sequence[Record]
    answers: Mapping[str, NDArray[Any]]

    def all(self, name: str, **labels: Any) -> list[Record]:
        """The records of this name and labels."""
        pairs = labels.items()
        return [r for r in self.records if r.name == name and pairs <= r.labels.items()]

    def value(self, name: str, **labels: Any) -> float:
        """The value of the first such record."""
        return float(self.all(name, **labels)[0].value or 0.0)

    def speed(self, form: str) -> float:
        """The speed over the fastest dense form at batch 1, in the form's fastest engine."""
        return max(float(r.value or 0.0) for r in self.all("speed_up", arm=form, batch=1))

    @property
    def pair(self) -> bool:
        """Whether slim and the static pruned model are both there and are different models."""
        both = {*FLOAT32} <= self.answers.keys()
        return both and not np.array_equal(self.answers[OURS], self.answers[STATIC])

    @cached_property
    def rows(self) -> dict[str, dict[str, Array]]:
        """What each form does to each test row, larger is better."""
        return {form: row_values(self.answers, form) for form in ALL if form in self.answers}


def runs_of(root: Path) -> list[SlimRun]:
    """The runs of slim below a folder; one of shapes, without a trained model, is none."""
    runs = []
    for folder in sorted(path.parent for path in root.glob("slim-*/config.json")):
        if read_json(folder / "config.json")["study"] != "slim":
            continue
        run, path = read_run(folder), stored_path(folder / ANSWERS)
        answers = load(read_stored(path)) if path else {}
        runs.append(SlimRun(run.config["task"]["name"], run.records, answers))
    return runs


def row_values(answers: Mapping[str, NDArray[Any]], form: str) -> dict[str, Array]:
    """Row by row: accuracy, that of dense, agreement, KL divergence, squared difference."""
    ours, dense = (_log_softmax(answers[name]) for name in (form, DENSE))
    labels = answers["labels"]
    return {
        "accuracy": (ours.argmax(1) == labels).astype(float),
        "dense": (dense.argmax(1) == labels).astype(float),
        "agreement": (ours.argmax(1) == dense.argmax(1)).astype(float),
        "divergence": -(np.exp(dense) * (dense - ours)).sum(1),
        "squares": -_squares(ours, dense),
    }


def _log_softmax(logits: NDArray[Any]) -> Array:
    wide = logits.astype(np.float64) - logits.max(1, keepdims=True)
    shifted: Array = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    return shifted


def _squares(ours: Array, dense: Array) -> Array:
    """The squared difference of logits, without what all classes of a row share."""
    gap = ours - dense
    squares: Array = ((gap - gap.mean(1, keepdims=True)) ** 2).sum(1)
    return squares


def means(rows: Sequence[Mapping[str, Array]], chosen: NDArray[Any]) -> dict[str, Array]:
    """Each measure of each form on some rows; "good": its loss of accuracy is within the floor.

    As in slim, a loss may exceed the floor by one standard error of the paired difference.
    """
    values = {name: np.array([form[name][chosen].mean() for form in rows]) for name in rows[0]}
    gaps = [form["accuracy"][chosen] - form["dense"][chosen] for form in rows]
    highest = np.array([gap.mean() + gap.std() / len(gap) ** 0.5 for gap in gaps])
    values["good"] = (highest >= -(1 - FLOOR) * values["dense"]).astype(float)
    return values


def pick(rule: Sequence[str], values: Mapping[str, Array], speeds: Array) -> int:
    """The form that a rule chooses."""
    return max(range(len(speeds)), key=lambda k: (*(values[n][k] for n in rule), speeds[k]))


def rule_gains(run: SlimRun, forms: Sequence[str], choose_on: int = CHOOSE_ON) -> Array:
    """For each rule the gains over a form at random on the rows that it did not choose on.

    Columns: agreement, whether no other form agrees more, accuracy, whether none is more accurate,
    and the logarithm of speed; means over splits.
    """
    rows = [run.rows[form] for form in forms]
    speeds = np.array([run.speed(form) for form in forms])
    total = np.zeros((len(RULES), 5))
    for seed in range(SPLITS):
        drawn = np.random.default_rng(seed).permutation(len(run.answers["labels"]))
        chosen, held = (means(rows, part) for part in (drawn[:choose_on], drawn[choose_on:]))
        for number, rule in enumerate(RULES.values()):
            k = pick(rule, chosen, speeds)
            for column, name in ((0, "agreement"), (2, "accuracy")):
                values = held[name]
                total[number, column] += values[k] - values.mean()
                total[number, column + 1] += values[k] >= values.max()
            total[number, 4] += log(speeds[k]) - np.log(speeds).mean()
    return total / SPLITS


def rules_table(runs: Iterable[SlimRun], choose_on: int = CHOOSE_ON) -> str:
    """Each rule's gain over a form at random, with 90 % intervals over runs."""
    paired = [run for run in runs if run.pair]
    lines = []
    for forms, named in ((FLOAT32, "slim or static pruned"), (ALL, "these and INT8 of both")):
        gains = np.array([rule_gains(run, forms, choose_on) for run in paired])
        for number, rule in enumerate(RULES):
            agreement, best, accuracy, right, speed = gains[:, number].T
            shares = [f"{100 * share.mean():.0f} %" for share in (best, right)]
            shown = [points(over_runs(values)) for values in (agreement, accuracy)]
            faster = f"{100 * (exp(speed.mean()) - 1):+.0f} %"
            lines.append((named, rule, shown[0], shares[0], shown[1], shares[1], faster))
    return plain_table(RULE_HEADS, lines)


def over_runs(values: Sequence[float] | Array) -> Gain:
    """A mean over runs with its 90 % interval; None for one run."""
    listed = [float(value) for value in values]
    mean = mean_difference(listed, [0.0] * len(listed), confidence=CONFIDENCE)
    return mean.value, mean.interval


def points(gain: Gain | None) -> str:
    """A gain in percentage points with its interval."""
    if gain is None:
        return "–"
    if gain[1] is None:
        return f"{100 * gain[0]:+.2f}"
    return f"{100 * gain[0]:+.2f} ({100 * gain[1][0]:+.2f} to {100 * gain[1][1]:+.2f})"


def evidence(runs: Sequence[SlimRun]) -> dict[str, list[tuple[str, float, float]]]:
    """Task, earlier value and test value of each run, by what is measured and compared."""

    def gap(run: SlimRun, form: str) -> float:
        return float(run.all("whole_difference", arm=form, primary=True)[0].value or 0.0)

    def choosing(run: SlimRun) -> float:
        plan = [*run.all("fixed_width_plan"), *run.all("chosen_plan")][0]
        return float(plan.labels["score"]) - run.value("dense_score")

    def changed(run: SlimRun) -> float:
        return 1 - float(run.rows[OURS]["agreement"].mean())

    def int8(run: SlimRun) -> tuple[float, float]:
        trial = run.all("int8_trial", arm=INT8, chosen=True)[0].labels
        before = float(trial["score"]) - float(trial["float32_score"])
        return before, gap(run, INT8) - gap(run, OURS)

    answered = [run for run in runs if run.answers]
    return {
        "score of the served form less dense, choosing half": [
            (run.task, choosing(run), gap(run, OURS)) for run in answered
        ],
        "score of the kept INT8 form less float32, choosing half": [
            (run.task, *int8(run)) for run in answered
        ],
        "changed answers of the served form, calibration half": [
            (run.task, run.value("disagreement"), changed(run)) for run in answered
        ],
        "score of surveyed plans less dense, choosing half": [
            (run.task, *pair) for run in runs for pair in surveyed(run)
        ],
    }


def surveyed(run: SlimRun, worst: float = -0.03) -> list[tuple[float, float]]:
    """The gap to dense on the choosing half and on test of each plan that has both.

    Plans that lose over three points on the choosing half are not candidates.
    """
    scores = {
        r.labels["plan"]: float(r.value or 0.0) - run.value("dense_score")
        for r in run.all("frontier_score")
        if r.labels["kind"] != "random"
    }
    tested = [(scores.get(r.labels["plan"], -1.0), r) for r in run.all("front_difference")]
    return [(before, float(r.value or 0.0)) for before, r in tested if before >= worst]


def correlations(
    triples: Sequence[tuple[str, float, float]],
) -> tuple[float | None, float | None]:
    """The correlation over all, and after each task's mean is taken away; None without spread."""
    tasks = np.array([task for task, _, _ in triples])
    values = np.array([pair for _, *pair in triples]).reshape(-1, 2)
    within = values.copy()
    for task in set(tasks):
        within[tasks == task] -= within[tasks == task].mean(0)
    return _correlation(values), _correlation(within)


def _correlation(pairs: Array) -> float | None:
    if len(pairs) < 3 or not pairs.std(0).all():
        return None
    return float(np.corrcoef(pairs.T)[0, 1])


def evidence_table(runs: Sequence[SlimRun]) -> str:
    """How well what is known when choosing predicts the same on test rows."""
    lines = []
    for name, triples in evidence(runs).items():
        shown = ("–" if value is None else f"{value:.2f}" for value in correlations(triples))
        lines.append((name, str(len(triples)), *shown))
    return plain_table(EVIDENCE_HEADS, lines)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path, help="the folder that holds the runs")
    parser.add_argument("--rows", type=int, default=CHOOSE_ON, help="test rows to choose on")
    given = parser.parse_args()
    runs = runs_of(given.records)
    print(f"{rules_table(runs, given.rows)}\n\n{evidence_table(runs)}")


if __name__ == "__main__":
    main()
