"""One variant of the HuggingGreen study: built, trained and metered."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sparing.core.errors import UsageError
from sparing.core.reading import parse_json, read_plain
from sparing.core.record import Labels
from sparing.experiment.cells.training import (
    Trained,
    components_here,
    joules_in,
    train_metered,
)
from sparing.layers.patches import keep_count
from sparing.measure.flops import count_flops
from sparing.measure.machine import threads
from sparing.measure.windows import SUFFIX
from sparing.models import build_model
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult
from sparing.train.objective import LabelLoss, Objective, TeacherLoss
from sparing.train.recipe import Auxiliary
from sparing.train.trainer import resolve_precision
from sparing.transfer.opening import open_model
from sparing.transfer.patching import select_patches, selector_of
from sparing.transfer.pruning import prune
from sparing.transfer.scheduling import ScheduledPatches
from sparing.transfer.swap import swap
from sparing_papers.hugginggreen.arms import Arm, larger_patches, with_patches
from sparing_papers.hugginggreen.names import DENSE
from sparing_papers.hugginggreen.options import Options

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORWARD_AND_BACK = 3  # FLOPs of a step over a forward pass: the usual count
WARM_UP_STEPS = 2


@dataclass(frozen=True, eq=False)
class Work:
    """One task at one shape of model, shared by its cells."""

    name: str
    task: Task
    folder: Path
    options: Options
    width: int
    heads: int
    depth: int

    def recipe(self, seed: int) -> Recipe:
        """The recipe of the dense variant."""
        return self.options.recipe(self.name, seed)

    def training_dir(self, question: str, arm: str, seed: int) -> Path:
        """The folder of one training."""
        named = "".join(c if c.isalnum() or c in "-." else "-" for c in arm)
        task = self.name.replace("/", "-")
        return self.folder / "models" / f"{question}-{task}-{self.depth}" / f"{named}-{seed}"

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the dense model."""
        return {"layers": self.depth, "width": self.width, "heads": self.heads}

    def labels(self, question: str, arm: str, seed: int) -> Labels:
        """The labels of every record of one training."""
        labels: Labels = {"question": question, "task": self.name, "depth": self.depth}
        return {**labels, "arm": arm, "seed": seed}

    def task_of(self, arm: Arm) -> Task:
        """The task of a variant: some variants cut the same images into larger patches."""
        if arm.kind != "larger":
            return self.task
        return with_patches(self.task, larger_patches(self.task))

    def build(self, arm: Arm, seed: int) -> PreTrainedModel:
        """A variant's model before training; variants of one seed share weights of equal shape."""
        if arm.kind == "network":
            width = self.options.network_width
            return build_model("regnet", self.task, seed=seed, width=width)
        depth = max(1, self.depth // 2) if arm.kind == "halved" else self.depth
        sizes = {**self.sizes, "layers": depth}
        model = build_model("vit", self.task_of(arm), seed=seed, **sizes)
        if arm.kept_heads:
            gone = range(arm.kept_heads, self.heads)
            prune(model, {layer: [*gone] for layer in range(depth)})
        if arm.mechanism:
            swap(model, arm.mechanism, tokens=self.task.tokens, **arm.options)
        if arm.selection is not None:
            select_patches(model, replace(arm.selection, seed=seed))
        return model


def image_flops(model: PreTrainedModel, task: Task, kept_patches: int | None = None) -> int:
    """FLOPs of one image's forward pass; with ``kept_patches`` if the model selects."""
    device = next(model.parameters()).device
    batch = {"pixel_values": task.train[0]["pixel_values"][None].to(device)}
    changes = {} if kept_patches is None else {"keep": kept_patches, "at_inference": True}
    training = model.training
    try:
        with selecting(model, **changes), torch.inference_mode():
            return count_flops(lambda: model.eval()(**batch))
    finally:
        model.train(training)


@contextmanager
def selecting(model: PreTrainedModel, **changes: Any) -> Iterator[None]:
    """Change how a model selects patches in this context, where it does."""
    selector = selector_of(model)
    if selector is None:
        yield
        return
    before = selector.selection
    try:
        selector.selection = replace(before, **changes)
        yield
    finally:
        selector.selection = before


def objective_of(arm: Arm, task: Task, recipe: Recipe) -> ScheduledPatches | None:
    """The objective of a variant with a schedule; None for the plain loss."""
    if arm.selection is None or arm.schedule is None:
        return None
    return ScheduledPatches(LabelLoss(), arm.selection, arm.schedule, recipe, len(task.train))


@dataclass(frozen=True)
class Arithmetic:
    """FLOPs of a training until the end of each epoch, and the mean tokens of an image in it.

    ``image`` is the FLOPs of a prediction.
    """

    by_epoch: tuple[float, ...]
    tokens: float
    image: int

    @property
    def total(self) -> float:
        """FLOPs of the whole training."""
        return self.by_epoch[-1]


def arithmetic_of(model: PreTrainedModel, arm: Arm, task: Task, recipe: Recipe) -> Arithmetic:
    """FLOPs of a training, three forward passes a step; with a schedule step by step."""
    images, patches = len(task.train), task.tokens - 1
    keep = None if arm.selection is None else keep_count(patches, arm.selection.keep)
    seen = image_flops(model, task, keep)
    dropping = arm.selection is not None and arm.selection.at_inference
    image = seen if dropping else image_flops(model, task)
    scheduled = objective_of(arm, task, recipe)
    if scheduled is None:
        tokens = float(task.tokens if keep is None else keep + 1)
        once = float(FORWARD_AND_BACK * images * seen)
        by_epoch = tuple(once * number for number in range(1, recipe.epochs + 1))
        return Arithmetic(by_epoch, 0.0 if arm.kind == "network" else tokens, image)
    cost, by_kept, ends = 0.0, dict[int, int](), list[float]()
    for step, (count, kept_patches) in enumerate(scheduled.patch_counts(patches), 1):
        if kept_patches not in by_kept:
            by_kept[kept_patches] = image_flops(model, task, kept_patches)
        cost += FORWARD_AND_BACK * count * by_kept[kept_patches]
        if step % scheduled.epoch_steps == 0:
            ends.append(cost)
    return Arithmetic(tuple(ends), scheduled.tokens(patches) / (images * recipe.epochs), image)


@dataclass(frozen=True)
class Paid:
    """A training, the earlier ones that count in its cost, and the FLOPs of all if counted."""

    last: Trained
    before: tuple[TrainResult, ...] = ()
    counted: Arithmetic | None = None

    @property
    def spent(self) -> dict[str, float]:
        """Joules of all trainings by component, for components that all of them counted."""
        parts = [joules_in(result.curve[-1]) for result in (*self.before, self.last.result)]
        common = [name for name in parts[-1] if all(name in part for part in parts)]
        return {name: sum(part[name] for part in parts) for name in common}

    @property
    def time_s(self) -> float:
        """Seconds in training steps, of all trainings."""
        return sum(result.train_time_s for result in (*self.before, self.last.result))

    @property
    def steps(self) -> int:
        """Steps of all trainings."""
        return sum(result.steps for result in (*self.before, self.last.result))

    @property
    def notes(self) -> list[str]:
        """The notes of the last training's meter."""
        accelerator = next(self.last.model.parameters()).device.type != "cpu"
        if accelerator and all(part.name.startswith("cpu") for part in self.last.components):
            note = "the accelerator has no meter here: its energy is not counted"
            return [*self.last.meter.notes, note]
        return [*self.last.meter.notes]


def train_paid(
    work: Work,
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    folder: Path,
    *,
    objective: Objective | None = None,
    before: tuple[TrainResult, ...] = (),
    counted: Arithmetic | None = None,
) -> Paid:
    """Train with images in memory, after a few warm-up steps of a copy of the model."""
    options = work.options
    with threads(options.thread_count):
        _warm_up(model, task, recipe, objective or LabelLoss())
        watts, meter = options.watts_per_core, options.meter
        last = train_metered(model, task, recipe, folder, watts, backend=meter, objective=objective)
    return Paid(last, before, counted)


def counted_j(spent: Mapping[str, float], options: Options) -> float:
    """The joules that are compared: those of counters if there are any, else estimates."""
    here = components_here(options.energy_meter())
    kinds = {f"{part.name}{SUFFIX}": part.obtained for part in here}
    counters = [name for name in spent if kinds.get(name, "estimated") != "estimated"]
    return sum(spent[name] for name in counters or spent)


def joules_of(result: TrainResult, options: Options) -> float:
    """The joules of a training that are compared."""
    return counted_j(joules_in(result.curve[-1]), options)


def _warm_up(model: PreTrainedModel, task: Task, recipe: Recipe, objective: Objective) -> None:
    """A few steps of a copy, with an optimizer: first calls do not count for the variant."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    cpu = torch.device("cpu")
    device = accelerator if accelerator is not None and recipe.device == "auto" else cpu
    copied, size = copy.deepcopy(model).to(device).train(), min(recipe.batch_size, len(task.train))
    if objective.teacher is not None:
        objective.teacher.to(device).eval()
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(
        resolve_precision(recipe.precision, cpu=device.type == "cpu")
    )
    optimizer = torch.optim.AdamW(copied.parameters(), lr=recipe.learning_rate, fused=True)
    state = torch.random.get_rng_state()
    for step in range(WARM_UP_STEPS):
        batch = task.collate([task.train[index] for index in range(size)])
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        with torch.autocast(device.type, dtype=kind, enabled=kind is not None):
            loss = objective(copied, batch, step)
        torch.autograd.backward(loss)
        optimizer.step()
    torch.random.set_rng_state(state)


def train_arm(work: Work, arm: Arm, seed: int, question: str, epochs: int) -> Paid:
    """Train one variant of RQ1 or RQ2; a distilled variant's cost includes its teacher's."""
    task, folder = work.task_of(arm), work.training_dir(question, arm.name, seed)
    model = work.build(arm, seed)
    recipe = replace(
        work.recipe(seed),
        epochs=epochs,
        auxiliary=Auxiliary(weight=arm.penalty, last_weight=arm.penalty),
    )
    objective: Objective | None = objective_of(arm, task, recipe)
    before: tuple[TrainResult, ...] = ()
    counted = arithmetic_of(model, arm, task, recipe)
    if arm.kind == "halved":
        teacher, first = _teacher(work, seed, question)
        counted = _with_teacher(counted, work, teacher, seed)
        _carry(teacher, model)
        objective, before = TeacherLoss(teacher, recipe.distillation), (first,)
    paid: dict[str, Any] = {"objective": objective, "before": before, "counted": counted}
    return train_paid(work, model, task, recipe, folder, **paid)


def _with_teacher(
    counted: Arithmetic, work: Work, teacher: PreTrainedModel, seed: int
) -> Arithmetic:
    """The student's FLOPs with its teacher's training and forward pass for every image."""
    dense = Arm(DENSE, "dense")
    first = arithmetic_of(teacher, dense, work.task, work.recipe(seed)).total
    teaching = len(work.task.train) * image_flops(teacher, work.task)
    by_epoch = tuple(
        first + student + teaching * number for number, student in enumerate(counted.by_epoch, 1)
    )
    return replace(counted, by_epoch=by_epoch)


def _teacher(work: Work, seed: int, question: str) -> tuple[PreTrainedModel, TrainResult]:
    """The dense variant of this seed, trained before, and its training."""
    folder = work.training_dir(question, DENSE, seed)
    result = read_result(folder)
    dense = work.build(Arm(DENSE, "dense"), seed)
    dense.load_state_dict(open_model(str(folder)).state_dict())
    return dense.eval(), result


def read_result(folder: Path) -> TrainResult:
    """The result of a finished training; raises ``UsageError`` without one."""
    file = folder / "result.json"
    if not file.is_file():
        raise UsageError(f"{folder.name} is missing: its cell failed or was left out")
    return TrainResult(**parse_json(read_plain(file)))


@torch.no_grad()
def _carry(teacher: PreTrainedModel, student: PreTrainedModel) -> None:
    """Copy every weight of the same name and shape to a shallower model."""
    weights = student.state_dict()
    shared = {
        name: tensor
        for name, tensor in teacher.state_dict().items()
        if name in weights and weights[name].shape == tensor.shape
    }
    student.load_state_dict(shared, strict=False)
