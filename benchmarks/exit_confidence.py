"""Is a learned confidence better than the largest probability at the same cost?

    python benchmarks/exit_confidence.py --model runs/slim-sst2/models/adaptive --task sst2 \
        --set test=labelled --set examples=20000

An adaptive model exits by the largest probability, or by heads fitted to predict whether an exit's
answer will be the whole model's. Heads are fitted on training inputs, and on splits that the model
was not trained on. Each kind's threshold is set so that the mean FLOPs on the test inputs are the
same (this looks at no label). Then the kinds differ in the inputs that exit, and are compared input
by input. Fitting is repeated with other examples (seeds). Data comes from
SPARING_DATA. A minute or two on one core for sst2 or mrpc.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.experiment.inputs.task import load_for
from sparing.experiment.run import write_atomically
from sparing.layers.plan import Plan, full_plan, narrowed
from sparing.slim.search.exits import Decision, Outcomes, decide, dense_flops, outcomes
from sparing.tasks import Task
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.confidence import fit_confidence
from sparing.transfer.opening import open_model

RESAMPLES = 4_000
STEPS = 40
LEVELS = (0.45, 0.55, 0.65, 0.75, 0.85)
SOFTMAX = "softmax"


@dataclass(frozen=True)
class Row:
    """One kind at one cost: shares of test inputs, and the paired differences to softmax.

    ``level`` is the cost aimed at, as a share of what the plan takes when nobody leaves;
    ``cost_share`` what was met, of the dense model's. A difference below 0 in ``differs`` is a gain
    for the learned kind, in ``accuracy`` a loss; intervals are 95 %, over test inputs, of the mean
    over seeds.
    """

    kind: str
    level: float
    cost_share: float
    differs: float
    accuracy: float
    differs_gain: float = 0.0
    differs_interval: tuple[float, float] = (0.0, 0.0)
    accuracy_gain: float = 0.0
    accuracy_interval: tuple[float, float] = (0.0, 0.0)


def at_cost(outcomes: Outcomes, confidence: str, flops: float) -> Decision:
    """The decision with the highest threshold that keeps mean FLOPs at or below ``flops``."""
    with_confidence = replace(outcomes, plan=replace(outcomes.plan, confidence=confidence))
    low, high = 0.0, 1.0
    best = decide(with_confidence, low)
    for _ in range(STEPS):
        middle = (low + high) / 2
        tried = decide(with_confidence, middle)
        if float(tried.flops.mean()) <= flops:
            low, best = middle, tried
        else:
            high = middle
    return best


def interval(values: Tensor, seed: int = 0) -> tuple[float, float]:
    """95 % of the mean's bootstrap over examples."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randint(len(values), (RESAMPLES, len(values)), generator=generator)
    ends = values[draws].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return float(ends[0]), float(ends[1])


@dataclass(frozen=True, eq=False)
class Reference:
    """What decisions are held against: the whole model's answers, labels, the dense cost."""

    whole: Tensor
    labels: Tensor
    dense: float

    def rows(self, kind: str, level: float, decisions: Sequence[Decision], base: Decision) -> Row:
        """One kind's decisions, one a seed, against softmax at the same cost."""
        differs = torch.stack(
            [(decision.answers != self.whole).double() for decision in decisions]
        ).mean(0)
        right = torch.stack(
            [(decision.answers == self.labels).double() for decision in decisions]
        ).mean(0)
        more = differs - (base.answers != self.whole).double()
        better = right - (base.answers == self.labels).double()
        cost = sum(float(decision.flops.mean()) for decision in decisions) / len(decisions)
        return Row(
            kind,
            level,
            cost / self.dense,
            float(differs.mean()),
            float(right.mean()),
            float(more.mean()),
            interval(more),
            float(better.mean()),
            interval(better),
        )


def compare(
    model: AdaptiveClassifier,
    task: Task,
    plan: Plan,
    splits: Sequence[str],
    seeds: Sequence[int],
    examples: int,
) -> tuple[list[Row], list[dict[str, Any]]]:
    """All kinds at all costs, and how well each exit's confidence predicts agreement (AUROC)."""
    base = outcomes(model, task, task.test, plan)
    whole = outcomes(model, task, task.test, full_plan(model.encoder.sizes))
    reference = Reference(
        whole.logits[-1].argmax(-1), task.test.labels, float(dense_flops(model, task.test).mean())
    )
    fitted: dict[str, list[Outcomes]] = {}
    for split in splits:
        fitted[split] = []
        for seed in seeds:
            fit_confidence(model, task, plan=plan, split=split, examples=examples, seed=seed)
            fitted[split].append(outcomes(model, task, task.test, plan))
    alone = float(decide(base).flops.mean())
    rows = []
    for level in LEVELS:
        softmax = at_cost(base, SOFTMAX, level * alone)
        rows.append(reference.rows(SOFTMAX, level, [softmax], softmax))
        for split, founds in fitted.items():
            learned = [
                at_cost(outcomes, "learned", float(softmax.flops.mean())) for outcomes in founds
            ]
            rows.append(reference.rows(f"learned on {split}", level, learned, softmax))
    return rows, [
        _telling(index, base, fitted, reference.whole) for index in range(len(base.exits) - 1)
    ]


def _telling(
    index: int, base: Outcomes, fitted: dict[str, list[Outcomes]], whole: Tensor
) -> dict[str, Any]:
    """How well the confidences at one exit predict whether it agrees with the whole model."""
    agree = (base.logits[index].argmax(-1) == whole).numpy()
    row: dict[str, Any] = {"layer": base.exits[index], "agree": float(agree.mean())}
    if agree.all() or not agree.any():
        return row
    row[SOFTMAX] = float(roc_auc_score(agree, base.logits[index].softmax(-1).amax(-1).numpy()))
    for split, founds in fitted.items():
        scores = [roc_auc_score(agree, _learned(outcomes)[index].numpy()) for outcomes in founds]
        row[split] = float(sum(scores) / len(scores))
    return row


def _learned(outcomes: Outcomes) -> Tensor:
    assert outcomes.learned is not None
    return outcomes.learned


def show(rows: Sequence[Row], telling: Sequence[dict[str, Any]], splits: Sequence[str]) -> None:
    """The tables."""
    console = Console(width=140)
    table = Table(
        "confidence", "cost", "differs", "accuracy", "differs, gain", "accuracy, gain", box=None
    )
    for row in rows:
        gains = [
            f"{100 * gain:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
            for gain, (low, high) in (
                (row.differs_gain, row.differs_interval),
                (row.accuracy_gain, row.accuracy_interval),
            )
        ]
        table.add_row(
            row.kind,
            f"{row.cost_share:.3f}",
            f"{row.differs:.2%}",
            f"{row.accuracy:.2%}",
            *(gains if row.kind != SOFTMAX else ("", "")),
        )
    console.print(table)
    areas = Table(
        "exit after", "agrees", SOFTMAX, *(f"learned on {split}" for split in splits), box=None
    )
    for layer_row in telling:
        values = [
            f"{layer_row[name]:.3f}" if name in layer_row else "-" for name in (SOFTMAX, *splits)
        ]
        areas.add_row(str(layer_row["layer"]), f"{layer_row['agree']:.1%}", *values)
    console.print(
        "Area under the curve: does the confidence predict agreement with the whole model?"
    )
    console.print(areas)


def main() -> None:
    """Compare and write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="an adaptive model's folder")
    parser.add_argument("--task", required=True)
    parser.add_argument("--set", action="append", default=[], help="an option of the task, a=b")
    parser.add_argument("--width", type=float, default=0.5, help="share of heads and neurons")
    parser.add_argument("--fit-on", default="train,validation", help="splits, by commas")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--examples", type=int, default=1500, help="to fit each head to")
    parser.add_argument("--output", type=Path, default=Path("runs/exit-confidence.json"))
    given = parser.parse_args()
    options = dict(pair.split("=", 1) for pair in given.set)
    model = open_model(given.model)
    if not isinstance(model, AdaptiveClassifier):
        raise UsageError(f"{given.model} is not an adaptive model")
    task = load_for(given.task, _numbers(options), given.model, None)[0]
    plan = narrowed(model.encoder.sizes, given.width)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    splits = given.fit_on.split(",")
    rows, telling = compare(model, task, plan, splits, seeds, given.examples)
    show(rows, telling, splits)
    content = {
        "task": task.name,
        "task_options": options,
        "width": given.width,
        "seeds": seeds,
        "fitted_to": given.examples,
        "test_examples": len(task.test),
        "rows": [asdict(row) for row in rows],
        "telling": telling,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(given.output, json.dumps(content, indent=2) + "\n")


def _numbers(options: dict[str, str]) -> dict[str, Any]:
    return {name: int(value) if value.isdigit() else value for name, value in options.items()}


if __name__ == "__main__":
    main()
