"""What the AdaAttention study runs: its options, its budgets, and the tasks that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch

from sparing.core.checks import (
    Count,
    NotNegative,
    Positive,
    at_least,
    check_fields,
    distinct,
    require_names,
    some,
)
from sparing.core.errors import UsageError, nearest
from sparing.experiment.inputs.budgets import load_budgets
from sparing.experiment.inputs.task import drawn, limited, load_for
from sparing.tasks import Task, options_of
from sparing.tasks.shared.files import given_folder
from sparing.train.recipe import Precision
from sparing.train.trainer import resolve_precision
from sparing_papers.adaattention.arms import BATCH, Arm, Length, Work, chosen

DATA = "SPARING_DATA"
WITH_DATA, WITHOUT_DATA = "sst2", "digits"
TEXT_SIZES: Mapping[str, Any] = {"layers": 4, "width": 128, "heads": 4, "dropout": 0.1}
IMAGE_SIZES: Mapping[str, Any] = {"layers": 4, "width": 64, "heads": 4}
TRAINED = (
    "dense_epochs",
    "epochs",
    "batch_size",
    "learning_rate",
    "mechanism_rate_factor",
    "layer_epochs",
    "layer_rate",
)
LATER = {"taught": ("taught", "layer_epochs", "layer_rate"), "shared": ("shared", "shared_weight")}
"""Options that only runs with these settings have in their configuration."""
ACCURACY = "accuracy"
NEEDS_ACCELERATOR = (
    "the paper's own setting (BERT-base, GLUE, all variants, 3 seeds, 4 epochs of up to 393,000 "
    "texts) takes months on a CPU and needs an accelerator"
)


@dataclass(frozen=True)
class Options:
    """The tasks, variants, training and timing of a run."""

    # Tasks and models
    tasks: Annotated[tuple[str, ...], distinct] = ()
    """Empty: sst2 with a data folder, else digits, which needs none."""
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The options of each task, and its ``test_examples``."""
    model: str = ""
    image_model: str = ""
    """Pretrained encoders of texts and of images: a path or a hub name; empty: a small one."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes of the small model, which starts from random weights."""
    examples: int = 0
    max_tokens: int = 0
    """Limits of tasks that take them; 0 for none."""
    test_examples: NotNegative = 0
    """Test inputs, sampled; 0 for all."""

    # What is compared
    variants: Annotated[tuple[str, ...], distinct] = ()
    """Empty for all."""
    taught: Annotated[tuple[str, ...], distinct] = ()
    """Variants that run once more, with layers that imitate the dense model's first."""
    shared: Annotated[tuple[str, ...], distinct] = ()
    """Tasks with models that are trained together too: with one scorer, and one each."""
    shared_weight: Annotated[float, at_least(0)] = 0.1
    """The weight of the loss that rewards low scores in these trainings."""
    ablations: Annotated[tuple[str, ...], distinct] = ()
    """The tasks that run every variant (empty for all); the others run those of Tables I to III."""
    seeds: Annotated[tuple[int, ...], some, distinct] = (0,)

    # Training
    dense_epochs: int = 0
    epochs: int = 0
    batch_size: int = BATCH
    learning_rate: float = 0.0
    """For all tasks; 0 takes the task's defaults."""
    trained: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By task: the same and the factor below."""
    layer_epochs: Count = 2
    layer_rate: Positive = 3e-3
    """For how long, and at which rate, layers imitate the dense model's."""
    mechanism_rate_factor: float = 1.0
    """The learning rate of the mechanisms' parameters is the rate times this factor."""
    precision: Precision = "auto"
    """The precision of training alone."""
    attention_dropout: bool = True
    """Without it the fused kernel of the CPU serves training too."""

    # Timing
    timed_examples: Count = 1000
    rounds: Count = 3
    """Test inputs that are timed, and how often."""
    lengths: Annotated[tuple[Count, ...], distinct] = (16, 32, 48, 64, 128, 197, 256, 384, 512)
    shape_layers: int = 12
    shape_rounds: Count = 15
    """The speed at BERT-base's shape: tokens, layers (0 leaves the part out), rounds."""
    thread_count: Count = 1
    """Of trainings too: with another number their sums round differently."""
    needs: str = ""
    """What a budget requires: an accelerator, or a pretrained model."""

    def __post_init__(self) -> None:
        check_fields(self)
        for options in self.task_options.values():
            if int(options.get("test_examples", 0)) < 0:
                raise UsageError(
                    f"test_examples must not be negative; got {options['test_examples']}"
                )
        for task, given in self.trained.items():
            require_names(f"trained.{task}", given, TRAINED)
        chosen(self.variants, self.taught)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The selected variants, on whatever task."""
        return chosen(self.variants, self.taught)

    def arms_of(self, work: Work) -> tuple[Arm, ...]:
        """The variants of a task: all selected ones, or those of the paper's main tables."""
        arms = (arm for arm in self.arms if arm.everywhere or self.ablated(work))
        return tuple(arm for arm in arms if arm.fits(work.task.answer))

    def ablated(self, work: Work) -> bool:
        """Whether all variants are run on this task."""
        return not self.ablations or work.name in self.ablations


BUDGETS = load_budgets("sparing_papers.adaattention", Options)


def works_of(
    options: Options, folder: Path, data: Path | None
) -> tuple[list[Work], dict[str, dict[str, Any]]]:
    """The tasks with their models, and the options that each was loaded with."""
    if options.needs == "pretrained" and not options.model:
        raise UsageError(
            "this budget fine-tunes a pretrained encoder of texts: name one with --set "
            "model=PATH, or --set needs= to train small models from nothing"
        )
    names = options.tasks or ((WITH_DATA if given_folder(data) else WITHOUT_DATA),)
    known = (*names, *BUDGETS["standard"].tasks)
    for name in (*options.task_options, *options.trained):
        if name not in known:
            raise UsageError(f"options for {name!r}, which is no task{nearest(name, names)}")
    for name in options.shared:
        if name not in names:
            raise UsageError(f"shared: {name!r} is no task of this run{nearest(name, names)}")
    if options.ablations and not {*options.ablations} & {*names}:
        raise UsageError(
            f"none of ablations ({', '.join(options.ablations)}) is a task of this run: name some "
            f"of {', '.join(names)}"
        )
    works, loaded = [], {}
    for name in names:
        model = options.image_model if _is_image(name) else options.model
        given = _given(options, name)
        most = options.test_examples
        if "test_examples" not in options_of(name):
            most = int(given.pop("test_examples", most))
        task, loaded[name] = load_for(name, given, model, data)
        task = _limited(_scored_by_accuracy(task), most)
        usual = TEXT_SIZES if task.kind == "tokens" else IMAGE_SIZES
        model = options.image_model if task.kind == "image" else options.model
        sizes = {**usual, **options.sizes}
        works.append(Work(name, task, folder, model, sizes, _length(options, name)))
    return works, loaded


def _scored_by_accuracy(task: Task) -> Task:
    """The task with accuracy instead of F1 as its main metric, as in Table I; F1 stays.

    On MRPC a model that always answers yes has an F1 of 0.80.
    """
    by_f1 = task.metric == "f1" and ACCURACY in task.metrics
    return replace(task, metric=ACCURACY) if by_f1 else task


def _is_image(name: str) -> bool:
    """Whether a task has images, before it is loaded: only texts take a tokenizer."""
    return "patch_size" in options_of(name)


def _given(options: Options, name: str) -> dict[str, Any]:
    """The options of a task: the study's limits if it takes them, then its specific ones."""
    known = options_of(name)
    limits = {"examples": options.examples, "max_tokens": options.max_tokens}
    given = {key: value for key, value in limits.items() if value and key in known}
    return {**given, **options.task_options.get(name, {})}


def _length(options: Options, name: str) -> Length:
    settings = {key: getattr(options, key) for key in TRAINED}
    settings |= options.trained.get(name, {})
    cpu = not torch.accelerator.is_available()
    precision: Any = resolve_precision(options.precision, cpu=cpu)
    return Length(**settings, precision=precision, attention_dropout=options.attention_dropout)


def _limited(task: Task, most: int) -> Task:
    """The task with at most ``most`` random test examples; windows of texts stay whole."""
    if task.answer == "span":
        return task
    return limited(task, {"test": most}, drawn, "sampled at random")
