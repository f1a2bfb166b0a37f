"""What the calculator's parts are worth: each left out, and a transformer with the same labels.

    python benchmarks/calculator_controls.py --output benchmarks/results/calculator-controls.json

Four minutes of one core for each control and seed; what is finished is read back from the output.
Every control learns from the same sums as the calculator, of at most four numbers of at most three
digits, for about as long, and is evaluated on separate sums.

* transformer, running totals: a decoder that writes every running total, least significant digit
  first in ten's complement, and then the answer from its last character on
* transformer, answers alone: the same without the totals
* no gate noise, no symbol noise: the calculator's recipe without one of its noises
* continuous state: what goes from column to column is a distribution, not a symbol
* last total alone: the adder given rows as they should be read, with the last total as its label
* fewer steps: a network that errs, to see whether its confidence knows
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from calculator import STRETCH, counted, gated_sum, score_sums, suites, sureness
from sparing.calculator import Calculator, CalculatorRecipe, train_calculator
from sparing.calculator.alphabet import BLANK, adder_cells, digits_of
from sparing.calculator.language_model import with_pad
from sparing.calculator.scan import Scan
from sparing.calculator.texts import Sum, closely_written, draw_sums
from sparing.calculator.tiny_language_model import tiny_language_model
from sparing.core.writing import write_atomically
from sparing.measure.energy import EnergyMeter
from sparing.measure.machine import commit, machine, machine_id, threads
from sparing.models.shared.quiet import quiet
from sparing.report.markdown import plain_table
from sparing.tasks.shared.expressions import Expression

Telling = Callable[[float], None]
Suites = dict[str, Any]
FEWER = 0.15
# With and without totals, which are four times as much to write.
STEPS = {True: 1500, False: 3000}
BATCH, RATE, IGNORED = 64, 3e-3, -100
LAST_TOTAL_STEPS = 1500
SPARE_COLUMNS = 5
TESTED = {"calculator": 500, "transformer": 100}


def transformer_text(one: Sum, *, totals: bool) -> tuple[str, str]:
    """The sum with its sign of equality, and what is to be written behind it."""
    expression = one.expression
    answer = str(expression.value)[::-1]
    if not totals:
        return f"{one.text}=", answer
    width = max(len(str(abs(number))) for number in expression.operands) + 2
    values = torch.tensor(one.totals(len(expression.operands))[1:])
    rows = ["".join(map(str, row)) for row in digits_of(values, width).tolist()]
    return f"{one.text}=", " ".join(rows) + "." + answer


def train_transformer(seed: int, tell: Telling, *, totals: bool) -> tuple[Any, Any]:
    """A decoder of three layers; AdamW with warm-up and a falling rate."""
    model, tokenizer = tiny_language_model(seed=seed, inner=256)
    with_pad(tokenizer)
    chance = random.Random(f"transformer {seed}")
    descent = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-2)
    model.train()
    steps = STEPS[totals]
    for step in range(steps):
        for group in descent.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 100) * (1 - 0.99 * step / steps)
        ids, labels = _rows(tokenizer, _closely(draw_sums(chance, BATCH), chance), totals=totals)
        logits = model(input_ids=ids).logits[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        descent.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        descent.step()
        tell((step + 1) / steps)
    return model.eval(), tokenizer


def _closely(sums: Sequence[Sum], chance: random.Random) -> list[Sum]:
    """The same sums with at most one space in a gap: easier, since all controls read sums so."""
    return [
        Sum(example.expression, closely_written(example.expression, chance)) for example in sums
    ]


def _rows(tokenizer: Any, sums: Sequence[Sum], *, totals: bool) -> tuple[Tensor, Tensor]:
    """Token numbers padded on the right, and labels of what follows the sum alone."""
    texts = [transformer_text(example, totals=totals) for example in sums]
    heads = [tokenizer(head)["input_ids"] for head, _ in texts]
    tails = [[*tokenizer(tail)["input_ids"], tokenizer.eos_token_id] for _, tail in texts]
    longest = max(len(head) + len(tail) for head, tail in zip(heads, tails, strict=True))
    ids = torch.full((len(texts), longest), tokenizer.pad_token_id)
    labels = torch.full((len(texts), longest), IGNORED)
    for row, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        ids[row, : len(head) + len(tail)] = torch.tensor(head + tail)
        labels[row, len(head) : len(head) + len(tail)] = torch.tensor(tail)
    return ids, labels


@torch.inference_mode()
def ask_transformer(model: Any, tokenizer: Any, sums: Sequence[Expression], totals: bool) -> Suites:
    """How many sums are right, the likeliest token each time."""
    right = 0
    for first in range(0, len(sums), 50):
        part = [Sum(expression, expression.text) for expression in sums[first : first + 50]]
        heads = [tokenizer(f"{example.text}=")["input_ids"] for example in part]
        longest = max(map(len, heads))
        most = max(len(transformer_text(example, totals=totals)[1]) for example in part) + 4
        pads = [longest - len(head) for head in heads]
        ids = [[tokenizer.pad_token_id] * n + head for n, head in zip(pads, heads, strict=True)]
        keep = [[0] * n + [1] * len(head) for n, head in zip(pads, heads, strict=True)]
        with quiet():
            written = model.generate(
                input_ids=torch.tensor(ids),
                attention_mask=torch.tensor(keep),
                max_new_tokens=most,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
        texts = tokenizer.batch_decode(written[:, longest:], skip_special_tokens=True)
        answers = (text.rpartition(".")[2][::-1] for text in texts)
        right += sum(
            a == str(example.expression.value) for a, example in zip(answers, part, strict=True)
        )
    return counted(right, len(sums))


def train_last_total(seed: int, tell: Telling) -> Scan:
    """The adder alone, rows given as they should be read, with one label: the last total."""
    torch.manual_seed(seed)
    adder, chance = Calculator().adder, random.Random(f"last total {seed}")
    descent = torch.optim.AdamW(adder.parameters(), lr=5e-3, weight_decay=1e-4)
    for step in range(LAST_TOTAL_STEPS):
        done = step / LAST_TOTAL_STEPS
        for group in descent.param_groups:
            group["lr"] = 5e-3 * min(1.0, (step + 1) / 100) * (1 - 0.99 * done)
        sums = [example.expression for example in draw_sums(chance, 192)]
        soft = done < 0.2
        logits = _added(adder, sums, 7, noise=min(1.0, done / 0.2), soft=soft)
        targets = digits_of(torch.tensor([expression.value for expression in sums]), 7)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        descent.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adder.parameters(), 1.0)
        descent.step()
        tell((step + 1) / LAST_TOTAL_STEPS)
    return adder.eval()


def _added(
    adder: Scan, sums: Sequence[Expression], width: int, *, noise: float = 0.0, soft: bool = False
) -> Tensor:
    """Logits of the last total's digits; totals go on as distributions while gradients are kept."""
    most = max(len(expression.operands) for expression in sums)
    total = F.one_hot(torch.zeros(len(sums), width, dtype=torch.long), 10).float()
    logits = total
    for index in range(most):
        symbols = torch.full((len(sums), width), BLANK)
        switch = torch.zeros(len(sums))
        there = torch.tensor([index < len(expression.operands) for expression in sums])
        for row, expression in enumerate(sums):
            if index < len(expression.operands):
                digits = [int(d) for d in reversed(str(abs(expression.operands[index])))]
                symbols[row, : len(digits)] = torch.tensor(digits)
                minus = index > 0 and expression.operators[index - 1] == "-"
                switch[row] = float(minus != (expression.operands[index] < 0))
        cells = adder_cells(F.one_hot(symbols, 11).float(), switch, total)
        after = adder(cells, noise=noise, soft=soft)
        shares = after.softmax(-1)
        hard = F.one_hot(shares.argmax(-1), 10).float()
        passed = shares if soft else hard + shares - shares.detach()
        total = torch.where(there[:, None, None], passed, total)
        logits = torch.where(there[:, None, None], after, logits)
    return logits


@torch.inference_mode()
def ask_adder(adder: Scan, sums: Sequence[Expression]) -> Suites:
    """How many last totals are right, digit by digit."""
    right = 0
    for first in range(0, len(sums), 100):
        part = sums[first : first + 100]
        digits = max(len(str(abs(number))) for expression in part for number in expression.operands)
        width = min(18, digits + SPARE_COLUMNS)
        digits_out = _added(adder, part, width).argmax(-1)
        targets = digits_of(torch.tensor([expression.value for expression in part]), width)
        right += int((digits_out == targets).all(1).sum())
    return counted(right, len(sums))


@contextmanager
def continuous() -> Iterator[None]:
    """Columns hand on the distribution over symbols, in training and after."""

    def pass_on(self: Scan, logits: Tensor, noise: float, *, soft: bool) -> Tensor:
        return logits.softmax(-1)

    with mock.patch.object(Scan, "_next", pass_on):
        yield


def sets(kind: str) -> dict[str, Sequence[Expression]]:
    """The sums of the benchmark, as many of each as a control is evaluated on."""
    chosen = {}
    for name, sums in suites().items():
        count = min(TESTED[kind], len(sums))
        chosen[name] = [sums[index * len(sums) // count] for index in range(count)]
    return chosen


def train_calculator_control(name: str, seed: int, tell: Telling) -> Calculator:
    """A calculator with one thing left out."""
    recipe = CalculatorRecipe(attempts=1)  # steps are fixed
    if name == "no gate noise":
        recipe = replace(recipe, gate_noise=0.0)
    elif name == "no symbol noise":
        recipe = replace(recipe, symbol_noise=False)
    elif name == "fewer steps":
        parts = ("adder_steps", "sizer_steps", "writer_steps", "scanner_steps")
        recipe = replace(recipe, **{part: int(FEWER * getattr(recipe, part)) for part in parts})
    return train_calculator(seed, recipe, on_progress=lambda share, text: tell(share)).network


def ask_calculator(network: Calculator) -> Suites:
    """Every set of sums, and what confidence knew of the answers."""
    by_suite: Suites = {}
    correct: list[bool] = []
    confidence: list[float] = []
    for suite, sums in sets("calculator").items():
        one = score_sums(network, sums, [expression.text for expression in sums])
        correct += one.pop("correct")
        confidence += one.pop("confidence")
        by_suite[suite] = one
    return {**by_suite, "confidence": sureness({"correct": correct, "confidence": confidence})}


def trained(name: str, seed: int, tell: Telling) -> tuple[Any, Callable[[], Suites]]:
    """A control's network, and how it is evaluated."""
    if name.startswith("transformer"):
        totals = name.endswith("totals")
        model, tokenizer = train_transformer(seed, tell, totals=totals)
        sums = {k: v for k, v in sets("transformer").items() if k not in STRETCH}
        return model, lambda: {
            suite: ask_transformer(model, tokenizer, part, totals) for suite, part in sums.items()
        }
    if name == "last total alone":
        adder = train_last_total(seed, tell)
        # whole numbers of PyTorch have nineteen digits
        sums = {k: v for k, v in sets("calculator").items() if k != "4x40"}
        return adder, lambda: {suite: ask_adder(adder, part) for suite, part in sums.items()}
    network = train_calculator_control(name, seed, tell)
    return network, lambda: ask_calculator(network)


def measured(name: str, seed: int, tell: Telling) -> dict[str, Any]:
    """One control with one seed: trained under the meter, evaluated, and written down."""
    with continuous() if name == "continuous state" else nullcontext():
        begun, process = time.perf_counter(), time.process_time()
        with EnergyMeter() as meter:
            network, ask = trained(name, seed, tell)
        used, took = time.process_time() - process, time.perf_counter() - begun
        scores = ask()
    confidence = scores.pop("confidence", None)
    energy = [
        {
            "component": component.name,
            "energy_j": component.energy_j,
            "obtained": component.obtained,
        }
        for component in meter.energy.components
    ]
    return {
        "control": name,
        "seed": seed,
        "weights": sum(parameter.numel() for parameter in network.parameters()),
        "process_s": used,
        "wall_s": took,
        "energy": energy,
        "suites": scores,
        "confidence": confidence,
        "commit": commit(),
    }


CONTROLS = (
    "transformer, running totals",
    "transformer, answers alone",
    "no gate noise",
    "no symbol noise",
    "continuous state",
    "last total alone",
    "fewer steps",
)


def table_of(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A line for each control and seed, and one for the sum of two weights on values."""
    names = ("in", "out", "long", "4x3", "16x3", "4x12", "16x12")
    lines = [["Control", "seed", "weights", "core s", *names]]
    for row in sorted(rows, key=lambda row: (CONTROLS.index(row["control"]), row["seed"])):
        shares = [f"{100 * row['suites'][name]['share']:.1f}" for name in names]
        facts = [str(row["seed"]), f"{row['weights']:,}", f"{row['process_s']:.0f}"]
        lines.append([row["control"], *facts, *shares])
    gates = gated_sum()
    shares = [f"{100 * gates[name]:.1f}" if name in gates else "–" for name in names]
    lines.append(["two weights, on values", "–", str(len(gates["weights"])), "–", *shares])
    return lines


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown, for a page."""
    heads, *lines = table_of(rows)
    return plain_table(heads, lines)


def main() -> None:
    """Do the controls that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1", help="separated by commas")
    parser.add_argument("--controls", default=";".join(CONTROLS), help="separated by semicolons")
    parser.add_argument("--output", type=Path, default=Path("runs/calculator-controls.json"))
    given = parser.parse_args()
    facts = machine()
    content = {"machine": facts, "machine_id": machine_id(facts), "rows": []}
    if given.output.exists():
        content = json.loads(given.output.read_text())
        if content["machine_id"] != machine_id(facts):
            raise SystemExit(f"{given.output} is of another machine: choose another --output")
    done = {(row["control"], row["seed"]) for row in content["rows"]}
    with Progress() as bar, threads(1):
        for seed in map(int, given.seeds.split(",")):
            for name in given.controls.split(";"):
                if name not in CONTROLS:
                    raise SystemExit(f"unknown control {name!r}: {', '.join(CONTROLS)}")
                if (name, seed) in done:
                    continue
                line = bar.add_task(f"{name}, seed {seed}", total=1.0)

                def tell(share: float, line: Any = line) -> None:
                    bar.update(line, completed=share)

                content["rows"].append(measured(name, seed, tell))
                given.output.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(given.output, json.dumps(content, indent=1) + "\n")
    lines = table_of(content["rows"])
    table = Table(*lines[0], box=None)
    for line in lines[1:]:
        table.add_row(*line)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
