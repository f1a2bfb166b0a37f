"""Trainings in one process or in several: cases, and what a process does with them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import save_file

import sparing
from sparing.core.errors import UsageError
from sparing.core.ranks import everywhere, rank, wait_for_all, world
from sparing.models import build_model
from sparing.tasks import Examples, load_task
from sparing.train import Distillation, Recipe, train
from sparing.train import _loop as loop
from sparing.train._shares import reseed
from sparing.train.augmentation import Augmented
from sparing.train.boxes import BoxLoss
from sparing.train.contrastive import HardNegatives
from sparing.train.elastic import Draw, ElasticLoss, LabelsLoss, VectorLoss
from sparing.train.evaluation import Evaluation
from sparing.train.masking import MaskedPatches, Masking
from sparing.train.objective import LabelLoss, TeacherLoss
from sparing.train.processes import join
from sparing.train.recipe import Auxiliary
from sparing.train.values import ValueLoss
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.patching import select_patches
from sparing.transfer.stages import masked_form
from tests.train.small import token_model, token_task

RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=0.01, seed=3, device="cpu")
# 61 examples: seven whole batches, and one that two processes cannot halve
COUNT = 61
Case = Callable[[], tuple[Any, Any, Recipe, dict[str, Any]]]


def plain_model(task, seed=0, **sizes):
    """A small BERT without dropout, in float64."""
    return token_model(task, seed=seed, dropout=0.0, **sizes).double()


def of_classes():
    """The dense classifier."""
    task = token_task(COUNT)
    return plain_model(task), task, RECIPE, {}


def of_one_left():
    """The last batch has one example, so a process has none."""
    task = token_task(57)
    return plain_model(task), task, RECIPE, {}


def of_long_batches():
    """More than half of the processes' rows are in the last batch."""
    task = token_task(COUNT)
    return plain_model(task), task, replace(RECIPE, batch_size=60), {}


def swapped(mechanism, **options):
    """A model with another attention."""

    def case():
        task = token_task(COUNT)
        model = plain_model(task, layers=2)
        sparing.swap(model, mechanism, tokens=task.tokens, **options)
        return model.double(), task, RECIPE, {}

    return case


def of_teacher():
    """Distilled from a dense model: answers, hidden states, labels."""
    task = token_task(COUNT)
    recipe = replace(RECIPE, distillation=Distillation(0.3, 0.5, 1.0))
    return plain_model(task), task, recipe, {"teacher": plain_model(task, seed=4)}


def elastic(loss, draw, gates=""):
    """A model of which each step trains a random part."""

    def case():
        task = token_task(COUNT)
        dense = plain_model(task, seed=1, layers=2, heads=2)
        model = adapt(dense)
        if gates:
            model.encoder.add_gates(gates, [1])
        weights = Distillation(0.3, 0.8, 0.5)
        return model.double(), task, RECIPE, {"objective": loss(dense, weights, draw, seed=5)}

    return case


def of_numbers():
    """A regression."""
    task = token_task(COUNT)

    def split(examples):
        shares = [float((row[1:] == 3).double().mean()) for row in examples.inputs]
        return Examples("input_ids", examples.inputs, torch.tensor(shares))

    splits = {name: split(task.split(name)) for name in ("train", "validation", "test")}
    kind = {"answer": "number", "metric": "pearson", "metrics": ("pearson",)}
    task = replace(task, **splits, **kind, labels=("share",))
    return plain_model(task), task, RECIPE, {"objective": ValueLoss("benchmark", BASELINE)}


BASELINE = {"mean": 0.3, "relative": 0.5}


class Whatever(LabelLoss):
    """A loss of tokens or ends whose validation looks at the weights alone."""

    metric = "minus norm"

    def validate(self, model, task, batch_size):
        """Minus the norm of the weights."""
        norm = sum(float(p.detach().square().sum()) for p in model.parameters())
        return Evaluation(self.metric, {self.metric: -norm}, norm, [0.0], None)


class TaughtWhatever(TeacherLoss):
    """The same of a loss with a teacher."""

    metric = Whatever.metric
    validate = Whatever.validate


def of_entities(teacher=False):
    """A label for some tokens, many in long texts and none in others."""
    task = token_task(COUNT)
    longest = max(task.train.lengths)
    labels = torch.full((COUNT, longest), -100)
    for row, ids in zip(labels, task.train.inputs, strict=True):
        if len(ids) > 3:
            row[1 : len(ids)] = ids[1:] - 2
    train_split = Examples("input_ids", task.train.inputs, labels)
    task = replace(task, train=train_split, answer="entities", metric="f1", metrics=("f1",))
    objective = Whatever("entities")
    if teacher:
        weights = Distillation(0.3, 0.5, 1.0)
        objective = TaughtWhatever(plain_model(task, seed=4), weights, "entities")
    return plain_model(task), task, RECIPE, {"objective": objective}


def of_spans():
    """A first and a last token."""
    task = token_task(COUNT)
    ends = torch.tensor([[1, len(row) - 1] for row in task.train.inputs])
    task = replace(
        task,
        train=Examples("input_ids", task.train.inputs, ends),
        answer="span",
        labels=("start", "end"),
        metric="token_f1",
        metrics=("token_f1",),
    )
    return plain_model(task), task, RECIPE, {"objective": Whatever("span")}


def of_labels():
    """Several labels, one of which holds or not."""
    task = token_task(COUNT)
    both = torch.stack([task.train.labels, 1 - task.train.labels], 1).double()
    task = replace(task, train=Examples("input_ids", task.train.inputs, both), answer="labels")
    return plain_model(task), task, RECIPE, {"objective": Whatever("labels")}


def digits(count=COUNT):
    """Small images in float64."""
    task = load_task("digits", patch_size=4)
    splits = {}
    for name, most in (("train", count), ("validation", 30), ("test", 20)):
        part = task.split(name).subset(range(most))
        splits[name] = replace(part, inputs=part.inputs.double())
    return replace(task, **splits)


def image_model(task, **sizes):
    """A ViT of one layer without dropout."""
    sizes = {"layers": 1, "heads": 2, "width": 8, "dropout": 0.0} | sizes
    return build_model("vit", task, seed=0, **sizes).double()


def contrastive(positives):
    """Negatives come from the whole batch."""

    def case():
        task = digits()
        return image_model(task), task, RECIPE, {"objective": HardNegatives(positives)}

    return case


def of_masks():
    """Rebuilt patches."""
    task = digits()
    model = masked_form(image_model(task)).double()
    return model, task, RECIPE, {"objective": MaskedPatches(Masking(0.4))}


def of_augmented():
    """Images changed at random."""
    task = digits()
    return image_model(task), task, RECIPE, {"objective": Augmented(LabelLoss())}


def of_chosen_patches():
    """Patches are selected in some steps, by chance."""
    task = digits()
    model = image_model(task)
    select_patches(model, "contrast", keep=0.5, chance=0.5)
    return model, task, RECIPE, {}


def of_boxes():
    """A detector."""
    task = load_task("scenes", examples=40)
    part = task.train
    task = replace(
        task, train=replace(part, inputs=part.inputs.double(), boxes=part.boxes.double())
    )
    task = replace(
        task, validation=replace(task.validation, inputs=task.validation.inputs.double())
    )
    sizes = {"layers": 1, "heads": 2, "width": 16, "dropout": 0.0}
    model = build_model("vit_detector", task, seed=0, **sizes).double()
    return model, task, replace(RECIPE, batch_size=7), {"objective": BoxLoss()}


def of_scores():
    """Heads of learned width, with a budget whose loss is a square of a mean."""
    task = token_task(COUNT)
    model = plain_model(task, layers=2)
    sparing.swap(model, "adaptive", scores="pooled", budget=0.5)
    recipe = replace(RECIPE, auxiliary=Auxiliary(weight=0.5, warmup_share=0.0))
    return model.double(), task, recipe, {}


def of_entropy():
    """Attention whose entropy is a loss of its own."""
    task = token_task(COUNT)
    model = plain_model(task)
    sparing.swap(model, "eager", penalise_entropy=True)
    recipe = replace(RECIPE, auxiliary=Auxiliary(weight=0.5, warmup_share=0.0))
    return model.double(), task, recipe, {}


def of_unread():
    """Parameters that no loss reads, and others that only some batches do."""
    model, task, recipe, _ = of_classes()
    model.unread = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    model.sometimes = torch.nn.Parameter(torch.ones(8, dtype=torch.float64))
    before = model.bert.embeddings.forward

    def embedded(*given, **named):
        rows = before(*given, **named)
        marked = (named["input_ids"][:, 1:4] == 3).all(1)  # in the share of one process alone
        scaled = rows * model.sometimes
        return scaled.where(marked[:, None, None], rows) if bool(marked.any()) else rows

    model.bert.embeddings.forward = embedded
    return model, task, recipe, {}


def of_recomputed():
    """Layers recomputed in the backward pass."""
    model, task, recipe, _ = of_classes()
    model.activation_checkpointing_enable()
    return model, task, recipe, {}


CASES: dict[str, Case] = {
    "classes": of_classes,
    "one left": of_one_left,
    "long batches": of_long_batches,
    "linformer": swapped("linformer", slots=4),
    "performer": swapped("performer"),
    "teacher": of_teacher,
    "elastic": elastic(ElasticLoss, Draw(tokens=(1.0, 0.6), tokens_after=1)),
    "gates": elastic(ElasticLoss, Draw(gated=True, soft_steps=9), gates="threshold"),
    "vectors": elastic(VectorLoss, Draw()),
    "more labels": elastic(LabelsLoss, Draw()),
    "numbers": of_numbers,
    "entities": of_entities,
    "entities, teacher": lambda: of_entities(teacher=True),
    "spans": of_spans,
    "labels": of_labels,
    "views": contrastive("views"),
    "kinds": contrastive("classes"),
    "masks": of_masks,
    "augmented": of_augmented,
    "chosen patches": of_chosen_patches,
    "boxes": of_boxes,
    "scores": of_scores,
    "entropy": of_entropy,
    "unread": of_unread,
    "recomputed": of_recomputed,
}


class StopAt:
    """Ctrl-C in one process once a share of the training is done."""

    def __init__(self, fraction, process=0):
        self.fraction, self.process = fraction, process

    def __call__(self, fraction, text):
        """Progress is reported in process 0: the signal may go to another."""
        if fraction >= self.fraction:
            self.fraction = 2
            signal.raise_signal(signal.SIGINT)


def run_case(name, folder, **more):
    """Train a case and write its weights beside its folder."""
    model, task, recipe, given = CASES[name]()
    result = train(model, task, recipe, output_dir=folder / name, **given, **more)
    state = {key: value.detach().clone() for key, value in model.state_dict().items()}
    if rank() == 0:
        save_file(state, folder / f"{name}.safetensors")
    sums = everywhere({key: float(value.double().sum()) for key, value in state.items()})
    assert all(one == sums[0] for one in sums), "processes end with other weights"
    assert all(one == result for one in everywhere(result))
    return result


def forbid_writing(folder):
    """End a process that is not the first where it writes below a folder."""

    def hook(event, given):
        writes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
        if event == "open":
            writes = isinstance(given[2], int) and bool(given[2] & (os.O_WRONLY | os.O_RDWR))
        if writes and str(given[0]).startswith(str(folder)):
            sys.__stderr__.write(f"{event} {given}\n")
            os._exit(77)

    sys.addaudithook(hook)


def run_all(folder):
    """All cases in one of several processes, then the halves of two trainings."""
    loop.PROGRESS_SECONDS = 0
    torch.set_num_threads(1)
    join(cpu=True)
    assert world() == 2
    if rank() == 1:
        forbid_writing(folder)
    for name in CASES:
        run_case(name, folder)
    model, task, recipe, given = CASES["classes"]()
    stop = StopAt(0.6) if rank() == 0 else None
    try:
        train(model, task, recipe, output_dir=folder / "begun by two", on_progress=stop, **given)
    except KeyboardInterrupt:
        (folder / f"stopped.{rank()}").write_text("") if rank() == 0 else None
    else:
        raise AssertionError("the training was not interrupted")
    model, task, recipe, given = CASES["classes"]()
    train(model, task, recipe, output_dir=folder / "begun by one", **given)
    dropped(folder)
    wait_for_all()


def dropped(folder):
    """With dropout, a training that two processes began and went on with has the same bits."""
    task, ends = token_task(COUNT), []
    for name, stop in (("whole", None), ("parts", StopAt(0.6)), ("parts", None)):
        model = token_model(task, dropout=0.3)
        stop = stop if rank() == 0 else None
        try:
            train(model, task, RECIPE, output_dir=folder / "dropped" / name, on_progress=stop)
        except KeyboardInterrupt:
            continue
        ends.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert len(ends) == 2
    assert torch.equal(*ends)
    torch.manual_seed(0)
    reseed(RECIPE.seed, 5)
    assert len({*everywhere(float(torch.rand(())))}) == 2, "processes draw the same dropout"


def fail(way, folder):
    """A training in one of several processes that ends in this way."""
    torch.set_num_threads(1)
    join(cpu=True)
    model, task, recipe, given = of_augmented() if way == "loss" else of_classes()
    if way == "loss" and rank() == 1:
        task.train.inputs[:] = float("nan")
    if way != "loss" and rank() == 1:
        given = {"objective": Failing(way)}
    train(model, task, recipe, output_dir=folder / "run", **given)


class Failing(LabelLoss):
    """A loss that fails in the third step."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def __call__(self, model, batch, step):
        """The loss, until then."""
        if step == 2:
            ends = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM}
            ends["interrupted"] = signal.SIGINT
            if self.way in ends:
                os.kill(os.getpid(), ends[self.way])
            if self.way == "ended":
                os._exit(5)
            if self.way == "one":
                raise UsageError("process 1 alone fails")
        return super().__call__(model, batch, step)
