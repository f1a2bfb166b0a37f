"""One pretrained model on one task: fine-tuned, swapped, evaluated, and trained in two ways."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import parse_json, read_plain
from sparing.core.record import Labels, Record, measured
from sparing.core.writing import write_atomically
from sparing.experiment.cells.training import Trained, train_metered
from sparing.experiment.inputs.task import limited
from sparing.experiment.run import slug
from sparing.measure.machine import threads
from sparing.models import build_model
from sparing.tasks import Task
from sparing.tasks import options_of as options_of_task
from sparing.tasks.shared.files import given_folder
from sparing.train import Recipe, evaluate
from sparing.train.objective import Objective
from sparing.transfer.distance import Distance, distance
from sparing.transfer.dropout import without_dropout
from sparing.transfer.layers import find_layers
from sparing.transfer.opening import open_model
from sparing.transfer.swap import swap
from sparing_papers.long_range.answers import DENSE_MODEL, TEACHER, score_records
from sparing_papers.long_range.arms import arm_of, is_random, options_of
from sparing_papers.long_range.longer import EVALUATED_AT_ONCE, length_records
from sparing_papers.long_range.measurements import Measured
from sparing_papers.long_range.stages import Stages
from sparing_papers.long_range.transfer import LayerwiseLoss, layer_errors, teacher_of
from sparing_papers.long_range.work import TaskOptions, evenly, load

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BEFORE, PLAIN, LAYERS, WARM = "before", "plain", "layers", "warm"
SCORE_FILE = "score.json"
# Tasks that are another task on a file below the data folder.
FILES: dict[str, dict[str, Any]] = {
    "amazon": {"train": "amazon/amazon_cells_labelled.txt.gz", "header": False}
}
MAY_BE_CUT = {"mnli": "glue/MNLI"}
Measurement = Callable[["PreTrainedModel", Measured, Labels], list[Record]]


def has_only_dev(task: str, data: Path | None) -> bool:
    """Whether a set that may be cut from its dev file has no training file in the data folder."""
    root = given_folder(data)
    if root is None or task not in MAY_BE_CUT:
        return False
    return not any((root / MAY_BE_CUT[task]).glob("train.tsv*"))


@dataclass(frozen=True, eq=False)
class SwappedWork:
    """One task and one pretrained model: what the cells of all variants and seeds share.

    ``measurements`` measure a swapped model that was trained with labels alone, as published,
    ``last_measurements`` one that imitated the dense model to the end.
    """

    name: str
    model: str
    stages: Stages
    folder: Path
    task_options: dict[str, Any] = field(default_factory=dict)
    data: Path | None = None
    thread_count: int = 1
    watts_per_core: float = 5.0
    measurements: tuple[Measurement, ...] = ()
    last_measurements: tuple[Measurement, ...] = ()

    @cached_property
    def task(self) -> Task:
        """The task, read with the model's tokenizer at first use."""
        file = FILES.get(self.name)
        loaded = self.name if file is None else "text"
        given = {**(file or {}), **self.task_options}
        if has_only_dev(self.name, self.data):
            given.setdefault("cut_dev", True)
        if "tokenizer" in options_of_task(loaded):
            given.setdefault("tokenizer", self.model)
        limits = TaskOptions(
            task_options={loaded: given},
            validation_examples=self.stages.validation_examples,
            test_examples=self.stages.test_examples,
        )
        # the task of files of one's own looks nowhere else for them
        loaded_task, _ = load(limits, loaded, given_folder(self.data))
        return replace(loaded_task, name=self.name)

    def model_dir(self, arm: str, seed: int, stage: str = "") -> Path:
        """The folder of a variant, or of one of its trainings."""
        arm_dir = self.folder / f"{slug(arm)}-{seed}"
        return arm_dir / stage if stage else arm_dir

    def labels(self, arm: str, seed: int, stage: str) -> Labels:
        """What a record of a variant is labelled with."""
        of_arm: Labels = {"question": "pretrained", "task": self.name, "arm": arm, "seed": seed}
        return {**of_arm, "stage": stage}

    def recipe(self, epochs: int, rate: float, seed: int, **changes: Any) -> Recipe:
        """How one stage is trained."""
        changes.setdefault("precision", self.stages.precision)
        return Recipe(
            epochs=epochs,
            batch_size=self.stages.batch_size,
            learning_rate=rate,
            seed=seed,
            distillation=self.stages.distillation,
            **changes,
        )

    def dense(self, seed: int) -> PreTrainedModel:
        """The fine-tuned model; raises ``UsageError`` where its training has not ended."""
        checkpoint = self.model_dir(DENSE_MODEL, seed)
        if not (checkpoint / SCORE_FILE).is_file():
            raise UsageError(f"the dense model of {self.name} with seed {seed} is not trained yet")
        return open_model(str(checkpoint)).eval()

    def dense_score(self, seed: int) -> float:
        """What the fine-tuned model scored on the test split."""
        file = self.model_dir(DENSE_MODEL, seed) / SCORE_FILE
        try:
            stored = parse_json(read_plain(file))
            score, data = float(stored["score"]), stored.get("data", self.digest)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{file} does not hold the dense model's score: remove it") from error
        if data != self.digest:
            raise DataError(
                f"the data of {self.name} are not those that the dense model was fine-tuned and "
                "evaluated on: give the same data folder, or start a new run"
            )
        return score

    @cached_property
    def digest(self) -> str:
        """The digests of the task's splits."""
        return " ".join(split.digest for split in self.task.splits.values())

    def swapped(self, arm: str, seed: int) -> PreTrainedModel:
        """A copy of the fine-tuned model with a variant's mechanism in all its layers."""
        model, options = self.dense(seed), options_of(arm, self.task.tokens)
        if is_random(arm):
            options.setdefault("seed", seed)
        swap(model, arm_of(arm).mechanism, tokens=self.longest, **options)
        return model

    @property
    def longest(self) -> int:
        """Tokens of the longest inputs that a swapped model is evaluated on."""
        return max((self.task.tokens, *self.stages.read_at))

    @cached_property
    def lengths(self) -> dict[int, Task]:
        """The task by the tokens that its inputs are cut to, with the test inputs that fill all.

        A shorter input would be the same at several lengths. Raises ``UsageError`` where no input
        is long enough.
        """
        read_at = self.stages.read_at
        stages = replace(self.stages, test_examples=0)
        cuts = {n: {**self.task_options, "max_tokens": n} for n in read_at}
        tasks = {
            n: replace(self, stages=stages, task_options=options).task
            for n, options in cuts.items()
        }
        if not tasks:
            return {}
        lengths = tasks[max(read_at)].test.lengths
        places = [index for index, length in enumerate(lengths) if length >= max(read_at)]
        if not places:
            raise UsageError(
                f"no test input of {self.name} has {max(read_at)} tokens; the longest has "
                f"{max(lengths)}: choose shorter ones with read_at"
            )
        filled = {n: replace(task, test=task.test.subset(places)) for n, task in tasks.items()}
        most = {"test": self.stages.test_examples}
        return {n: limited(task, most, evenly, "evenly sampled") for n, task in filled.items()}

    @cached_property
    def batches(self) -> list[dict[str, Tensor]]:
        """The test examples on which outputs are compared, at even distances."""
        test, most = self.task.test, EVALUATED_AT_ONCE * self.stages.compared_batches
        count = min(most, len(test))
        chosen = [test[index * len(test) // count] for index in range(count)]
        parts = [chosen[n : n + EVALUATED_AT_ONCE] for n in range(0, count, EVALUATED_AT_ONCE)]
        collated = [self.task.collate(part) for part in parts]
        return [{k: v for k, v in batch.items() if k != "labels"} for batch in collated]


def dense_records(work: SwappedWork, seed: int) -> list[Record]:
    """Fine-tune, evaluate and keep the dense model; count the examples of each split."""
    stages = work.stages
    labels, model_dir = work.labels(DENSE_MODEL, seed, TEACHER), work.model_dir(DENSE_MODEL, seed)
    # Without attention dropout, which most mechanisms lack. Built for the longest inputs that
    # swapped models are evaluated on, so that a length that is too long fails before any training.
    longest_task = replace(work.task, tokens=work.longest)
    model = without_dropout(build_model(work.model, longest_task, seed=seed), hidden=False)
    _ = work.lengths  # raises now, and not after the training, where no input is long enough
    recipe = work.recipe(stages.dense_epochs, stages.dense_rate, seed)
    with threads(work.thread_count):
        trained = train_metered(model, work.task, recipe, model_dir, work.watts_per_core)
        evaluation = evaluate(model, work.task, batch_size=EVALUATED_AT_ONCE)
    result = {"score": evaluation.score, "data": work.digest}
    write_atomically(model_dir / SCORE_FILE, json.dumps(result) + "\n")
    of_task: Labels = {"question": "pretrained", "task": work.name, "metric": work.task.metric}
    records = score_records(evaluation, labels) + measured(
        of_task, "share", chance=work.task.chance
    )
    for name, split in work.task.splits.items():
        records += measured({**of_task, "split": name}, "", examples=float(len(split)))
    return [*records, *_curve(trained, labels, 0), *trained.spent(labels)]


def arm_records(work: SwappedWork, arm: str, seed: int) -> list[Record]:
    """One variant: as swapped, trained with labels alone, and warm-started from the dense model."""
    stages = _Arm(work, arm, seed)
    with threads(work.thread_count):
        records = stages.before()
        if work.stages.plain:
            records += stages.plain()
        records += stages.warm()
    if not work.stages.keep:
        shutil.rmtree(work.model_dir(arm, seed), ignore_errors=True)
    return records


class _Arm:
    """A variant with a seed, its teacher, and what it does in each stage."""

    def __init__(self, work: SwappedWork, arm: str, seed: int) -> None:
        self.work, self.arm, self.seed = work, arm, seed
        self.dense = work.dense(seed)
        self.teacher = teacher_of(self.dense)
        self.dense_score = work.dense_score(seed)
        self.start_score = 0.0

    def before(self) -> list[Record]:
        """The swapped copy, untrained."""
        model = self.work.swapped(self.arm, self.seed)
        self.start_score = evaluate(
            model, self.work.task, "validation", batch_size=EVALUATED_AT_ONCE
        ).score
        return self._evaluated(model, BEFORE)

    def plain(self) -> list[Record]:
        """Labels alone."""
        stages = self.work.stages
        model = self.work.swapped(self.arm, self.seed)
        start = self._start(PLAIN)
        return [start, *self._trained(model, PLAIN, PLAIN, stages.swapped_epochs)[1]]

    def warm(self) -> list[Record]:
        """Layer by layer, then end to end; the curve's steps run on."""
        stages, collected, steps = self.work.stages, [self._start(WARM)], 0
        model = self.work.swapped(self.arm, self.seed)
        if stages.layer_epochs:
            objective = LayerwiseLoss(self.teacher)
            steps, records = self._trained(model, LAYERS, WARM, stages.layer_epochs, objective)
            collected += records
        if stages.later_epochs:
            collected += self._trained(model, WARM, WARM, stages.later_epochs, after=steps)[1]
        labels = self.work.labels(self.arm, self.seed, WARM)
        collected += length_records(model, self.work.lengths, labels, self.work.task.tokens)
        return collected + [
            r for measure in self.work.last_measurements for r in measure(model, self.work, labels)
        ]

    def _trained(
        self,
        model: PreTrainedModel,
        stage: str,
        curve: str,
        epochs: int,
        objective: Objective | None = None,
        after: int = 0,
    ) -> tuple[int, list[Record]]:
        """Train for a stage, evaluate, and record the cost."""
        work = self.work
        labels = work.labels(self.arm, self.seed, stage)
        rate = work.stages.layer_rate if stage == LAYERS else work.stages.later_rate
        changes: dict[str, Any] = {"mechanism_rate_factor": work.stages.mechanism_rate_factor}
        if stage == LAYERS:
            changes = {"weight_decay": 0.0, "precision": "float32"}
        trained = train_metered(
            model,
            work.task,
            work.recipe(epochs, rate, self.seed, **changes),
            work.model_dir(self.arm, self.seed, stage),
            work.watts_per_core,
            objective=objective,
            teacher=self.dense if stage == WARM else None,
        )
        records = _curve(trained, work.labels(self.arm, self.seed, curve), after)
        records += self._evaluated(model, stage)
        if stage == PLAIN:
            records += [
                record for measure in work.measurements for record in measure(model, work, labels)
            ]
        return trained.result.steps + after, [*records, *trained.spent(labels)]

    def _start(self, stage: str) -> Record:
        labels = {**self.work.labels(self.arm, self.seed, stage), "step": 0}
        return Record("validation_score", self.start_score, "share", "measured", labels)

    def _evaluated(self, model: PreTrainedModel, stage: str) -> list[Record]:
        """Score, the share of the dense model's that is kept, and distances from its outputs."""
        work, labels = self.work, self.work.labels(self.arm, self.seed, stage)
        evaluation = evaluate(model, work.task, batch_size=EVALUATED_AT_ONCE)
        records = score_records(evaluation, labels)
        if self.dense_score > 0:
            share_kept = evaluation.score / self.dense_score
            records += measured(labels, "share", evaluation.count, kept=share_kept)
        difference, alone = self._distances(model)
        records += measured(labels, "", output_error=difference.output_error)
        if difference.divergence is not None:
            records += measured(labels, "nats", output_divergence=difference.divergence)
        numbers = {layer.name: layer.index for layer in find_layers(model)}
        for given, errors in (("its own", difference.layers), ("the dense model's", alone)):
            for name, error in errors.items():
                layer = {**labels, "layer": numbers[name], "inputs": given}
                records += measured(layer, "", layer_error=error)
        return records

    def _distances(self, model: PreTrainedModel) -> tuple[Distance, dict[str, float]]:
        """From the dense model, and of each layer alone; where the weights are."""
        device = model.device
        batches = [
            {name: value.to(device) for name, value in batch.items()} for batch in self.work.batches
        ]
        difference = distance(self.dense.to(device), model, batches)
        return difference, layer_errors(self.teacher.to(device), model, batches)


def _curve(trained: Trained, labels: Labels, after: int) -> list[Record]:
    """Validation scores against steps; ``after`` are the steps of the stage before."""
    return trained.curve(labels, lambda entry: {"step": int(entry["step"]) + after})
