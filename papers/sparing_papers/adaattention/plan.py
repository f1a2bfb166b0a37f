"""The plan of a run of the AdaAttention study, with an estimate of its time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import torch

from sparing.core.paths import expanded
from sparing.core.reading import parse_json, read_plain
from sparing.core.record import Record
from sparing.experiment.plan import TIME, Plan, PlannedCell
from sparing.experiment.run import Cell
from sparing.train.answers import label_loss, outputs_of
from sparing.train.raised import raised_attention
from sparing.train.recipe import Precision
from sparing.train.trainer import resolve_precision
from sparing_papers.adaattention.arms import Arm, Work
from sparing_papers.adaattention.names import ADAPTIVE, SHARED

TYPICAL_FLOPS = 15e9
BACKWARD = 3
# Cost of a training step and of a forward call over the dense model's: (training, calling).
FACTORS = {
    "full": (1.0, 1.0),
    "swap": (1.3, 1.4),
    "prune": (0.9, 0.9),
    "gradual": (1.0, 0.9),
    "skip": (2.0, 1.0),
    "slim": (2.6, 1.0),
}
BIGBIRD = (2.2, 2.0)
LAYERS = 2.0  # an epoch of taught layers over calls of the dense model, in float32


def arm_seconds(work: Work, arm: Arm | None) -> float:
    """Estimated seconds of a variant's training, validations and test; None is the dense model."""
    train_factor, call_factor = FACTORS["full"] if arm is None else _factors(arm)
    recipe = work.recipe(0, dense=arm is None)
    tokens = {name: _tokens(work, part.lengths) for name, part in work.task.splits.items()}
    epoch = BACKWARD * train_factor * tokens["train"] / _gain(recipe.precision)
    checks = call_factor * tokens["validation"]
    passes = 2 if arm is not None and arm.mechanism == ADAPTIVE else 1
    whole = recipe.epochs * (epoch + checks) + checks + passes * call_factor * tokens["test"]
    if arm is not None and arm.taught:
        whole += work.length.layer_epochs * (LAYERS * tokens["train"] + checks)
    return whole * token_seconds(work) + 2.0


def calls_seconds(work: Work, calls: float, tokens: float = 0) -> float:
    """Estimated seconds of passes of the dense model over so many tokens (0: the test split)."""
    count = tokens or _tokens(work, work.task.test.lengths)
    return calls * count * token_seconds(work) + 2.0


def timed_seconds(work: Work, examples: int, rounds: int, arms: int) -> float:
    """Estimated seconds to time variants on inputs one by one; small calls are slow."""
    lengths = work.task.test.lengths
    tokens = _tokens(work, lengths) * min(1.0, examples / max(1, len(lengths)))
    start = 0.003 * min(examples, len(lengths))
    return rounds * arms * (1.4 * tokens * token_seconds(work) + start) + 30.0


def _factors(arm: Arm) -> tuple[float, float]:
    return BIGBIRD if arm.mechanism == "bigbird" else FACTORS[arm.kind]


def _tokens(work: Work, lengths: Sequence[int]) -> float:
    """Tokens of a split; an image counts the tokens that the model reads."""
    if work.task.kind == "image":
        return float(len(lengths) * work.task.tokens)
    return float(sum(lengths))


def _gain(precision: Precision) -> float:
    cpu = not torch.accelerator.is_available()
    return 1.0 if resolve_precision(precision, cpu=cpu) == "float32" else 2.0


def token_seconds(work: Work) -> float:
    """Seconds of the dense model's forward pass over a token, on one core of a 2020s server."""
    layers, width = _shape(work)
    return 24.0 * layers * width**2 / TYPICAL_FLOPS


def _shape(work: Work) -> tuple[int, int]:
    """Layers and width, from the configuration of a pretrained model."""
    sizes: Mapping[str, Any] = work.sizes
    if work.pretrained:
        file = expanded(work.model) / "config.json"
        if not file.is_file():
            return 12, 768  # a name on the hub, not looked up for an estimate
        config = parse_json(read_plain(file), finite=False)
        return int(config.get("num_hidden_layers", 12)), int(config.get("hidden_size", 768))
    return int(sizes.get("layers", 2)), int(sizes.get("width", 64))


def make_plan(
    cells: Sequence[Cell], works: Sequence[Work], records: Sequence[Record], finished: set[str]
) -> Plan:
    """The cells with minutes, from a task's finished cells, else from one step of its model.

    ``Cell.weight`` is a first guess in seconds. The measured time over it scales the guesses of the
    same task.
    """
    guesses = {cell.key: cell.weight for cell in cells}
    took = {
        r.cell: float(r.labels["core_s"] or 0.0)
        for r in records
        if r.name == TIME and r.cell in guesses
    }
    scales, measured = {}, []
    for work in works:
        trained = [key for key in took if key.startswith(f"{work.name}/train/")]
        if trained:
            guessed = sum(guesses[key] for key in trained)
            scales[work.name] = sum(took[key] for key in trained) / guessed
            measured.append(work.name)
        else:
            scales[work.name] = _step_ratio(work)
    scales[SHARED] = fmean(scales.values())
    planned = []
    for cell in cells:
        scale = scales.get(cell.key.rpartition("/train/")[0] or _task_of(cell.key, works), 1.0)
        seconds = took.get(cell.key, cell.weight * scale)
        planned.append(PlannedCell(cell.key, seconds / 60, cell.key in finished))
    basis = "a training step of each task's model on this machine, just now"
    if measured:
        basis += f"; for {', '.join(measured)} what finished cells took"
    return Plan(tuple(planned), basis)


def _task_of(key: str, works: Sequence[Work]) -> str:
    names = (SHARED, *(work.name for work in works))
    return next((name for name in names if key.startswith(f"{name}/")), "")


def _step_ratio(work: Work) -> float:
    """Processor time of one training step over the guess for it, as the machine may be busy."""
    model, train = work.build(0), work.task.train
    recipe = work.recipe(0, dense=True)
    middle = median(train.lengths)
    order = sorted(range(len(train)), key=lambda index: abs(train.lengths[index] - middle))
    chosen = order[: recipe.batch_size]
    batch = work.task.collate([train[index] for index in chosen])
    labels = batch.pop("labels")
    model.train()
    precision = resolve_precision(recipe.precision, cpu=True)
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(precision)
    took = []
    for _ in range(2):
        start = time.process_time()
        with raised_attention(bfloat16=kind is torch.bfloat16, device=torch.device("cpu")):
            with torch.autocast("cpu", dtype=kind, enabled=kind is not None):
                loss = label_loss(outputs_of(model(**batch)), labels)
            torch.autograd.backward(loss)
        took.append(time.process_time() - start)
    tokens = _tokens(work, [train.lengths[index] for index in chosen])
    guess = BACKWARD * tokens * token_seconds(work) / _gain(recipe.precision)
    return took[-1] / guess
