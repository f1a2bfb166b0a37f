"""The cells of a comparison: training, latency, memory, FLOPs and energy of its variants."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.record import Label, Labels, Record
from sparing.experiment.arms import build_arm, model_in_its_own_process
from sparing.experiment.cells import probe
from sparing.experiment.cells.sweep import Point, Sweep, ratio_record
from sparing.experiment.cells.training import trained_cell
from sparing.experiment.run import Cell
from sparing.measure.energy import Energy, EnergyMeter
from sparing.measure.flops import model_flops
from sparing.measure.gains import LARGEST_SHARE, largest_gain
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.machine import threads
from sparing.measure.statistics import Ratio, as_record
from sparing.measure.windows import of_all_processes
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult, evaluate, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODEL_BATCHES = (1, 32)
# Records of accuracy hold the task's own metric, which the run's description names.
CURVES = (
    ("validation_accuracy", "validation_score", "share"),
    ("train_loss", "train_loss", "nats"),
)


@dataclass(frozen=True)
class Arms:
    """The input of the cells: the task, the model and the options of each variant."""

    task: Task
    task_name: str
    task_options: dict[str, Any]
    data: Path | None
    model: str
    sizes: dict[str, Any]
    options: dict[str, dict[str, Any]]
    given: dict[str, dict[str, Any]]
    baseline: str
    folder: Path
    rounds: int
    thread_count: int

    @property
    def names(self) -> tuple[str, ...]:
        """The variants, in the order given."""
        return tuple(self.options)

    def build(self, arm: str, seed: int) -> PreTrainedModel:
        """A variant's model with fresh weights."""
        return build_arm(self.model, self.task, arm, self.options[arm], seed, self.sizes)

    @cached_property
    def shape(self) -> probe.Shape:
        """The sizes of the model."""
        return probe.shape_of(self.build(self.baseline, 0).config)


def training_cell(arms: Arms, arm: str, seed: int, recipe: Recipe) -> Cell:
    """Train one variant with one seed and evaluate it on the test split."""

    def training() -> tuple[PreTrainedModel, TrainResult, Energy]:
        output_dir = arms.folder / "models" / f"{arm}-{seed}"
        model = arms.build(arm, seed)
        with threads(arms.thread_count), EnergyMeter() as meter:
            # from the start: the energy of an interrupted cell is not known
            result = train(model, arms.task, recipe, output_dir=output_dir, resume="never")
        return model, result, of_all_processes(meter.energy)

    def record(trained: tuple[PreTrainedModel, TrainResult, Energy]) -> list[Record]:
        model, result, energy = trained
        with threads(arms.thread_count):
            evaluation = evaluate(model, arms.task)
        labels: dict[str, Label] = {"arm": arm, "seed": seed}
        test = {**labels, "split": "test"}
        return [
            Record("accuracy", evaluation.score, "share", "measured", test, count=evaluation.count),
            Record("train_time_s", result.train_time_s, "s", "measured", labels),
            Record("params", float(model.num_parameters()), "numbers", "measured", {"arm": arm}),
            *_energy_records("train_energy_j", energy, labels),
            *_curve_records(result.curve, labels),
        ]

    return trained_cell(f"train/{arm}/{seed}", training, record, weight=8.0, beside=True)


def _curve_records(curve: list[dict[str, Any]], labels: dict[str, Label]) -> list[Record]:
    records = []
    for point in curve:
        point_labels = {**labels, "epoch": point["epoch"], "step": point["step"]}
        for name, key, unit in CURVES:
            if point.get(key) is not None:
                records.append(Record(name, point[key], unit, "measured", point_labels))
    return records


def _energy_records(
    name: str, energy: Energy, labels: dict[str, Label], per: float = 1.0
) -> list[Record]:
    records = [
        Record("meter_note", None, "", "measured", {"arm": labels["arm"], "told": note})
        for note in energy.notes
    ]
    for part in energy.components:
        interval = None if part.interval is None else tuple(bound / per for bound in part.interval)
        part_labels: dict[str, Label] = {**labels, "component": part.name, "method": part.method}
        records.append(
            Record(name, part.energy_j / per, "J", part.obtained, part_labels, interval)  # type: ignore[arg-type]
        )
    return records


def latency_records(
    timed: dict[str, PairedLatency], scope: str, tokens: int, batch: int, baseline: str
) -> list[Record]:
    """Latencies and, for all but the baseline, ratios."""
    records = []
    for arm, latency in timed.items():
        labels: dict[str, Label] = {"arm": arm, "scope": scope, "tokens": tokens, "batch": batch}
        count = len(latency.samples_ms)
        for statistic in ("p50", "p90", "p99"):
            value = getattr(latency, f"{statistic}_ms")
            statistic_labels = {**labels, "statistic": statistic, "threads": latency.threads}
            records.append(
                Record("latency_ms", value, "ms", "measured", statistic_labels, count=count)
            )
        if arm != baseline:
            records.append(ratio_record("latency_ratio", latency, timed[baseline], labels))
    return records


def model_latency_cell(arms: Arms, batch: int) -> Cell:
    """All variants' whole models on the task's own inputs, interleaved."""

    def work() -> list[Record]:
        inputs = probe.task_inputs(arms.task, batch)
        calls = {arm: probe.model_call(arms.build(arm, 0), inputs) for arm in arms.names}
        timed = paired_latency(
            calls, baseline=arms.baseline, rounds=arms.rounds, threads=arms.thread_count
        )
        return latency_records(timed, "model", arms.task.tokens, batch, arms.baseline)

    return Cell(f"latency/model/{batch}", work, weight=2.0)


def attention_latency_cell(arms: Arms, tokens: int) -> Cell:
    """All variants' attention cores at one length, and the core's share of the dense model."""

    def work() -> list[Record]:
        points = {arm: _core_point(arms, arm, tokens) for arm in arms.names}
        timed = _cores(arms).time(list(points.values()), arms.baseline)
        records = latency_records(timed, "attention", tokens, 1, arms.baseline)
        core = probe.attention(**points[arms.baseline].arguments)
        return records + _share_records(arms, tokens, core)

    return Cell(f"latency/attention/{tokens}", work, weight=1.0 + tokens / 1024)


def _cores(arms: Arms) -> Sweep:
    return Sweep(probe.attention, arms.rounds, arms.thread_count)


def _core_point(arms: Arms, arm: str, tokens: int) -> Point:
    """A variant's attention core with the mechanism's own defaults.

    Options that were shrunk to the task's length would make it too fast at longer ones.
    """
    shape = list(asdict(arms.shape).values())
    size = {"tokens": tokens, "batch": 1}
    arguments = {"name": arm, "options": arms.given.get(arm, {}), "shape": shape, **size}
    return Point(arm, arguments, {"arm": arm, "scope": "attention", **size})


def _share_records(arms: Arms, tokens: int, core: Callable[[], object]) -> list[Record]:
    """Layers times the core's time over the whole encoder's, taken side by side."""
    calls = {"encoder": probe.encoder_call(arms.shape, tokens), "core": core}
    timed = paired_latency(
        calls, baseline="encoder", rounds=max(5, arms.rounds // 2), threads=arms.thread_count
    )
    ratio = timed["core"].ratio
    low, high = ratio.interval or (ratio.value, ratio.value)
    value, low, high = (
        min(LARGEST_SHARE, arms.shape.layers * end) for end in (ratio.value, low, high)
    )
    share = Ratio(value, (low, high), ratio.count)
    labels: dict[str, Label] = {"tokens": tokens, "arm": arms.baseline}
    return [
        as_record("attention_share", share, "share", labels),
        as_record("largest_gain", largest_gain(share), "ratio", labels),
    ]


def memory_cell(arms: Arms, arm: str, tokens: int) -> Cell:
    """The peak memory of one variant's attention core, in a process of its own."""
    return _cores(arms).memory_cell(f"memory/{arm}/{tokens}", _core_point(arms, arm, tokens), 1.5)


def model_memory_cell(arms: Arms, arm: str, batch: int) -> Cell:
    """The peak memory of one variant's whole model on the task, in a process of its own."""
    arguments = {
        "model": arms.model,
        "task": arms.task_name,
        "task_options": arms.task_options,
        "data": None if arms.data is None else str(arms.data),
        "arm": arm,
        "options": arms.options[arm],
        "sizes": arms.sizes,
        "batch": batch,
    }
    labels = _model_labels(arms, arm, batch)
    sweep = Sweep(model_in_its_own_process, arms.rounds, arms.thread_count)
    return sweep.memory_cell(f"memory/{arm}/model", Point(arm, arguments, labels), 1.5)


def _model_labels(arms: Arms, arm: str, batch: int) -> Labels:
    return {"arm": arm, "scope": "model", "tokens": arms.task.tokens, "batch": batch}


def flops_cell(arms: Arms, arm: str) -> Cell:
    """The FLOPs of one variant's whole model on one example of the task."""

    def work() -> list[Record]:
        counted = model_flops(arms.build(arm, 0), probe.task_inputs(arms.task, 1))
        labels = _model_labels(arms, arm, 1)
        return [Record("flops", float(counted.total), "FLOP", "modelled", labels)]

    return Cell(f"flops/{arm}", work, weight=0.2)


def energy_cell(arms: Arms, batch: int, seconds: float) -> Cell:
    """Inference energy of all variants' models, in interleaved windows of equal work."""

    def work() -> list[Record]:
        inputs = probe.task_inputs(arms.task, batch)
        calls = {arm: probe.model_call(arms.build(arm, 0), inputs) for arm in arms.names}
        with threads(arms.thread_count):
            repeats = _repeats(calls[arms.baseline], seconds)
            records = []
            for number in range(5):
                for arm, call in calls.items():
                    call()
                    with EnergyMeter() as meter:
                        for _ in range(repeats):
                            call()
                    labels = {**_model_labels(arms, arm, batch), "round": number}
                    per = float(repeats * batch)
                    records += _energy_records("energy_j", meter.energy, labels, per)
        return records

    return Cell("energy/model", work, weight=2.0)


def _repeats(call: Callable[[], object], seconds: float) -> int:
    """How often the baseline must be called to fill a window."""
    call()
    start = time.perf_counter()
    for _ in range(3):
        call()
    once = (time.perf_counter() - start) / 3
    return max(3, round(seconds / once))
