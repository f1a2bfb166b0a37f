"""What the HuggingGreen study runs: its options, its budgets, and the tasks that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from sparing.core.checks import Count, Positive, check_fields, distinct, one_of, require_names, some
from sparing.core.errors import UsageError, require_choice
from sparing.experiment.inputs.budgets import load_budgets
from sparing.experiment.inputs.recipes import recipe_for
from sparing.experiment.inputs.task import drawn, limited, load_for, require_tasks
from sparing.layers.patches import SCORES, WAYS
from sparing.measure.energy import BACKENDS, EnergyMeter
from sparing.tasks import Examples, Task, options_of
from sparing.tasks.shared.files import given_folder
from sparing.train.recipe import Precision, Recipe
from sparing.transfer.scheduling import PatchSchedule
from sparing_papers.hugginggreen.names import (
    ATTENTION,
    BOXES,
    PATCHES,
    STAGES,
    WEIGHTLESS,
)

QUESTIONS = (ATTENTION, PATCHES, STAGES, BOXES)
# Schedules of the selection during training, by name; the variant's share replaces one end.
SCHEDULES: Mapping[str, PatchSchedule] = {
    "decay": PatchSchedule("decay", start=0.5),
    "compounding": PatchSchedule("compounding", start=0.5),
    "linear": PatchSchedule("linear", "keep", start=1.0, end=1.0),
    "linear-falling": PatchSchedule("linear", "keep", start=1.0, end=1.0),
    "cosine": PatchSchedule("cosine", "keep", start=1.0, end=1.0),
    "cosine-falling": PatchSchedule("cosine", "keep", start=1.0, end=1.0),
}
# Of values, equal to that of keys with 16 dimensions: 1/sqrt(16).
VALUE_PRECISION = 0.25
UNIFORM: Mapping[str, Any] = {"prior": "uniform"}
BY_EM: Mapping[str, Any] = {**UNIFORM, "value_precision": VALUE_PRECISION}
# Attentions by name: a mechanism and its options. The first takes plain means: the control that
# shows whether a task needs attention at all.
ATTENTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    WEIGHTLESS: ("uniform", {}),
    "uniform prior": ("probabilistic", UNIFORM),
    "keys by one step of EM": ("probabilistic", {**UNIFORM, "key_adaptation": 1}),
    "keys by two steps of EM": ("probabilistic", {**UNIFORM, "key_adaptation": 2}),
    "values by EM": ("probabilistic", BY_EM),
    "values propagated": ("probabilistic", {**BY_EM, "value_adaptation": 1}),
}
TRAINED = ("epochs", "learning_rate", "batch_size")
NEEDS = ("", "accelerator")
MOST_BYTES = 32 * 2**30
Question = Annotated[str, one_of(*QUESTIONS)]
Score = Annotated[str, one_of(*SCORES)]
Way = Annotated[str, one_of(*WAYS)]
Schedule = Annotated[str, one_of(*SCHEDULES)]
Attention = Annotated[str, one_of(*ATTENTIONS)]
NEEDS_ACCELERATOR = (
    "the paper's own setting (224 pixels, a ViT 3,072 wide for RQ1) needs an accelerator"
)


@dataclass(frozen=True)
class Options:
    """The tasks, questions, models, trainings and measurements of a run."""

    # Tasks and questions
    tasks: Annotated[tuple[str, ...], distinct] = ()
    """Empty: digits, and fashion-mnist with a data folder."""
    questions: Annotated[tuple[Question, ...], some, distinct] = QUESTIONS
    """``attention`` (RQ1), ``patches`` (RQ2), ``stages`` (RQ3), ``boxes`` (detection)."""
    questions_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By task, for tasks with fewer questions."""
    box_tasks: tuple[str, ...] = ("scenes",)
    """The tasks of detection."""
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The options of each task."""
    unlabelled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By task, the task (name and options) with the images of the stages without labels."""
    validation_examples: int = 1000
    test_examples: int = 0
    """Limits of the splits; 0 takes all of the test split."""

    # Sizes of the models
    width: int = 64
    heads: int = 4
    depths: Annotated[tuple[int, ...], some, distinct] = (4,)
    """Layers: RQ2 runs every depth, all else the first."""
    attention_width: int = 0
    attention_heads: int = 0
    attention_depth: int = 0
    """Of RQ1's models; 0 takes the width, the heads and the first depth."""
    attentions: Annotated[tuple[Attention, ...], distinct] = ()
    """RQ1's variants beside dense, each with goals; empty: those of the paper's abstract."""
    network_width: int = 32
    """Width of the convolutional baseline; 0 leaves it out."""
    halved: bool = True
    """Adds half the layers, distilled."""

    # Selection of patches
    scores: Annotated[tuple[Score, ...], some, distinct] = (
        "contrast",
        "variance",
        "entropy",
        "random",
    )
    """Scores that choose patches; the first depth runs all, the others the first."""
    ways: Annotated[tuple[Way, ...], some, distinct] = ("top",)
    """Whether the best patches are kept, or patches are sampled."""
    keeps: Annotated[tuple[float | int, ...], some, distinct] = (0.7,)
    """Shares of patches below 1, or counts; 1 is the dense variant, which always runs."""
    schedules: Annotated[tuple[Schedule, ...], distinct] = ()
    """Schedules of further variants with the first score."""
    schedule: Annotated[str, one_of(*SCHEDULES, "")] = ""
    """The schedule of every variant that selects."""
    at_inference: bool = True
    """Without it every patch goes on in evaluation: selection is a matter of training."""
    every_score: bool = False
    """Goals for each score, not for the first alone."""
    median_box: bool = False
    """Detection beside a guess: the median box of training, with the dense model's classes.
    Adds the goals of detection."""

    # Training
    pairs: Count = 10
    attention_pairs: Count = 10
    stage_pairs: Count = 10
    box_pairs: Count = 10
    """Seeds of each question."""
    epochs: int = 0
    learning_rate: float = 0.0
    batch_size: Count = 64
    """For all tasks; 0 takes the task's default recipe."""
    trained: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By task: its epochs, learning rate and batch size."""
    stage_epochs: tuple[int, int] = (5, 3)
    """Epochs of masked and of contrastive training."""
    precision: Precision = "auto"

    # Measuring and deciding
    margin: Positive = 0.01
    """The largest loss of accuracy that counts as none."""
    inference_seconds: float = 1.0
    """Seconds of inference for the measurement of its energy."""
    intensity_g_per_kwh: float = 400.0
    """A stated carbon intensity."""
    meter: Annotated[str, one_of(*BACKENDS)] = "own"
    """The meter of energy: ``codecarbon`` and ``zeus`` where they are installed."""
    watts_per_core: float = 5.0
    """The constant of energy estimates, for machines without an energy counter."""
    thread_count: Count = 1
    needs: Annotated[str, one_of(*NEEDS)] = ""
    """What a budget requires."""

    def __post_init__(self) -> None:
        check_fields(self)
        for questions in self.questions_of.values():
            for value in questions:
                require_choice("the study", "questions_of", value, QUESTIONS)
        if any(not 0 < keep < 1 if isinstance(keep, float) else keep < 2 for keep in self.keeps):
            raise UsageError(
                "keeps are shares below 1, or counts of patches; 1 is the dense variant"
            )
        for name in ("trained", "task_options", "questions_of", "unlabelled"):
            require_tasks(name, getattr(self, name), (*self.tasks, *self.box_tasks))
        for task, given in self.trained.items():
            require_names(f"trained.{task}", given, TRAINED)

    def energy_meter(self) -> EnergyMeter:
        """A meter of energy; raises ``UsageError`` for one that is not installed."""
        return EnergyMeter(watts_per_core=self.watts_per_core, backend=self.meter)

    def questions_for(self, task: str) -> tuple[str, ...]:
        """The questions that run on a task."""
        chosen = self.questions_of.get(task, self.questions)
        return tuple(question for question in self.questions if question in chosen)

    def recipe(self, task: str, seed: int) -> Recipe:
        """The recipe of a task's dense variant; other variants differ in their epochs alone."""
        given = dict(self.trained.get(task, {}))
        given["epochs"] = self.epochs or given.get("epochs")
        given["learning_rate"] = self.learning_rate or given.get("learning_rate")
        given["batch_size"] = given.get("batch_size") or self.batch_size
        return recipe_for(task, given, precision=self.precision, seed=seed)


BUDGETS = load_budgets("sparing_papers.hugginggreen", Options)


def task_names(options: Options, data: Path | None) -> tuple[str, ...]:
    """The selected tasks, or those available without a selection."""
    if options.tasks:
        return options.tasks
    return ("digits", "fashion-mnist") if given_folder(data) else ("digits",)


def load(
    options: Options, name: str, data: Path | None, *, boxes: bool = False
) -> tuple[Task, dict[str, Any]]:
    """A task of images, its held-out splits limited, and the options it was loaded with.

    ``boxes`` loads them if that is an option of the task.

    Raises ``UsageError`` for a task of texts and for one with patches that cannot be selected.
    """
    given = dict(options.task_options.get(name, {}))
    if boxes and "boxes" in options_of(name):
        given["boxes"] = True
    task, loaded = load_for(name, given, "", data)
    task = _held(task, name)
    if task.kind != "image":
        raise UsageError(f"the study selects patches of images; {name} is a task of texts")
    if task.classes < 2:
        raise UsageError(f"{name} has one class: there is nothing to learn")
    sizes = {"validation": options.validation_examples, "test": options.test_examples}
    task = limited(task, sizes, drawn, "sampled at random")
    return task, loaded


def unlabelled(options: Options, name: str, task: Task, data: Path | None) -> Task:
    """The images for the stages without labels.

    Raises ``UsageError`` if their size, patches or channels differ from the task's.
    """
    given = dict(options.unlabelled.get(name, {}))
    if not given:
        return task
    other = str(given.pop("task", name))
    defaults = {"patch_size": task.patch_size} if other == name else {}
    images, _ = load_for(other, {**defaults, **given}, "", data)
    images = _held(images, other)
    for size in ("image_size", "patch_size", "channels"):
        if getattr(images, size) != getattr(task, size):
            raise UsageError(
                f"unlabelled images of {other} have {size} {getattr(images, size)}, but {name} has "
                f"{getattr(task, size)}"
            )
    most = options.validation_examples
    if 0 < most < len(images.validation):
        images = replace(images, validation=drawn(images.validation, most))
    return images


def _held(task: Task, name: str) -> Task:
    """The task with all its images in memory."""
    names = ("train", "validation", "test")
    splits: dict[str, Any] = {split: _in_memory(name, task.split(split)) for split in names}
    return replace(task, **splits)


def _in_memory(name: str, examples: Examples) -> Examples:
    """The images as one tensor: reading them in training would be measured as its energy.

    Raises ``UsageError`` if they take too much memory.
    """
    if isinstance(examples.inputs, Tensor) or examples.input_name != "pixel_values":
        return examples
    size = examples.inputs[0].nbytes * len(examples)
    if size > MOST_BYTES:
        raise UsageError(
            f"the images of {name} take {size / 2**30:.0f} GiB of memory, more than "
            f"{MOST_BYTES // 2**30}: take fewer (task_options.{name}.examples) or smaller ones"
        )
    return replace(examples, inputs=torch.stack(list(examples.inputs)))
