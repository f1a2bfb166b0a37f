"""What a step of distilling the adaptive model takes beside a step of fine-tuning the dense one."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from slim_shape_forms import MINILM, VOCABULARY, WORDS
from sparing.core.record import Label, Record
from sparing.experiment.inputs.task import load_for
from sparing.experiment.run import read_config
from sparing.measure.inputs import InputTimes, speed_up, time_inputs
from sparing.measure.memory import peak_memory
from sparing.slim.models import FOLLOW
from sparing.train.elastic import Draw, ElasticLoss
from sparing.train.objective import LabelLoss, Objective
from sparing.transfer.adaptive import adapt
from sparing.transfer.opening import open_model

Batch = dict[str, Tensor]
Step = Callable[[Batch], float]
BATCH, BATCHES = 32, 4
GENERATED = (10, 110)
DRAW = Draw()
SETTINGS = (("float32", True), ("bfloat16", True), ("bfloat16", False))


def batches(run: Path | None, count: int = BATCHES) -> tuple[str, list[Batch]]:
    """Training batches as a run of slim sees them, and where they are from.

    Texts of a task, of like length within a batch, or random ones of 10 to 110 tokens.
    """
    if run is None:
        return "generated", [_generated(seed, count) for seed in range(count)]
    identity = read_config(run)["identity"]
    options = {k: v for k, v in identity["task_options"].items() if k != "tokenizer"}
    task, _ = load_for(identity["task"], options, str(run / "models" / "dense"), None)
    order = sorted(range(len(task.train)), key=lambda index: task.train.lengths[index])
    parts = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    spread = [parts[(2 * number + 1) * len(parts) // (2 * count)] for number in range(count)]
    return task.name, [task.collate([task.train[index] for index in part]) for part in spread]


def _generated(number: int, count: int) -> Batch:
    """Random texts; longer from batch to batch."""
    chance = torch.Generator().manual_seed(number)
    low, high = GENERATED
    longest = round(low + (high - low) * (number + 0.5) / count)
    ids = torch.randint(WORDS, VOCABULARY, (BATCH, longest), generator=chance)
    labels = torch.randint(0, 2, (BATCH,), generator=chance)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def dense_model(run: Path | None, attention_dropout: bool) -> Any:
    """The dense model of a run, or a random one of MiniLM's shape."""
    model = MINILM.build() if run is None else open_model(str(run / "models" / "dense"))
    if attention_dropout:
        return model
    config = copy.deepcopy(model.config)
    config.attention_probs_dropout_prob = 0.0
    without = type(model)(config)
    without.load_state_dict(model.state_dict())
    return without


def step(model: nn.Module, objective: Objective, precision: str) -> Step:
    """One training step as the trainer takes it: loss, gradients, their norm, AdamW."""
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True)
    lowered = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")

    def take(batch: Batch) -> float:
        with lowered if precision == "bfloat16" else contextlib.nullcontext():
            loss = objective(model, dict(batch), 0)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return take


def expected(times: Sequence[InputTimes[Any]], chances: Sequence[float]) -> InputTimes[Any]:
    """The times of a step with a width sampled with these chances."""
    weights = np.array(chances) / sum(chances)
    mixed = sum(w * step_times.times_ms for w, step_times in zip(weights, times, strict=True))
    return InputTimes(np.asarray(mixed), [])


def steps_of(
    run: Path | None, precision: str, dropout: bool
) -> dict[str, Callable[[Batch], float]]:
    """A step of fine-tuning, and one of distilling at each width that may be sampled."""
    teacher = dense_model(run, dropout).eval()
    adaptive = adapt(teacher, exits=range(2, teacher.config.num_hidden_layers + 1))
    adaptive.embeddings.requires_grad_(False)
    steps = {"fine-tune": step(dense_model(run, dropout), LabelLoss(), precision)}
    for width in DRAW.widths:
        draw = replace(DRAW, widths=(width,), width_chances=(1.0,))
        objective = ElasticLoss(teacher, FOLLOW, draw)
        steps[f"{width:.4f}"] = step(adaptive, objective, precision)
    return steps


def overhead(run: Path | None, precision: str, dropout: bool, rounds: int) -> list[Record]:
    """The times of both steps on the same batches, and how much more distilling takes."""
    source, given = batches(run)
    calls = steps_of(run, precision, dropout)
    times = time_inputs(calls, given, rounds=rounds, warmup=1, threads=1)
    drawn = expected([times[name] for name in calls if name != "fine-tune"], DRAW.width_chances)
    ratio = speed_up(times["fine-tune"], drawn)
    labels: dict[str, Label] = {
        "precision": precision,
        "attention_dropout": dropout,
        "texts": source,
        "batch": BATCH,
    }
    rows = {"fine-tune": times["fine-tune"], "distil": drawn}
    rows |= {f"distil, width {name}": times[name] for name in calls if name != "fine-tune"}
    records = [
        Record("step_ms", float(row.typical_ms.mean()), "ms", "measured", {**labels, "step": name})
        for name, row in rows.items()
    ]
    low, high = ratio.interval
    value, interval = ratio.value - 1, (low - 1, high - 1)
    return [
        *records,
        Record("step_overhead", value, "share", "measured", labels, interval, ratio.inputs),
    ]


def peaks(run: Path | None) -> list[Record]:
    """The peak that a step of each kind adds to what is loaded, in float32, in fresh processes."""
    source, given = batches(run)
    shape = given[-1]["input_ids"].shape
    records = []
    for kind in ("fine-tune", f"{max(DRAW.widths):.4f}"):
        arguments = {"run": None if run is None else str(run), "kind": kind}
        peak = peak_memory("slim_shape_training:step_call", arguments, threads=1)
        name = "fine-tune" if kind == "fine-tune" else "distil, full width"
        labels: dict[str, Label] = {"step": name, "texts": source, "batch": shape[0]}
        labels["tokens"] = shape[1]
        records.append(Record("train_peak_bytes", peak.bytes, "bytes", "measured", labels))
    return records


def step_call(run: str | None, kind: str) -> Callable[[], object]:
    """For a process of its own: the second step on the longest batch; the first makes its state."""
    folder = None if run is None else Path(run)
    take = steps_of(folder, "float32", True)[kind]
    given = batches(folder)[1]
    take({name: value[:2] for name, value in given[0].items()})
    return lambda: take(given[-1])


def totals(records: Sequence[Record]) -> dict[str, float]:
    """Seconds in training steps of each variant of a run of slim."""
    taken = [record for record in records if record.name == "train_time_s"]
    return {str(record.labels["arm"]): float(record.value or 0.0) for record in taken}
