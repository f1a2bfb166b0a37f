"""The cells that time models of a task: inputs one by one, training steps, batches, INT8."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from sparing.core.record import Label, Record
from sparing.experiment.run import Cell
from sparing.export.int8 import quantise_module
from sparing.measure.flops import count_flops
from sparing.measure.inputs import InputTimes, speed_up, time_inputs
from sparing.measure.latency import paired_latency
from sparing.measure.statistics import Ratio
from sparing.slim.inputs import inputs_of
from sparing.train.answers import label_loss, outputs_of
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing_papers.adaattention.arms import BATCH, Work
from sparing_papers.adaattention.cells.answers import answers_on_test, keep, scored
from sparing_papers.adaattention.names import ADAPTIVE, FULL, INT8

QUANTISED = (FULL, ADAPTIVE)
CLASSES = (("10-50", 10, 50), ("50-200", 50, 200), ("200+", 200, 1 << 30))
FEWEST = 20
COUNTED = 50
STEP_ROUNDS, STEP_BUDGET_S = 7, 120.0
BATCH_ROUNDS, BATCH_BUDGET_S = 7, 240.0
Inputs = Mapping[str, Tensor]
Call = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class Timing:
    """How many inputs are timed, how often, and on how many threads."""

    examples: int
    rounds: int
    threads: int


def timing_cell(
    work: Work, group: str, arms: Sequence[str], seed: int, timing: Timing, *, steps: bool = True
) -> Cell:
    """Time one group's models of one seed on the same test inputs, one by one, against full.

    ``steps`` times steps of training too.
    """

    def do() -> list[Record]:
        models = _opened(work, arms, seed)
        labels: dict[str, Label] = {"task": work.name, "group": group, "batch": 1, "seed": seed}
        inputs = [batch for _, batch in timed(work, timing)[:COUNTED]]
        return [
            *_times_one_by_one(work, models, timing, labels),
            *(_flops(model, inputs, {**labels, "arm": arm}) for arm, model in models.items()),
            *(_steps(work, models, timing, labels) if steps else []),
        ]

    return Cell(f"{work.name}/time/{group}/{seed}", do)


def _opened(work: Work, arms: Sequence[str], seed: int) -> dict[str, nn.Module]:
    """The trained models of these variants, the full model first."""
    return {arm: work.open(arm, seed) for arm in dict.fromkeys((FULL, *arms))}


def timed(work: Work, timing: Timing, batch: int = 1) -> list[tuple[list[int], dict[str, Tensor]]]:
    """The test inputs that are timed: all, or a random sample of the allowed size.

    Each comes with the lengths of its texts. Single inputs are in random order; batches hold texts
    of similar length.
    """
    examples = work.task.test
    if len(examples) > timing.examples:
        drawn = random.Random(0).sample(range(len(examples)), timing.examples)
        examples = examples.subset(sorted(drawn))
    batches = inputs_of(work.task, examples, batch)
    if batch == 1:
        random.Random(0).shuffle(batches)
    return [([examples.lengths[i] for i in indices], inputs) for indices, inputs in batches]


def _times_one_by_one(
    work: Work, models: Mapping[str, nn.Module], timing: Timing, labels: dict[str, Label]
) -> list[Record]:
    batches = timed(work, timing)
    calls = {arm: _call(model) for arm, model in models.items()}
    inputs = [inputs for _, inputs in batches]
    times = time_inputs(calls, inputs, rounds=timing.rounds, threads=timing.threads)
    return times_of(times, [lengths[0] for lengths, _ in batches], labels)


def _call(model: nn.Module) -> Call:
    model.eval()

    def call(inputs: Inputs) -> Tensor:
        with torch.inference_mode():
            return outputs_of(model(**inputs))

    return call


def _flops(model: nn.Module, inputs: Sequence[Inputs], labels: dict[str, Label]) -> Record:
    mean = fmean(float(count_flops(partial(_call(model), given))) for given in inputs)
    return Record("flops", mean, "FLOP", "modelled", labels, count=COUNTED)


def _steps(
    work: Work, models: Mapping[str, nn.Module], timing: Timing, labels: dict[str, Label]
) -> list[Record]:
    """A training step, forward and backward, against full; distilled variants are left out."""
    train = work.task.train
    batch = work.task.collate([train[index] for index in range(min(BATCH, len(train)))])
    goal = batch.pop("labels")

    def step(model: nn.Module) -> Callable[[], object]:
        model.train()

        def call() -> None:
            model.zero_grad()
            torch.autograd.backward(label_loss(outputs_of(model(**batch)), goal))

        return call

    learners = {arm: m for arm, m in models.items() if not isinstance(m, AdaptiveClassifier)}
    calls = {arm: step(model) for arm, model in learners.items()}
    how: dict[str, Any] = {"rounds": STEP_ROUNDS, "budget_s": STEP_BUDGET_S, "warmup": 1}
    times = paired_latency(calls, baseline=FULL, threads=timing.threads, **how)
    of_step: dict[str, Label] = {**labels, "batch": BATCH}
    return [
        of_ratio("train_step_ratio", time.ratio, {**of_step, "arm": arm})
        for arm, time in times.items()
        if arm != FULL
    ]


def of_ratio(name: str, ratio: Ratio, labels: dict[str, Label]) -> Record:
    """A ratio with its interval."""
    ends, count = ratio.interval, ratio.count
    return Record(name, ratio.value, "ratio", "measured", labels, ends, count)


def inverse(name: str, ratio: Ratio, labels: dict[str, Label]) -> Record:
    """The inverse of a ratio of times, as a speed."""
    low, high = ratio.interval or (ratio.value, ratio.value)
    return of_ratio(name, Ratio(1 / ratio.value, (1 / high, 1 / low), ratio.count), labels)


def throughput_cell(work: Work, arms: Sequence[str], seed: int, timing: Timing) -> Cell:
    """Time each trained variant on the inputs in batches of 32, in turn with the full model."""

    def do() -> list[Record]:
        batches = timed(work, timing, BATCH)
        calls = {
            arm: partial(_over, _call(model), [inputs for _, inputs in batches])
            for arm, model in _opened(work, arms, seed).items()
        }
        how: dict[str, Any] = {"rounds": BATCH_ROUNDS, "budget_s": BATCH_BUDGET_S, "warmup": 1}
        times = paired_latency(calls, baseline=FULL, threads=timing.threads, **how)
        count, records = sum(len(lengths) for lengths, _ in batches), []
        for arm, time in times.items():
            labels: dict[str, Label] = {"task": work.name, "arm": arm, "batch": BATCH}
            value = 1e3 * count / time.p50_ms
            records.append(Record("throughput", value, "1/s", "measured", labels))
            if arm != FULL:
                records.append(inverse("batch_speed_up", time.ratio, labels))
        return records

    return Cell(f"{work.name}/throughput", do)


def _over(call: Call, batches: Sequence[Inputs]) -> None:
    for batch in batches:
        call(batch)


def int8_cell(work: Work, seeds: Sequence[int], arms: Sequence[str], timing: Timing) -> Cell:
    """Time full and adaptive with INT8 linear layers (torch.ao, dynamic) and without.

    Scores come from inputs one by one, as a batch would share its scales.
    """

    def do() -> list[Record]:
        records = []
        for seed in seeds:
            for arm in arms:
                model = quantise_module(work.open(arm, seed))
                answers = answers_on_test(model, work, batch=1)
                name = f"{arm} {INT8}"
                records += [*scored(work, name, seed, answers), keep(work, name, seed, answers)]
        models = _opened(work, arms, seeds[0])
        models |= {f"{arm} {INT8}": quantise_module(work.open(arm, seeds[0])) for arm in arms}
        labels: dict[str, Label] = {"task": work.name, "group": INT8, "batch": 1}
        return [*records, *_times_one_by_one(work, models, timing, labels)]

    return Cell(f"{work.name}/{INT8}", do)


def times_of(
    times: Mapping[str, InputTimes[Any]], lengths: Sequence[int], labels: dict[str, Label]
) -> list[Record]:
    """Mean, p50 and p99 of each call, and its speed against full: over all inputs and by length."""
    records: list[Record] = []
    chosen = {"all": list(range(len(lengths)))}
    for name, low, high in CLASSES:
        inside = [index for index, length in enumerate(lengths) if low <= length < high]
        chosen |= {name: inside} if len(inside) >= FEWEST else {}
    for arm, time in times.items():
        of_arm: dict[str, Label] = {**labels, "arm": arm}
        values = {f"p{q}": time.percentile_ms(float(q)) for q in (50, 99)}
        for of, value in {"mean": float(time.typical_ms.mean()), **values}.items():
            about: dict[str, Label] = {**of_arm, "of": of}
            records.append(Record("latency_ms", value, "ms", "measured", about, None, len(lengths)))
        for name, places in chosen.items():
            if arm != FULL and places:
                speed = speed_up(_only(time, places), _only(times[FULL], places))
                ratio = Ratio(speed.value, speed.interval, speed.inputs)
                records.append(of_ratio("speed_up", ratio, {**of_arm, "inputs": name}))
    return records


def _only(times: InputTimes[Any], places: Sequence[int]) -> InputTimes[Any]:
    return InputTimes(times.times_ms[:, list(places)], [times.answers[index] for index in places])
