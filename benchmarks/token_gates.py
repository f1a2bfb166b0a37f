"""Which tokens to drop: attention received, learned gates (LTP, Transkimmer), or chance?

    python benchmarks/token_gates.py --model runs/slim-sst2/models/dense --task sst2 \
        --set test=labelled --set examples=20000

All begin with the same fine-tuned model and are distilled from it for the same steps. Attention
received and chance are trained once for all shares of tokens. The learned gates are trained once
for each weight of their loss, two thirds of the steps soft and the rest with tokens really dropped.
Scores are on the test split. FLOPs are the executed ones, as a share of the dense model's. The gain
is over attention received at equal FLOPs (between its shares on a line). Intervals are 95 % over
seeds. What is finished is read back. Data comes from SPARING_DATA; ``--task imdb --set
max_tokens=512`` takes long texts. On one free core of a 2020s server expect a minute for each run
of sst2 with 6,000 rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import Tensor

import sparing
from sparing.experiment.inputs.task import load_for
from sparing.experiment.run import write_atomically
from sparing.layers.plan import Plan, full_plan
from sparing.measure.machine import commit, machine, machine_id
from sparing.slim.search.exits import dense_flops
from sparing.tasks import Task
from sparing.tasks.shared.scores import metric
from sparing.train import Distillation, Recipe, train
from sparing.train.elastic import Draw, ElasticLoss
from sparing.train.evaluation import batches_by_length, evaluating
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.opening import open_model

SHARES = (1.0, 0.7, 0.5, 0.35, 0.2)
WEIGHTS = (0.05, 0.2, 0.8)
AFTER = 2
FOLLOW = Distillation(labels=0.3, outputs=1.0, hidden_states=1.0, temperature=2.0)
WHOLE = Draw(widths=(1.0,), width_chances=(1.0,), tokens_after=AFTER)
RECEIVED, RANDOM, LEARNED = "received", "random", ("threshold", "skim")
NAMED = {
    RECEIVED: "attention received",
    RANDOM: "chance",
    "threshold": "a learned threshold (LTP)",
    "skim": "a learned network (Transkimmer)",
}


@dataclass(frozen=True)
class Point:
    """One trained model at one setting: ``knob`` is a share of tokens, or the gates' weight."""

    arm: str
    seed: int
    knob: float
    cost_share: float
    score: float


class RandomLoss(ElasticLoss):
    """The same loss, with a share of tokens sampled for the random gates in every step."""

    def __call__(self, model: Any, batch: dict[str, Tensor], step: int) -> Tensor:
        """The loss of a batch."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        index = int(torch.randint(len(SHARES), (), generator=generator))
        model.encoder.gates[str(AFTER)].share.fill_(SHARES[index])
        return super().__call__(model, batch, step)


@dataclass(frozen=True, eq=False)
class Work:
    """The task, the dense model's folder, and how each run trains."""

    task: Task
    source: str
    folder: Path
    recipe: Recipe
    gate_rate_factor: float = 1.0

    def start(self) -> tuple[Any, AdaptiveClassifier]:
        """The teacher, and the adaptive form that every run begins with."""
        dense = open_model(self.source).float()
        # attention without dropout has a fused kernel, and all runs are alike
        dense.config.attention_probs_dropout_prob = 0.0
        model = adapt(dense, exits=[])
        model.embeddings.requires_grad_(False)
        return dense.eval(), model

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return self.recipe.epochs * -(-len(self.task.train) // self.recipe.batch_size)

    def train(self, model: AdaptiveClassifier, loss: ElasticLoss, name: str, seed: int) -> None:
        """Train in place, or read a finished run back."""
        recipe = replace(self.recipe, seed=seed, distillation=FOLLOW)
        output_dir = self.folder / f"{name}-{seed}"
        train(model, self.task, recipe, output_dir=output_dir, objective=loss)

    def score_and_cost(self, model: AdaptiveClassifier, plan: Plan) -> tuple[float, float]:
        """Executed FLOPs as a share of the dense model's, and the score, on test."""
        test = self.task.test
        logits = torch.zeros(len(test), self.task.classes)
        spent = torch.zeros(len(test), dtype=torch.float64)
        model.plan = plan
        with torch.inference_mode(), evaluating(model):
            for indices in batches_by_length(test, 64):
                batch = self.task.collate([test[index] for index in indices])
                batch.pop("labels")
                with sparing.record(model) as log:
                    logits[indices] = model(**batch).logits.float()
                spent[indices] = log["encoder/flops"][0]
        share = float(spent.sum() / dense_flops(model, test).sum())
        return share, metric(self.task.metric).score(logits, test.labels)


def received_points(work: Work, seed: int) -> Iterator[Point]:
    """One model for all shares, tokens ranked by the attention that they receive."""
    dense, model = work.start()
    loss = ElasticLoss(dense, FOLLOW, replace(WHOLE, tokens=SHARES), seed)
    work.train(model, loss, RECEIVED, seed)
    for share in SHARES:
        plan = replace(full_plan(model.encoder.sizes), tokens_kept=share, tokens_after=AFTER)
        yield Point(RECEIVED, seed, share, *work.score_and_cost(model, plan))


def random_points(work: Work, seed: int) -> Iterator[Point]:
    """One model for all shares, tokens taken at random in the same place."""
    dense, model = work.start()
    model.encoder.add_gates("random", [AFTER])
    loss = RandomLoss(dense, FOLLOW, replace(WHOLE, gated=True, soft_steps=0), seed)
    plan = replace(full_plan(model.encoder.sizes), gated=True)
    model.plan = plan
    work.train(model, loss, RANDOM, seed)
    torch.manual_seed(seed)
    for share in SHARES:
        model.encoder.gates[str(AFTER)].share.fill_(share)
        yield Point(RANDOM, seed, share, *work.score_and_cost(model, plan))


def learned_points(work: Work, kind: str, seed: int, weights: Sequence[float]) -> Iterator[Point]:
    """One model for each weight, gates after every layer from ``AFTER`` on."""
    for weight in weights:
        dense, model = work.start()
        plan = replace(full_plan(model.encoder.sizes), gated=True)
        model.encoder.add_gates(kind, range(AFTER, plan.layers))
        model.plan = plan
        soft = 2 * work.steps // 3
        # begun open, a network of gates would not close in so few steps at the model's own rate
        recipe = replace(work.recipe, mechanism_rate_factor=work.gate_rate_factor)
        draw = replace(WHOLE, gated=True, gate_weight=weight, soft_steps=soft)
        loss = ElasticLoss(dense, FOLLOW, draw, seed)
        replace(work, recipe=recipe).train(model, loss, f"{kind}-{weight:g}", seed)
        yield Point(kind, seed, weight, *work.score_and_cost(model, plan))


def gain(point: Point, received: Sequence[Point]) -> float | None:
    """A point's score less that of attention received at its cost; None outside its range."""
    line = sorted((other.cost_share, other.score) for other in received if other.seed == point.seed)
    costs, scores = zip(*line, strict=True)
    if not costs[0] <= point.cost_share <= costs[-1]:
        return None
    return point.score - float(np.interp(point.cost_share, costs, scores))


def half_width(values: Sequence[float]) -> float | None:
    """Of the mean's 95 % interval by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))


def summary(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Means over seeds of each variant and setting."""
    received = [point for point in points if point.arm == RECEIVED]
    rows = []
    for arm, knob in dict.fromkeys((point.arm, point.knob) for point in points):
        arm_points = [point for point in points if (point.arm, point.knob) == (arm, knob)]
        gains = [gained for point in arm_points if (gained := gain(point, received)) is not None]
        whole = arm != RECEIVED and len(gains) == len(arm_points)
        rows.append(
            {
                "arm": arm,
                "knob": knob,
                "seeds": len(arm_points),
                "cost_share": mean(point.cost_share for point in arm_points),
                "score": mean(point.score for point in arm_points),
                "score_half_width": half_width([point.score for point in arm_points]),
                "gain": mean(gains) if whole else None,
                "gain_half_width": half_width(gains) if whole else None,
            }
        )
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The table."""
    table = Table("tokens by", "share or weight", "FLOPs", "score", "gain at equal FLOPs", box=None)
    for row in rows:
        better = "-"
        if row["gain"] is not None:
            better = f"{100 * row['gain']:+.2f}{_around(row['gain_half_width'])}"
        table.add_row(
            row["arm"],
            f"{row['knob']:g}",
            f"{row['cost_share']:.3f}",
            f"{100 * row['score']:.2f}{_around(row['score_half_width'])}",
            better,
        )
    Console(width=120).print(table)


def _around(half: float | None) -> str:
    return "" if half is None else f" +- {100 * half:.2f}"


def table_of(content: dict[str, Any]) -> str:
    """The table as Markdown, for a page."""
    heads = ("tokens by", "share, or weight of the loss", "FLOPs", content["metric"], "gain")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for row in content["summary"]:
        gain = "–"
        if row["gain"] is not None:
            gain = f"{100 * row['gain']:+.1f}{_between(row['gain'], row['gain_half_width'])}"
        score = f"{100 * row['score']:.1f}{_between(row['score'], row['score_half_width'])}"
        cost = f"{row['cost_share']:.2f}"
        cells = (NAMED[row["arm"]], f"{row['knob']:g}", cost, score, gain)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _between(value: float, half: float | None) -> str:
    if half is None:
        return ""
    return f" ({100 * (value - half):.1f} to {100 * (value + half):.1f})"


def points_of(work: Work, seeds: Sequence[int], weights: Sequence[float]) -> Iterator[Point]:
    """All of them, seed by seed."""
    for seed in seeds:
        yield from received_points(work, seed)
        yield from random_points(work, seed)
        for kind in LEARNED:
            yield from learned_points(work, kind, seed, weights)


def main() -> None:
    """Train what is missing, then compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a fine-tuned dense classifier's folder")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--set", action="append", default=[], help="an option of the task, a=b")
    parser.add_argument("--rows", type=int, default=6000, help="training rows of each run")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas")
    parser.add_argument("--weights", default=",".join(map(str, WEIGHTS)), help="of the gates' loss")
    parser.add_argument(
        "--gate-rate-factor",
        type=float,
        default=50.0,
        help="how much faster gates learn",
    )
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/token-gates"))
    given = parser.parse_args()
    pairs = [pair.split("=", 1) for pair in given.set]
    options = {name: int(value) if value.isdigit() else value for name, value in pairs}
    task, _ = load_for(given.task, options, given.model, None)
    order = torch.randperm(len(task.train), generator=torch.Generator().manual_seed(0))
    task = replace(task, train=task.train.subset(order[: given.rows].tolist()))
    recipe = Recipe(given.epochs, 32, 1e-4, precision=given.precision)
    work = Work(task, given.model, given.output_dir, recipe, given.gate_rate_factor)
    weights = [float(weight) for weight in given.weights.split(",")]
    points = []
    for point in points_of(work, [int(seed) for seed in given.seeds.split(",")], weights):
        points.append(point)
        print(point, flush=True)
    rows = summary(points)
    show(rows)
    content = {
        "task": task.name,
        "metric": task.metric,
        "task_options": options,
        "rows": given.rows,
        "epochs": given.epochs,
        "gate_rate_factor": given.gate_rate_factor,
        "test_examples": len(task.test),
        "machine": machine(),
        "machine_id": machine_id(machine()),
        "commit": commit(),
        "points": [asdict(point) for point in points],
        "summary": rows,
    }
    write_atomically(given.output_dir / "summary.json", json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
