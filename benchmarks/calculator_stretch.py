"""What the calculator does not do, tried and written down: brackets, multiplication by one digit.

    python benchmarks/calculator_stretch.py --output runs/calculator-stretch.json

``brackets``: a scanner of 40 units learns sums with brackets to depth 3, of at most four numbers of
at most three digits, through the shipped adder. Brackets only turn signs over, so nothing but
reading is new. ``product``: a scan learns to write a row times one digit, as an operator's row
would have to be before it is added. Its label is the product of at most three digits by one. It is
given digits and factor in columns: this is the aligned form. Both are tried far beyond training.
Five minutes of one core each; what is finished is read back from the output.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor
from torch.nn.functional import one_hot

from calculator import counted
from sparing.calculator.alphabet import BLANK, TEXT, digits_of
from sparing.calculator.network import SHIPPED, Calculator
from sparing.calculator.rows import Keys, Lesson, sizes
from sparing.calculator.scan import Scan
from sparing.calculator.scanner import Scanner
from sparing.calculator.texts import Sum
from sparing.calculator.training import CalculatorRecipe, train_scan, train_scanner
from sparing.core.writing import write_atomically
from sparing.measure.machine import commit, machine, machine_id, threads
from sparing.report.markdown import plain_table
from sparing.tasks.shared.expressions import Expression, draw

DEPTH, SHARE, ASKED = 3, 0.3, 600
BRACKETS = {"4x3": (4, 3), "8x3": (8, 3), "16x3": (16, 3), "4x12": (4, 12), "16x12": (16, 12)}
NO_FACTOR = 10
Tell = Callable[[float], None]


class Bracketed:
    """Samples sums with brackets: each number, or group of numbers, may be in brackets."""

    def __init__(self, chance: random.Random, share: float, *, exact_digits: bool = False) -> None:
        self.chance, self.share, self.exact_digits = chance, share, exact_digits

    def draw(self, operands: int, digits: int) -> Sum:
        """A sum, and what it comes to without its brackets."""
        flat = draw(self.chance, operands, digits, exact_digits=self.exact_digits)
        self.numbers, self.signed = list(flat.operands), list[int]()
        self.way = self.chance.choice(("spaced", "close", "close", "mixed"))
        text = self._group(operands, 0, 1)
        plain = Expression(tuple(self.signed), ("+",) * (operands - 1))
        return Sum(plain, text)

    def _group(self, operands: int, depth: int, sign: int) -> str:
        parts: list[str] = []
        while operands:
            operator = self.chance.choice("+-") if parts else ""
            if operator:
                parts += [self._space(), operator, self._space()]
            number_sign = -sign if operator == "-" else sign
            taken = 1
            if depth < DEPTH and self.chance.random() < self.share:
                taken = self.chance.randint(1, operands)
                parts += ["(", self._group(taken, depth + 1, number_sign), ")"]
            else:
                number = self.numbers.pop()
                self.signed.append(number_sign * number)
                parts.append(str(number))
            operands -= taken
        return "".join(parts)

    def _space(self) -> str:
        spaced = self.way == "spaced" or (self.way == "mixed" and self.chance.random() < 0.5)
        return " " if spaced else ""


def draw_bracketed(chance: random.Random, count: int) -> list[Sum]:
    """What is learned from: a third of the sums has no brackets."""
    by_share = [Bracketed(chance, share) for share in (0.0, SHARE, SHARE)]
    return [chance.choice(by_share).draw(chance.randint(1, 4), 3) for _ in range(count)]


def brackets(seed: int, tell: Tell) -> dict[str, Any]:
    """Train the scanner, evaluate it with brackets and without."""
    torch.manual_seed(seed)
    network = Calculator.load(SHIPPED)
    network.scanner = Scanner(40, TEXT + "()")
    begun = time.process_time()
    train_scanner(
        network, CalculatorRecipe(), draw_bracketed, random.Random(f"brackets {seed}"), tell
    )
    result: dict[str, Any] = {"process_s": time.process_time() - begun, "weights": network.weights}
    network.eval()
    for kind, share in (("brackets", SHARE), ("none", 0.0)):
        for name, (operands, digits) in BRACKETS.items():
            chance = random.Random(f"calculator brackets {kind} {name}")
            source = Bracketed(chance, share, exact_digits=True)
            sums = [source.draw(operands, digits) for _ in range(ASKED)]
            answers = network.answer([example.text for example in sums])
            pairs = zip(answers, sums, strict=True)
            right = sum(a.text == str(e.expression.value) for a, e in pairs)
            result[f"{name}, {kind}"] = counted(right, len(sums))
    return result


def _draw_products(chance: np.random.Generator, count: int) -> Keys:
    return np.stack([sizes(chance, count), chance.integers(0, NO_FACTOR + 1, count)], 1)


def _products_in_columns(keys: Keys, width: int) -> tuple[Tensor, Tensor]:
    number, factor = torch.from_numpy(np.ascontiguousarray(keys.T))
    lengths = torch.tensor([len(str(int(value))) for value in number])
    above = torch.arange(width) >= lengths[:, None]
    row = one_hot(torch.where(above, BLANK, digits_of(number, width)), 11).float()
    product = torch.where(factor == NO_FACTOR, number, number * factor)
    shown = one_hot(factor, 11).float()[:, None].expand(-1, width, -1)
    return torch.cat([row, shown], -1), digits_of(product, width)


PRODUCTS = Lesson(_draw_products, _products_in_columns, (5, 8))


def products(seed: int, tell: Tell, symbols: int) -> dict[str, Any]:
    """Train a scan of so many symbols, evaluate it at three digits and at twelve."""
    torch.manual_seed(seed)
    scan = Scan(22, 10, symbols=symbols, hidden=128)
    chance = np.random.default_rng([seed, *b"products"])
    begun = time.process_time()
    train_scan(scan, PRODUCTS, 4000, CalculatorRecipe(), chance, tell)
    result: dict[str, Any] = {"process_s": time.process_time() - begun}
    result["weights"] = sum(parameter.numel() for parameter in scan.parameters())
    every = np.array([[number, factor] for number in range(1000) for factor in range(11)])
    generator = np.random.default_rng([*b"products of twelve digits"])
    long = generator.integers(10**11, 10**12, 2000)
    longest = np.stack([long, generator.integers(0, NO_FACTOR + 1, len(long))], 1)
    for name, keys, width in (("3 digits, all", every, 5), ("12 digits", longest, 15)):
        cells, targets = _products_in_columns(keys, width)
        with torch.no_grad():
            right = (scan(cells).argmax(-1) == targets).all(1)
        result[name] = counted(int(right.sum()), len(right))
    return result


TRIALS: dict[str, Callable[[int, Tell], dict[str, Any]]] = {
    "brackets": brackets,
    "product, 10 symbols": lambda seed, tell: products(seed, tell, 10),
    "product, 24 symbols": lambda seed, tell: products(seed, tell, 24),
}


def rows_of(content: dict[str, Any]) -> list[tuple[str, ...]]:
    """Trial, seed, set of sums, percent, interval."""
    return [
        (
            trial["trial"],
            str(trial["seed"]),
            name,
            f"{score['count']:,}",
            f"{100 * score['share']:.1f}",
            f"{100 * score['wilson'][0]:.1f} to {100 * score['wilson'][1]:.1f}",
        )
        for trial in content["trials"]
        for name, score in trial.items()
        if isinstance(score, dict) and "wilson" in score
    ]


def markdown(content: dict[str, Any]) -> str:
    """The table as Markdown, for a page."""
    head = ("Trial", "seed", "evaluated on", "sums", "percent right", "95 % interval")
    return plain_table(head, rows_of(content))


def main() -> None:
    """Do the trials that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--output", type=Path, default=Path("runs/calculator-stretch.json"))
    given = parser.parse_args()
    facts = machine()
    content: dict[str, Any] = {"machine": facts, "machine_id": machine_id(facts), "trials": []}
    if given.output.exists():
        content = json.loads(given.output.read_text())
        if content["machine_id"] != machine_id(facts):
            raise SystemExit(f"{given.output} is of another machine: choose another --output")
    done = {(finished["trial"], finished["seed"]) for finished in content["trials"]}
    with Progress() as bar, threads(1):
        for seed in map(int, given.seeds.split(",")):
            for name, trial in TRIALS.items():
                if (name, seed) in done:
                    continue
                line = bar.add_task(f"{name}, seed {seed}", total=1.0)
                result = trial(seed, lambda share, to=line: bar.update(to, completed=share))
                identity = {"trial": name, "seed": seed, "commit": commit()}
                content["trials"].append(
                    {**identity, "recipe": asdict(CalculatorRecipe()), **result}
                )
                given.output.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(given.output, json.dumps(content, indent=1) + "\n")
    table = Table("trial", "seed", "evaluated on", "sums", "percent", "interval", box=None)
    for row in rows_of(content):
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
