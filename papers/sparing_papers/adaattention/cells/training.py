"""The cells of the AdaAttention study on a task: train, time, count, and what follows from both."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sparing.core.record import Label, Record
from sparing.core.recording import record
from sparing.experiment.cells.device import device
from sparing.experiment.run import Cell
from sparing.export.int8 import quantise_module
from sparing.measure.flops import count_flops
from sparing.measure.inputs import InputTimes, speed_up, time_inputs
from sparing.measure.latency import paired_latency
from sparing.mechanisms.adaptive import Adaptive
from sparing.mechanisms.shared.widths import Cut
from sparing.slim.models import inputs_of
from sparing.tasks import Examples
from sparing.train import TrainResult
from sparing.train.answers import label_loss, outputs_of
from sparing_papers.adaattention.arms import (
    BATCH,
    Arm,
    Work,
    is_ours,
    train_arm,
    train_dense,
)
from sparing_papers.adaattention.cells.answers import keep
from sparing_papers.adaattention.cells.scores import answers_on_test, scored
from sparing_papers.adaattention.names import ADAPTIVE, DENSE, FULL, INT8

QUANTISED = (FULL, ADAPTIVE)
CLASSES = (("10-50", 10, 50), ("50-200", 50, 200), ("200+", 200, 1 << 30))
FEWEST = 20
COUNTED = 50
STEP_ROUNDS, STEP_BUDGET_S = 7, 120.0


@dataclass(frozen=True)
class Timing:
    """How inputs are timed: how many, how often, and on how many threads."""

    examples: int
    rounds: int
    threads: int


def dense_cell(work: Work, seed: int) -> Cell:
    """Fine-tune the dense model."""

    def do() -> list[Record]:
        result = train_dense(work, seed)
        labels: dict[str, Label] = {"arm": DENSE, "task": work.name, "seed": seed}
        return [*_judged(work, DENSE, seed), *_trained(result, labels)]

    return Cell(f"{work.name}/train/{DENSE}/{seed}", do, weight=6.0)


def arm_cell(work: Work, arm: Arm, seed: int) -> Cell:
    """Change the dense model's attention and train on; scores, head scores and training time."""

    def do() -> list[Record]:
        result, told = train_arm(work, arm, seed)
        labels: dict[str, Label] = {"arm": arm.name, "task": work.name, "seed": seed}
        about = {**labels, "told": json.dumps(told), "weight": arm.weight}
        model = work.open(arm.name, seed)
        return [
            *_trained(result, labels),
            *_epochs(result, labels),
            *head_scores(model, work, labels),
            Record("arm", None, "", "measured", about),
            *_judged(work, arm.name, seed),  # last: answers that lie there count as a whole cell
        ]

    return Cell(f"{work.name}/train/{arm.name}/{seed}", do, weight=5.0)


def _trained(result: TrainResult, labels: dict[str, Label]) -> list[Record]:
    """Time and steps; ``early`` where the score fell below 95 % of the dense model's."""
    early: dict[str, Label] = {**labels, "early": result.stopped_early, "steps": result.steps}
    return [Record("train_time_s", result.train_time_s, "s", "measured", early)]


def _epochs(result: TrainResult, labels: dict[str, Label]) -> list[Record]:
    """Score, time of one input and mean head score at each validation, once an epoch."""
    names = {
        "validation_score": ("epoch_score", "score"),
        "validation_latency_ms": ("epoch_latency", "ms"),
        "mean_head_score": ("epoch_head_score", "share"),
    }
    return [
        Record(name, entry[key], unit, "measured", {**labels, "epoch": round(entry["epoch"], 2)})
        for entry in result.curve
        for key, (name, unit) in names.items()
        if key in entry
    ]


def _judged(work: Work, arm: str, seed: int) -> list[Record]:
    """The test scores and the answers, for differences example by example."""
    model = work.open(arm, seed).to(device())
    found = answers_on_test(model, work)
    return [*scored(work, arm, seed, found), keep(work, arm, seed, found)]


def adaptive_layers(model: nn.Module) -> dict[str, Adaptive]:
    """The paper's mechanism in each layer, by the module's name."""
    return {name: own for name, own in model.named_modules() if isinstance(own, Adaptive)}


@torch.inference_mode()
def head_scores(model: nn.Module, work: Work, labels: dict[str, Label]) -> list[Record]:
    """Over test inputs: the mean score, how many heads are cut, and how wide heads are on average.

    Nothing where the arm has no scores.
    """
    layers = adaptive_layers(model)
    if not layers:
        return []
    scores: dict[str, list[Tensor]] = {name: [] for name in layers}
    with record(model) as log:
        for _, inputs in inputs_of(work.task, work.task.test, 64):
            model(**inputs)
            for name in layers:
                scores[name] += log.pop(f"{name}/score")
            log.clear()
    whole = torch.stack([torch.cat(found) for found in scores.values()])
    widths = torch.stack(
        [_cut(own).widths(torch.cat(scores[name])).float() for name, own in layers.items()]
    )
    dim = next(iter(layers.values())).heads.dim
    found = {
        "head_score": whole.mean(),
        "cut_share": (widths < dim).float().mean(),
        "width_share": widths.mean() / dim,
        "input_spread": whole.std(1).mean(),
    }
    return [
        Record(name, float(value), "share", "measured", labels) for name, value in found.items()
    ]


def _cut(own: Adaptive) -> Cut:
    return Cut(own.heads.dim, own.threshold, own.levels, own.temperature)


def timing_cell(
    work: Work, group: str, arms: Sequence[str], seed: int, timing: Timing, *, steps: bool = True
) -> Cell:
    """One group's models of one seed on the same test inputs, one by one, against the full one.

    With ``steps`` steps of training too.
    """

    def do() -> list[Record]:
        examples = timed(work, timing)
        batches = inputs_of(work.task, examples, 1)
        random.Random(0).shuffle(batches)
        inputs = [inputs for _, inputs in batches]
        models = {arm: work.open(arm, seed) for arm in dict.fromkeys((FULL, *arms))}
        calls = {arm: _call(model) for arm, model in models.items()}
        times = time_inputs(calls, inputs, rounds=timing.rounds, threads=timing.threads)
        lengths = [examples.lengths[indices[0]] for indices, _ in batches]
        labels: dict[str, Label] = {"task": work.name, "group": group, "batch": 1, "seed": seed}
        records = times_of(times, lengths, labels)
        for arm, call in calls.items():
            counted = sum(count_flops(partial(call, given)) for given in inputs[:COUNTED])
            mean = counted / len(inputs[:COUNTED])
            own = {**labels, "arm": arm}
            records.append(Record("flops", mean, "FLOP", "measured", own, count=COUNTED))
        return [*records, *(_steps(work, models, timing, labels) if steps else [])]

    return Cell(f"{work.name}/time/{group}/{seed}", do, weight=3.0)


def _steps(
    work: Work, models: Mapping[str, nn.Module], timing: Timing, labels: dict[str, Label]
) -> list[Record]:
    """A training step, forward and back, against full; arms that are distilled are left out."""
    train = work.task.train
    batch = work.task.collate([train[index] for index in range(min(BATCH, len(train)))])
    goal = batch.pop("labels")

    def step(model: nn.Module) -> Callable[[], object]:
        model.train()

        def call() -> None:
            model.zero_grad()
            torch.autograd.backward(label_loss(outputs_of(model(**batch)), goal))

        return call

    calls = {arm: step(model) for arm, model in models.items() if not is_ours(model)}
    times = paired_latency(
        calls,
        baseline=FULL,
        rounds=STEP_ROUNDS,
        threads=timing.threads,
        warmup=1,
        budget_s=STEP_BUDGET_S,
    )
    return [
        Record(
            "train_step_ratio",
            found.ratio.value,
            "ratio",
            "measured",
            {**labels, "arm": arm, "batch": BATCH},
            found.ratio.interval,
            found.ratio.count,
        )
        for arm, found in times.items()
        if arm != FULL
    ]


def int8_cell(work: Work, seeds: Sequence[int], arms: Sequence[str], timing: Timing) -> Cell:
    """The full and the adaptive model with INT8 linear layers (torch.ao, dynamic), and as they are.

    Scores come from inputs one by one: a batch would share its scales.
    """

    def do() -> list[Record]:
        records = []
        for seed in seeds:
            for arm in arms:
                model = quantise_module(work.open(arm, seed))
                found = answers_on_test(model, work, batch=1)
                name = f"{arm} {INT8}"
                records += [*scored(work, name, seed, found), keep(work, name, seed, found)]
        return records + _int8_times(work, seeds[0], arms, timing)

    return Cell(f"{work.name}/{INT8}", do, weight=3.0)


def _int8_times(work: Work, seed: int, arms: Sequence[str], timing: Timing) -> list[Record]:
    examples = timed(work, timing)
    batches = inputs_of(work.task, examples, 1)
    random.Random(0).shuffle(batches)
    models: dict[str, nn.Module] = {arm: work.open(arm, seed) for arm in (FULL, *arms)}
    models |= {f"{arm} {INT8}": quantise_module(work.open(arm, seed)) for arm in arms}
    calls = {arm: _call(model) for arm, model in models.items()}
    inputs = [inputs for _, inputs in batches]
    times = time_inputs(calls, inputs, rounds=timing.rounds, threads=timing.threads)
    lengths = [examples.lengths[indices[0]] for indices, _ in batches]
    labels: dict[str, Label] = {"task": work.name, "group": INT8, "batch": 1}
    return times_of(times, lengths, labels)


def _call(model: nn.Module) -> Callable[[Mapping[str, Tensor]], Tensor]:
    model.eval()

    def call(inputs: Mapping[str, Tensor]) -> Tensor:
        with torch.inference_mode():
            return outputs_of(model(**inputs))

    return call


def timed(work: Work, timing: Timing) -> Examples:
    """The test examples that are timed: all, or as many as are allowed, at random."""
    test = work.task.test
    if len(test) <= timing.examples:
        return test
    chosen = random.Random(0).sample(range(len(test)), timing.examples)
    return test.subset(sorted(chosen))


def times_of(
    times: Mapping[str, InputTimes[Any]], lengths: Sequence[int], labels: dict[str, Label]
) -> list[Record]:
    """Mean, p50 and p99 of each call, and its speed against full: of all inputs, and by length."""
    records: list[Record] = []
    places = {"all": list(range(len(lengths)))}
    for name, low, high in CLASSES:
        places[name] = [place for place, length in enumerate(lengths) if low <= length < high]
    for arm, found in times.items():
        own = {**labels, "arm": arm}
        count = len(lengths)
        for of in ("mean", "p50", "p99"):
            value = float(found.typical_ms.mean())
            value = value if of == "mean" else found.percentile_ms(float(of[1:]))
            records.append(
                Record("latency_ms", value, "ms", "measured", {**own, "of": of}, count=count)
            )
        if arm == FULL:
            continue
        for name, chosen in places.items():
            if len(chosen) >= FEWEST or (name == "all" and chosen):
                ratio = speed_up(_only(found, chosen), _only(times[FULL], chosen))
                inside = {**own, "inputs": name}
                records.append(
                    Record(
                        "speed_up",
                        ratio.value,
                        "ratio",
                        "measured",
                        inside,
                        ratio.interval,
                        ratio.inputs,
                    )
                )
    return records


def _only(found: InputTimes[Any], chosen: Sequence[int]) -> InputTimes[Any]:
    return InputTimes(found.times_ms[:, list(chosen)], [found.answers[place] for place in chosen])
