"""Which candidates slim should try, and on which texts it should time them.

    python benchmarks/slim_shares.py RUN [RUN ...] --splits 12 --sizes 100,436 --output FILE

Each run's texts to choose and to calibrate on are divided anew, many times. Thresholds are chosen,
speeds are those on 120 texts, and the frontier is certified, under every rule:

- shares: *epsilons* tries each epsilon and the largest share that passes its certificate, *likely*
  tries that one and a share that likely passes (``shares_to_try``).
- cuts: *no cuts* tries the same shares as *likely*, without the plan's first layers alone.
- neighbours: *bold* tries the same shares as *likely*, without safer neighbours (``with_safer``).
- texts: *random* ones, *representative* ones, or *all* choosing texts.
- equal: of forms with equally many changes those of smaller *divergence* are tested first, or
  only the fastest is (*speed*; for *bold* candidates and *representative* texts).

The tables have the speed of the certified form over all choosing texts, geometric means, and the
standard deviation of a speed by the texts that are timed. Times are not measured here: every
stage takes its share of layers of a form's measured time, in proportion to a text's length.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slim_from_bert import steps_in
from sparing.core.errors import SparingError, UsageError
from sparing.core.writing import write_atomically
from sparing.experiment.run import read_tensors
from sparing.experiment.study import base_config
from sparing.measure.calibration import most_changes
from sparing.report.markdown import plain_table
from sparing.slim.engines import cascade_precision
from sparing.slim.evidence.between import candidates_between, costs_of, staged
from sparing.slim.evidence.candidates import (
    DENSE,
    Candidate,
    Screened,
    losses,
    shares_to_try,
    stages,
    taken,
    with_safer,
)
from sparing.slim.evidence.certified import EPSILONS, certified_frontier
from sparing.slim.evidence.certify import FILE, PARTS, SAMPLE, every_candidate, stored_name
from sparing.slim.evidence.representative import representative
from sparing.slim.search.divergence import divergence

DELTA = 0.05
NO_CUTS, BOLD = "no cuts", "bold"
SHARES, TEXTS = ("epsilons", "likely", NO_CUTS, BOLD), ("random", "representative", "all")
BOTH_ORDERS = (BOLD, "representative")
NAMES = ("run", "texts", "shares", "timed_on", "equal")
HEADS = (
    *(name.replace("_", " ") for name in NAMES),
    *(f"at {100 * e:g} %" for e in EPSILONS),
    "mean",
)
Costs = NDArray[np.float64]


@dataclass(frozen=True)
class Answered:
    """A run's forms with their answers to all texts, choosing ones first, and their speeds."""

    answers: Mapping[Candidate, Tensor]
    speeds: Mapping[Candidate, float]
    layers: Sequence[int]
    lengths: NDArray[np.int64]

    def of(self, texts: NDArray[np.int64]) -> dict[Candidate, Tensor]:
        """The answers to some of the texts."""
        return {key: answers[torch.from_numpy(texts)] for key, answers in self.answers.items()}

    @property
    def exact(self) -> Candidate:
        """The fastest dense form in float32: its time is 1."""
        forms = [key for key in self.answers if (key.model, key.precision) == (DENSE, "float32")]
        return max(forms, key=lambda key: self.speeds[key])


def read(folder: Path) -> Answered:
    """The forms of a finished run."""
    steps, stored = steps_in(folder), read_tensors(folder / FILE)
    speeds = {form.candidate: form.speed for form in steps.state.forms}
    answers = {
        key: torch.cat([stored[stored_name(key, part)] for part in PARTS])
        for key in steps.state.competing
    }
    plan = steps.plan()
    lengths = [length for part in steps.parts for length in part.lengths]
    return Answered(answers, speeds, (*plan.stops, plan.layers), np.array(lengths))


def times(one: Candidate, run: Answered, answers: Mapping[Candidate, Tensor]) -> Costs:
    """The time of every text, over that of the fastest dense form in float32 per token."""
    layers = run.layers if one.exits else (1,)
    if one.second < 1:
        by_stage = costs_of(one.key, layers, run.speeds).numpy()
    else:
        by_stage = np.array([number / layers[-1] / run.speeds[one.key] for number in layers])
        last = replace(one.between, precision=cascade_precision(one.precision), settings="")
        by_stage = np.append(by_stage, by_stage[-1] + 1 / run.speeds.get(last, 1.0))
    _, exits = taken(one, stages(one, answers))
    taking: Costs = by_stage[exits.numpy()]
    return taking


def listed(rule: str, run: Answered, answers: Mapping[Candidate, Tensor]) -> list[Candidate]:
    """The candidates under a rule for shares; the choosing texts have these answers."""
    reference, count = answers[run.exact][:, 0], len(answers[run.exact])
    shares = passing = shares_to_try(count, EPSILONS, DELTA)
    if rule == "epsilons":
        most = [most_changes(count, epsilon, DELTA / len(EPSILONS)) for epsilon in EPSILONS]
        passing = sorted({max(0, one) / count for one in most})
        shares = sorted({*EPSILONS, *passing})
    if rule == NO_CUTS:
        answers = {key: made for key, made in answers.items() if key.layers is None}
    forms = [Screened(key, speed, True, True) for key, speed in run.speeds.items()]
    every = every_candidate(forms, answers, run.layers, reference, shares)
    candidates = [one for one in every if one.second == 1]
    candidates += candidates_between(staged(forms, answers, run.layers), reference, passing)
    if rule != BOLD:
        candidates = with_safer(candidates, answers)
    return [one for one in candidates if one != run.exact]


def divided(run: Answered, size: int, seed: int) -> list[dict[str, Any]]:
    """The certified speeds of one division, under every rule."""
    known, drawn = len(run.lengths), np.random.default_rng(seed)
    if not 1 <= size <= known // 2:
        raise UsageError(
            f"{size:,} texts for each part are too many or none: there are {known:,} for both"
        )
    order = drawn.permutation(known)
    parts = order[:size], order[size : 2 * size]
    choose, calibrate = (run.of(part) for part in parts)
    lengths, by_chance = run.lengths[parts[0]], drawn.choice(size, min(SAMPLE, size), replace=False)
    rows = []
    for rule in SHARES:
        forms = listed(rule, run, choose)
        taking = np.stack([times(one, run, choose) for one in forms]) * lengths
        tables = [losses(forms, held, held[run.exact][:, 0]) for held in (calibrate, choose)]
        served = [taken(one, stages(one, choose)) for one in forms]
        reference = choose[run.exact][:, 0]
        divergences = np.array([divergence(answers, reference) for answers, _ in served])
        efforts = torch.stack([exits.double() for _, exits in served]).mean(0)
        timed = by_chance, representative(efforts, lengths.tolist(), SAMPLE), np.arange(size)
        every = lengths.sum() / taking.sum(1)
        for texts, few in zip(TEXTS, timed, strict=True):
            seen = lengths[few].sum() / taking[:, few].sum(1)
            early = np.array([one.threshold < 1 for one in forms])
            errors = np.log(seen / every)[early]
            error = float(np.sqrt((errors**2).mean())) if errors.size else None
            row = {"texts": size, "seed": seed, "shares": rule, "timed_on": texts}
            row |= {"candidates": len(forms), "error": error}
            orders = {"divergence": divergences}
            if (rule, texts) == BOTH_ORDERS:
                orders["speed"] = -seen
            for equal, by in orders.items():
                speeds = _certified(seen, every, tables, by)
                rows.append({**row, "equal": equal, "speeds": speeds})
    return rows


def _certified(seen: Costs, every: Costs, tables: Sequence[Costs], by: Costs) -> list[float]:
    """The speed of the certified form for each epsilon: it is chosen by those that were seen.

    Forms with equally many changes are tested in the order of ``by``.
    """
    faster = np.flatnonzero(seen > 1)
    if not faster.size:
        return [1.0] * len(EPSILONS)
    calibrate, choose = (table[:, faster] for table in tables)
    points = certified_frontier(calibrate, seen[faster], choose, by[faster], EPSILONS, DELTA)
    return [1.0 if p.form is None else max(1.0, float(every[faster[p.form]])) for p in points]


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each run, number of texts and rule: geometric means over the divisions."""
    groups = dict[tuple[Any, ...], list[Mapping[str, Any]]]()
    for row in rows:
        groups.setdefault(tuple(row[name] for name in NAMES), []).append(row)
    pooled = []
    for group, here in groups.items():
        known = [row["error"] for row in here if row["error"] is not None]
        numbers = {
            "divisions": len(here),
            "candidates": float(np.mean([row["candidates"] for row in here])),
            "error": float(np.sqrt(np.mean(np.square(known)))) if known else None,
            "speeds": np.exp(np.log([row["speeds"] for row in here]).mean(0)).round(4).tolist(),
        }
        pooled.append({**dict(zip(NAMES, group, strict=True)), **numbers})
    return pooled


def table(pooled: Sequence[Mapping[str, Any]]) -> str:
    """A line for each row of ``summary``."""
    lines = []
    for row in pooled:
        speeds = [*row["speeds"], np.exp(np.log(row["speeds"]).mean())]
        names = (row[name] for name in NAMES)
        lines.append((*map(str, names), *(f"{speed:.2f}" for speed in speeds)))
    return plain_table(HEADS, lines)


def errors_of(pooled: Sequence[Mapping[str, Any]]) -> str:
    """The standard deviation of a speed, by the texts that are timed."""
    lines = []
    for texts in TEXTS[:-1]:
        known = [r["error"] for r in pooled if r["timed_on"] == texts and r["error"] is not None]
        lines.append((texts, f"{100 * np.sqrt(np.mean(np.square(known))):.1f} %"))
    return plain_table((f"{SAMPLE} texts", "error of a speed with exits"), lines)


def main() -> None:
    """Divide, certify, print both tables, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs of slim")
    parser.add_argument("--splits", type=int, default=12, help="divisions of each run")
    parser.add_argument("--sizes", default="436,1600", help="texts to choose and to calibrate on")
    parser.add_argument("--output", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args()
    if given.splits < 1:
        parser.error(f"--splits must be at least 1; got {given.splits}")
    rows: list[dict[str, Any]] = []
    try:
        for folder in given.runs:
            run = read(folder)
            for size in map(int, given.sizes.split(",")):
                if 2 * size > len(run.lengths):
                    print(f"{folder}: no row at {size:,}, it has {len(run.lengths):,} texts")
                    continue
                for seed in range(given.splits):
                    rows += [{"run": folder.name, **row} for row in divided(run, size, seed)]
    except SparingError as error:
        raise SystemExit(str(error)) from error
    pooled = summary(rows)
    print(table(pooled), errors_of(pooled), sep="\n\n")
    if given.output is not None:
        names = [folder.name for folder in given.runs]
        facts = base_config("shares to try", {"runs": names, "splits": given.splits})
        write_atomically(given.output, json.dumps({**facts, "rows": pooled}, indent=1) + "\n")


if __name__ == "__main__":
    main()
