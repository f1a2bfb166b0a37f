"""One arm of the HuggingGreen study: built, trained under the meter, and judged."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import torch
from sklearn.metrics import f1_score

from sparing.core.errors import UsageError
from sparing.core.record import Label, Record
from sparing.layers.patches import keep_count
from sparing.measure.energy import Component, EnergyMeter
from sparing.measure.flops import count_flops
from sparing.measure.machine import threads
from sparing.measure.windows import SUFFIX, EnergyWindows
from sparing.models import build_model
from sparing.studies._green_arms import DENSE, Arm, larger_patches, with_patches
from sparing.studies._green_options import Options
from sparing.tasks import Task
from sparing.train import Recipe, TrainResult, evaluate, train
from sparing.train.objective import LabelLoss, Objective, TeacherLoss
from sparing.train.recipe import Auxiliary
from sparing.transfer.opening import open_model
from sparing.transfer.patching import select_patches, selector_of
from sparing.transfer.pruning import prune
from sparing.transfer.scheduling import ScheduledPatches
from sparing.transfer.swap import swap

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORWARD_AND_BACK = 3  # a step's arithmetic over a forward pass: the usual count
WARM_UP_STEPS = 2
IDLE_SECONDS = 5.0
INFERENCE_BATCH = 64


@dataclass(frozen=True, eq=False)
class Work:
    """One task at one shape of model: what its cells share."""

    name: str
    task: Task
    folder: Path
    options: Options
    width: int
    heads: int
    depth: int

    def recipe(self, seed: int) -> Recipe:
        """How the dense arm is trained."""
        return self.options.recipe(self.name, seed)

    def place(self, question: str, arm: str, seed: int) -> Path:
        """The folder of one training."""
        named = "".join(c if c.isalnum() or c in "-." else "-" for c in arm)
        task = self.name.replace("/", "-")
        return self.folder / "models" / f"{question}-{task}-{self.depth}" / f"{named}-{seed}"

    def task_of(self, arm: Arm) -> Task:
        """The task as an arm sees it: larger patches of the same images, for one."""
        if arm.kind != "larger":
            return self.task
        return with_patches(self.task, larger_patches(self.task))

    def build(self, arm: Arm, seed: int) -> PreTrainedModel:
        """An arm's model before training; arms of one seed share all weights that they can."""
        if arm.kind == "network":
            width = self.options.network_width
            return build_model("regnet", self.task, seed=seed, width=width)
        depth = max(1, self.depth // 2) if arm.kind == "halved" else self.depth
        sizes = {"layers": depth, "width": self.width, "heads": self.heads}
        model = build_model("vit", self.task_of(arm), seed=seed, **sizes)
        if arm.kept_heads:
            gone = range(arm.kept_heads, self.heads)
            prune(model, {layer: [*gone] for layer in range(depth)})
        if arm.mechanism:
            swap(model, arm.mechanism, tokens=self.task.tokens, **arm.options)
        if arm.selection is not None:
            select_patches(model, arm.selection)
        return model


def image_flops(model: PreTrainedModel, task: Task, kept: int | None = None) -> int:
    """The arithmetic of one image's forward pass; with so many patches where the model selects."""
    batch = {"pixel_values": task.train[0]["pixel_values"][None]}
    selector = selector_of(model)
    before = None if selector is None else selector.selection
    training = model.training
    try:
        if selector is not None and kept is not None:
            selector.selection = replace(selector.selection, keep=kept, at_inference=True)
        with torch.inference_mode():
            return count_flops(lambda: model.eval()(**batch))
    finally:
        model.train(training)
        if selector is not None and before is not None:
            selector.selection = before


def objective_of(arm: Arm, task: Task, recipe: Recipe) -> ScheduledPatches | None:
    """What replaces the loss of labels: the schedule of an arm that has one."""
    if arm.selection is None or arm.schedule is None:
        return None
    return ScheduledPatches(LabelLoss(), arm.selection, arm.schedule, recipe, len(task.train))


def train_flops(
    model: PreTrainedModel, arm: Arm, task: Task, recipe: Recipe
) -> tuple[float, float]:
    """The arithmetic of a whole training, and the tokens of a mean image in it."""
    images = len(task.train) * recipe.epochs
    scheduled = objective_of(arm, task, recipe)
    if scheduled is None:
        kept = None
        tokens = 0.0 if arm.kind == "network" else float(task.tokens)
        if arm.selection is not None:
            kept = keep_count(task.tokens - 1, arm.selection.keep)
            tokens = kept + 1.0
        return float(FORWARD_AND_BACK * images * image_flops(model, task, kept)), tokens
    patches, cost, cache = task.tokens - 1, 0.0, dict[int, int]()
    for count, kept in scheduled.kept(patches):
        if kept not in cache:
            cache[kept] = image_flops(model, task, kept)
        cost += FORWARD_AND_BACK * count * cache[kept]
    return cost, scheduled.tokens(patches) / images


def train_metered(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    place: Path,
    options: Options,
    *,
    objective: Objective | None = None,
) -> tuple[TrainResult, dict[str, float]]:
    """Train with an energy meter that runs during steps alone; joules by component.

    Data is in memory, the model built and warm before the first window.
    """
    windows = EnergyWindows(EnergyMeter(watts_per_core=options.watts_per_core))
    with threads(options.thread_count):
        _warm_up(model, task, recipe, objective or LabelLoss())
        result = train(
            model,
            task,
            recipe,
            output_dir=place,
            objective=objective,
            meter=windows,
        )
    return result, spent_in(result)


def spent_in(result: TrainResult) -> dict[str, float]:
    """Joules by component of a whole training, from its curve."""
    return {name: float(value) for name, value in result.curve[-1].items() if _is_energy(name)}


def _is_energy(name: str) -> bool:
    return name.endswith(SUFFIX)


def _warm_up(model: PreTrainedModel, task: Task, recipe: Recipe, objective: Objective) -> None:
    """A few steps of a copy: what the first calls load and allocate is not the arm's."""
    found = torch.accelerator.current_accelerator(check_available=True)
    device = found if found is not None and recipe.device == "auto" else torch.device("cpu")
    copied, size = copy.deepcopy(model).to(device).train(), min(recipe.batch_size, len(task.train))
    if objective.teacher is not None:
        objective.teacher.to(device).eval()
    state = torch.random.get_rng_state()
    for step in range(WARM_UP_STEPS):
        batch = task.collate([task.train[place] for place in range(size)])
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        torch.autograd.backward(objective(copied, batch, step))
    torch.random.set_rng_state(state)


def train_arm(
    work: Work, arm: Arm, seed: int, question: str, epochs: int
) -> tuple[PreTrainedModel, TrainResult, dict[str, float], Recipe]:
    """One arm of RQ1 or RQ2, trained for so many epochs; the distilled one pays its teacher too."""
    task, place = work.task_of(arm), work.place(question, arm.name, seed)
    model = work.build(arm, seed)
    recipe = replace(
        work.recipe(seed),
        epochs=epochs,
        auxiliary=Auxiliary(weight=arm.penalty, last_weight=arm.penalty),
    )
    paid: dict[str, float] = {}
    objective: Objective | None = objective_of(arm, task, recipe)
    if arm.kind == "halved":
        teacher, paid = _teacher(work, seed, question)
        _carry(teacher, model)
        objective = TeacherLoss(teacher, recipe.distillation)
    result, spent = train_metered(model, task, recipe, place, work.options, objective=objective)
    return model, result, {name: spent[name] + paid.get(name, 0.0) for name in spent}, recipe


def _teacher(work: Work, seed: int, question: str) -> tuple[PreTrainedModel, dict[str, float]]:
    """The dense arm of this seed, trained before, and what that took."""
    place = work.place(question, DENSE, seed)
    dense = work.build(Arm(DENSE, "dense"), seed)
    result = read_result(place)
    dense.load_state_dict(open_model(str(place)).state_dict())
    return dense.eval(), spent_in(result)


def read_result(place: Path) -> TrainResult:
    """What a finished training came to; raises ``UsageError`` where there is none."""
    file = place / "result.json"
    if not file.is_file():
        raise UsageError(f"{place.name} is not there: its cell failed or was left out")
    return TrainResult(**json.loads(file.read_text(encoding="utf-8")))


@torch.no_grad()
def _carry(teacher: PreTrainedModel, student: PreTrainedModel) -> None:
    """Give a shallower model every weight that has its name and shape."""
    own = student.state_dict()
    shared = {
        name: tensor
        for name, tensor in teacher.state_dict().items()
        if name in own and own[name].shape == tensor.shape
    }
    student.load_state_dict(shared, strict=False)


def judged(model: PreTrainedModel, task: Task, labels: Mapping[str, Label]) -> list[Record]:
    """Test scores: top-1, which micro-F1 equals where each image has one class, and macro-F1."""
    found = evaluate(model, task, "test")
    truth = task.test.labels.tolist()
    macro = f1_score(truth, found.predictions, average="macro", zero_division=0)
    own, count = dict(labels), found.count
    records = [
        Record("accuracy", found.accuracy, "score", "measured", own, count=count),
        Record("macro_f1", float(macro), "score", "measured", own, count=count),
    ]
    selector = selector_of(model)
    if selector is not None:
        before = selector.selection
        selector.selection = replace(before, at_inference=False)
        every = evaluate(model, task, "test").accuracy
        selector.selection = before
        records.append(Record("accuracy_of_all_patches", every, "score", "measured", own))
    return records


def inference_energy(
    model: PreTrainedModel, task: Task, options: Options, labels: Mapping[str, Label]
) -> list[Record]:
    """Joules of a thousand predictions, in batches of 64 test images, by component."""
    device = next(model.parameters()).device
    size = min(INFERENCE_BATCH, len(task.test))
    batch = task.collate([task.test[place] for place in range(size)])
    pixels = batch["pixel_values"].to(device)
    model.eval()
    with threads(options.thread_count), torch.inference_mode():
        for _ in range(WARM_UP_STEPS):
            model(pixel_values=pixels)
        calls, start = 0, time.perf_counter()
        with EnergyMeter(watts_per_core=options.watts_per_core) as meter:
            while not calls or time.perf_counter() - start < options.inference_seconds:
                model(pixel_values=pixels)
                calls += 1
    per = calls * size / 1000
    return [
        energy_record("inference_energy_j", each, each.energy_j / per, labels, per)
        for each in meter.energy.components
    ]


def energy_record(
    name: str, component: Component, joules: float, labels: Mapping[str, Label], per: float = 1.0
) -> Record:
    """A component's energy with how it was obtained; the interval is that of its constant."""
    interval = None
    if component.interval is not None and component.energy_j > 0:
        low, high = component.interval
        scale = joules / component.energy_j
        interval = (low * scale, high * scale)
    own: dict[str, Label] = {**labels, "component": component.name}
    return Record(name, joules, "J", component.obtained, own, interval)


def components_here(options: Options) -> tuple[Component, ...]:
    """The meter's components on this machine, from a window in which little is done."""
    with EnergyMeter(watts_per_core=options.watts_per_core) as meter:
        sum(range(200_000))
    return meter.energy.components


def idle_records(options: Options, labels: Mapping[str, Label]) -> list[Record]:
    """Watts of counters while nothing runs; none where energy is estimated from busy seconds."""
    if all(each.obtained == "estimated" for each in components_here(options)):
        return []
    with EnergyMeter(watts_per_core=options.watts_per_core) as meter:
        time.sleep(IDLE_SECONDS)
    return [
        replace(
            energy_record("idle_w", each, each.energy_j / meter.energy.window_s, labels),
            unit="W",
            interval=None,
        )
        for each in meter.energy.components
        if each.obtained != "estimated"
    ]


def curve_record(result: TrainResult, labels: Mapping[str, Label]) -> Record:
    """Validation scores by epoch, with the joules spent until each."""
    curve = [
        {
            "epoch": entry["epoch"],
            "score": entry["validation_score"],
            "energy": {k: v for k, v in entry.items() if _is_energy(k)},
        }
        for entry in result.curve
    ]
    scores = [float(entry["validation_score"]) for entry in result.curve]
    own: dict[str, Label] = {**labels, "metric": result.metric, "told": json.dumps(curve)}
    return Record("curve", mean(scores), "score", "measured", own, count=len(curve))


def training_records(
    result: TrainResult, spent: Mapping[str, float], options: Options, labels: Mapping[str, Label]
) -> list[Record]:
    """Energy by component, seconds, steps, and the curve."""
    found = [
        Record("train_time_s", result.train_time_s, "s", "measured", dict(labels)),
        Record("steps", float(result.steps), "", "measured", dict(labels)),
        curve_record(result, labels),
    ]
    for each in components_here(options):
        joules = spent.get(f"{each.name}{SUFFIX}")
        if joules is not None:
            found.append(energy_record("train_energy_j", each, joules, labels))
    return found
