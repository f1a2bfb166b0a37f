"""Train the calculator with several seeds, prove it, and try it far beyond its training.

    python benchmarks/calculator.py --output benchmarks/results/calculator.json

About six minutes of one core a seed; half of it with ``--through``, where the scanner alone is
trained, through the other parts of a calculator that exists. What is finished is read back from
the output. The sums of the tests are sampled from seeds that training does not use. The network
reads them twice: with single spaces around operators, and with 0 to 8 spaces in every gap, at both
ends too. The longer ones cannot come up in training; those of the published sets that are as short
as what the network learns from are kept out of it. ``far`` has up to 64 spaces in a gap, more than
training, to see whether confidence falls where answers do. Beside the network is the control that
shows how much depends on the form of the input: a sum of two weights on values instead of
characters.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from sparing.calculator import (
    Calculator,
    CalculatorRecipe,
    prove_calculator,
    train_calculator,
)
from sparing.calculator.texts import MOST_SPACES, freely_spaced
from sparing.core.writing import write_atomically
from sparing.measure.machine import commit, machine, machine_id
from sparing.report.markdown import plain_table
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.expressions import Expression, draw_many
from sparing.tasks.shared.published import published

FRESH, STRETCHED, DRAWING = 1000, 200, "calculator benchmark, third drawing,"
# Operands and digits; exactly as many of each, but for "mixed": up to 16 of up to 12.
SUITES = {"4x3": (4, 3), "16x3": (16, 3), "4x12": (4, 12), "16x12": (16, 12)}
STRETCH = {"64x3": (64, 3), "4x40": (4, 40)}
SPACED, FREE = "single spaces", f"0 to {MOST_SPACES} spaces"
FAR_SPACES = 64


def suites() -> dict[str, Sequence[Expression]]:
    """Every set of sums that is evaluated."""
    sets: dict[str, Sequence[Expression]] = {
        name: sums for name, sums in published().items() if name in ("in", "out", "long")
    }
    for name, (operands, digits) in {**SUITES, **STRETCH}.items():
        seed, count = f"{DRAWING} {name}", STRETCHED if name in STRETCH else FRESH
        sets[name] = draw_many(count, (operands, operands), digits, seed=seed, exact_digits=True)
    sets["mixed"] = draw_many(FRESH, (1, 16), 12, seed=f"{DRAWING} mixed")
    return sets


def counted(right: int, count: int) -> dict[str, Any]:
    """How many of ``count`` sums are right, with Wilson's 95 % interval."""
    interval = binomtest(right, count).proportion_ci(method="wilson")
    return {
        "count": count,
        "right": right,
        "share": right / count,
        "wilson": [interval.low, interval.high],
    }


def score_sums(
    network: Calculator, sums: Sequence[Expression], texts: Sequence[str]
) -> dict[str, Any]:
    """How many answers are right, with Wilson's 95 % interval, and errors by character written."""
    begun = time.perf_counter()
    answers = network.answer(texts)
    took = time.perf_counter() - begun
    right = [a.text == str(e.value) for a, e in zip(answers, sums, strict=True)]
    steps = sum(len(answer.totals) * len(answer.totals[0]) for answer in answers)
    first = next((text for text, good in zip(texts, right, strict=True) if not good), None)
    return {
        **counted(sum(right), len(right)),
        "wrong_per_step": (len(right) - sum(right)) / steps,
        "microseconds_each": 1e6 * took / len(right),
        "first_wrong": first,
        "confidence": [answer.confidence for answer in answers],
        "correct": right,
    }


def sureness(answers: Mapping[str, Any]) -> dict[str, Any]:
    """How well confidence separates correct from wrong answers; no AUROC where all are the same."""
    correct, sure = np.array(answers["correct"]), np.array(answers["confidence"])
    wrong = ~correct
    both = bool(wrong.any() and correct.any())
    return {
        "auroc": float(roc_auc_score(correct, sure)) if both else None,
        "wrong_above_half": float((sure[wrong] > 0.5).mean()) if wrong.any() else None,
        "wrong": int(wrong.sum()),
        "count": len(sure),
        "mean": float(sure.mean()),
        "right_below_half": float((sure[correct] <= 0.5).mean()) if correct.any() else None,
    }


def read_both_ways(network: Calculator, seed: int) -> dict[str, Any]:
    """Every set with both spacings, and how confidence goes with answers on free spacing."""
    chance = random.Random(f"spaces {seed}")
    by_suite: dict[str, Any] = {}
    pooled: dict[str, list[Any]] = {"confidence": [], "correct": []}
    for name, sums in suites().items():
        spaced = score_sums(network, sums, [expression.text for expression in sums])
        free = score_sums(network, sums, [freely_spaced(expression, chance) for expression in sums])
        by_suite[name] = {SPACED: spaced, FREE: free}
        for key, values in pooled.items():
            values += free[key]
            del spaced[key], free[key]
    sums = draw_many(STRETCHED, (1, 16), 12, seed=f"{DRAWING} far")
    far = score_sums(
        network, sums, [freely_spaced(expression, chance, FAR_SPACES) for expression in sums]
    )
    confidence = {FREE: sureness(pooled), "far": sureness(far)}
    del far["confidence"], far["correct"]
    return {
        "suites": by_suite,
        "free": counted(sum(pooled["correct"]), len(pooled["correct"])),
        "far": far,
        "confidence": confidence,
    }


def one_seed(
    seed: int,
    recipe: CalculatorRecipe,
    bar: Progress,
    networks: Path | None = None,
    through: Path | None = None,
) -> dict[str, Any]:
    """Train, prove, evaluate; keep the network where a folder is named."""
    line = bar.add_task(f"seed {seed}", total=1.0)
    trained = train_calculator(
        seed,
        recipe,
        through=None if through is None else Calculator.load(through),
        on_progress=lambda share, text: bar.update(line, completed=share, description=text),
    )
    network = trained.network
    if networks is not None:
        networks.mkdir(parents=True, exist_ok=True)
        network.save(networks / f"{seed}.safetensors", seed=seed)
    bar.update(line, description=f"seed {seed}: reading")
    return {
        "seed": seed,
        "recipe": asdict(recipe),
        "weights": network.weights,
        "attempts": dict(trained.attempts),
        "process_s": dict(trained.process_s),
        "wall_s": dict(trained.wall_s),
        "proofs": [{**asdict(p), "holds": p.holds} for p in prove_calculator(network)],
        **read_both_ways(network, seed),
    }


def gated_sum() -> dict[str, Any]:
    """Two weights, shared by all operands, on values: the least squares answer to the same task."""
    known = published()
    inputs, values = _gates(known["train"])
    weights = np.linalg.lstsq(inputs, values, rcond=None)[0]
    result: dict[str, Any] = {"weights": weights.tolist()}
    for name in ("in", "out", "long"):
        rows, truth = _gates(known[name])
        result[name] = float((np.abs(rows @ weights - truth) < 0.5).mean())
    return result


def _gates(sums: Sequence[Expression]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each sum, its operands added, and those behind a plus added; its value."""
    values = as_values(sums).double().numpy()
    operands, codes = values[:, ::2].copy(), np.ones((len(sums), 8))
    codes[:, 1:] = values[:, 1::2]
    absent = np.array(
        [[position >= len(expression.operands) for position in range(8)] for expression in sums]
    )
    operands[absent] = 0
    rows = np.stack([operands.sum(1), (codes * operands).sum(1)], 1)
    return rows, np.array([float(expression.value) for expression in sums])


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """The seeds beside each other."""
    table = Table("seed", "proven", "core s", *rows[0]["suites"], box=None)
    for row in rows:
        proven = "/".join("yes" if proof["holds"] else "no" for proof in row["proofs"])
        shares = [
            " ".join(f"{100 * way['share']:.2f}" for way in ways.values())
            for ways in row["suites"].values()
        ]
        table.add_row(str(row["seed"]), proven, f"{sum(row['process_s'].values()):.0f}", *shares)
    Console(width=200).print(table)


def table_of(content: Mapping[str, Any]) -> str:
    """The table of all seeds as Markdown, for a page."""
    rows = content["seeds"]
    heads = ("Sums", "count", "right, by seed", "least Wilson bound, 95 %")
    lines = []
    for name in rows[0]["suites"]:
        for way in rows[0]["suites"][name]:
            cells = [row["suites"][name][way] for row in rows]
            shares = " ".join(f"{100 * cell['share']:.2f}" for cell in cells)
            bound = 100 * min(cell["wilson"][0] for cell in cells)
            errors = max(cell["wrong_per_step"] for cell in cells)
            count = f"{cells[0]['count']:,}"
            lines.append((f"{name}, {way}", count, shares, f"{bound:.2f}", f"{errors:.1g}"))
    return plain_table((*heads, "most wrong answers a step"), lines)


def main() -> None:
    """Do the seeds that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2,3,4", help="separated by commas")
    parser.add_argument("--output", type=Path, default=Path("runs/calculator.json"))
    parser.add_argument(
        "--without",
        choices=("gate_noise", "symbol_noise"),
        help="leave one thing of the recipe out: an ablation, for an output of its own",
    )
    parser.add_argument("--scanner-steps", type=int, help="another length of reading lessons")
    parser.add_argument(
        "--through", type=Path, help="a calculator of which all but the scanner is taken over"
    )
    parser.add_argument("--networks", type=Path, help="a folder to keep the networks in")
    given = parser.parse_args()
    torch.set_num_threads(1)
    facts, recipe = machine(), CalculatorRecipe()
    if given.without == "gate_noise":
        recipe = replace(recipe, gate_noise=0.0)
    elif given.without:
        recipe = replace(recipe, symbol_noise=False)
    if given.scanner_steps:
        recipe = replace(recipe, scanner_steps=given.scanner_steps)
    content: dict[str, Any] = {
        "machine": facts,
        "machine_id": machine_id(facts),
        "gated_sum": gated_sum(),
        "seeds": [],
    }
    if given.output.exists():
        known = json.loads(given.output.read_text())
        if known["machine_id"] != content["machine_id"]:
            raise SystemExit(f"{given.output} is of another machine: choose another --output")
        if any(row["recipe"] != asdict(recipe) for row in known["seeds"]):
            raise SystemExit(f"{given.output} is of another recipe: choose another --output")
        content["seeds"] = known["seeds"]
    with Progress() as bar:
        for seed in map(int, given.seeds.split(",")):
            if seed in {row["seed"] for row in content["seeds"]}:
                continue
            row = one_seed(seed, recipe, bar, given.networks, given.through)
            content["seeds"].append({"commit": commit(), **row})
            given.output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(given.output, json.dumps(content, indent=1) + "\n")
    show(content["seeds"])


if __name__ == "__main__":
    main()
