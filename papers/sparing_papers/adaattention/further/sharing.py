"""One scorer for several tasks: the models of all tasks trained together, batch by batch in turn.

The paper leaves this to future work (section V). Each task has its own fine-tuned encoder. In each
layer all encoders share one scorer, or each has its own: nothing else differs between the two
trainings. Both see the same batches in the same order, at the same rates.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import get_linear_schedule_with_warmup

from sparing.core.errors import Diverged, UsageError
from sparing.core.progress import waiting
from sparing.core.recording import record
from sparing.foreign.pretrained import write_pretrained
from sparing.train import Auxiliary, Recipe
from sparing.train.answers import label_loss, outputs_of
from sparing.train.order import LengthGrouped
from sparing.train.raised import raised_attention
from sparing.train.rates import quicken
from sparing.train.trainer import resolve_precision
from sparing.transfer.swap import swap
from sparing_papers.adaattention.arms import ARMS, LAST_WEIGHT, Work, options_of
from sparing_papers.adaattention.cells.training import adaptive_layers
from sparing_papers.adaattention.names import ADAPTIVE, DENSE, ONE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Batch = dict[str, Tensor]
Turn = tuple[str, list[int]]


@dataclass(frozen=True)
class Trained:
    """Seconds in steps and steps, by task; ``together`` are the steps of all."""

    seconds: Mapping[str, float]
    steps: Mapping[str, int]

    @property
    def together(self) -> int:
        """The steps of all tasks."""
        return sum(self.steps.values())


def share_scorers(models: Sequence[nn.Module]) -> None:
    """Let layer l of all models use the scorer of the first one's; in place.

    Raises ``UsageError`` for models with other numbers or shapes of scorers.
    """
    first, *others = ([*adaptive_layers(model).values()] for model in models)
    shapes = [
        [[*weight.shape] for layer in layers for weight in layer.scorer.parameters()]
        for layers in (first, *others)
    ]
    if any(shape != shapes[0] for shape in shapes):
        raise UsageError("one scorer needs models of one shape: name one model for all tasks")
    for layers in others:
        for layer, source in zip(layers, first, strict=True):
            layer.scorer = source.scorer


def train_together(
    works: Sequence[Work], seed: int, arm: str, weight: float
) -> tuple[dict[str, PreTrainedModel], Trained]:
    """Swap the paper's mechanism into the tasks' dense models and train them on together.

    With ``arm`` "one-scorer" they share the scorers. The weights are those after the last step; no
    validation chooses. ``weight`` is that of the loss that rewards low scores. The models are
    written into their folders. Raises ``Diverged`` for a loss that is not finite.
    """
    models = {work.name: _opened(work, seed) for work in works}
    if arm == ONE:
        share_scorers([*models.values()])
    steps = _Steps(works, models, seed, weight)
    trained = steps.run()
    for work in works:
        folder = work.model_dir(arm, seed)
        write_pretrained(models[work.name].eval(), folder)
        if work.task.tokenizer is not None:
            write_pretrained(work.task.tokenizer, folder)
    return models, trained


def _opened(work: Work, seed: int) -> PreTrainedModel:
    """The dense model with the mechanism; all scorers of a layer begin alike, by the seed."""
    model = work.open(DENSE, seed)
    arm = next(arm for arm in ARMS if arm.name == ADAPTIVE)
    swap(model, arm.mechanism, tokens=work.task.tokens, **options_of(arm, work.task.tokens, seed))
    return model


def turns(
    works: Sequence[Work], seed: int, epochs: int, size: int
) -> Iterator[tuple[str, list[int]]]:
    """The task and the examples of every step: an epoch's batches of all tasks, shuffled."""
    for epoch in range(epochs):
        steps = []
        for work in works:
            order = LengthGrouped(work.task.train.lengths, size, seed)
            order.epoch = epoch
            indices = [*order]
            steps += [
                (work.name, indices[start : start + size]) for start in range(0, len(indices), size)
            ]
        random.Random(f"{seed}/{epoch}").shuffle(steps)
        yield from steps


class _Steps:
    """The steps of a training of several models, with one optimizer and one schedule."""

    def __init__(
        self,
        works: Sequence[Work],
        models: Mapping[str, PreTrainedModel],
        seed: int,
        weight: float,
    ) -> None:
        self.works = {work.name: work for work in works}
        self.models, self.seed = models, seed
        self.recipe = _recipe_of(works, seed)
        self.turns = [*turns(works, seed, self.recipe.epochs, self.recipe.batch_size)]
        self.auxiliary = Auxiliary(weight=weight, last_weight=max(weight, LAST_WEIGHT))
        self.optimizer = _optimizer(models, self.recipe)
        count = len(self.turns)
        warm = ceil(self.recipe.warmup_share * count)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, warm, count)

    def run(self) -> Trained:
        """Every step in turn."""
        seconds, steps = dict.fromkeys(self.works, 0.0), dict.fromkeys(self.works, 0)
        report = waiting()
        torch.manual_seed(self.seed)
        for model in self.models.values():
            model.train()
        for number, (name, indices) in enumerate(self.turns):
            task = self.works[name].task
            batch = task.collate([task.train[index] for index in indices])
            start = perf_counter()
            self._step(name, batch, number)
            seconds[name] += perf_counter() - start
            steps[name] += 1
            if report is not None and number % 10 == 0:
                report(number / len(self.turns), f"step {number} of {len(self.turns)}")
        return Trained(seconds, steps)

    def _step(self, name: str, batch: Batch, number: int) -> None:
        """One step of one task's model, and of the scorers that it uses."""
        model, labels = self.models[name], batch.pop("labels")
        precision = resolve_precision(self.recipe.precision, cpu=True)
        low = precision == "bfloat16"
        self.optimizer.zero_grad(set_to_none=True)
        with raised_attention(bfloat16=low, device=torch.device("cpu")):
            with record(model) as log, torch.autocast("cpu", torch.bfloat16, enabled=low):
                answer = self.works[name].task.answer
                loss = label_loss(outputs_of(model(**batch)), labels, answer=answer)
            rewards = [
                value
                for key, values in log.items()
                if key.endswith("/auxiliary_loss")
                for value in values
            ]
            weight = self.auxiliary.weight_at(number, len(self.turns))
            loss = loss + weight * torch.stack(rewards).to(loss).mean()
            torch.autograd.backward(loss)
        if not bool(loss.isfinite()):
            raise Diverged(f"the loss of {name} is {loss.item()} at step {number + 1}")
        nn.utils.clip_grad_norm_(model.parameters(), self.recipe.max_gradient_norm)
        self.optimizer.step()
        self.schedule.step()


def _recipe_of(works: Sequence[Work], seed: int) -> Recipe:
    """The recipe of all tasks; raises ``UsageError`` where they differ."""
    recipes = [work.recipe(seed, dense=False) for work in works]
    if any(recipe != recipes[0] for recipe in recipes):
        names = ", ".join(work.name for work in works)
        raise UsageError(f"tasks that share a scorer need one recipe; those of {names} differ")
    return replace(recipes[0], seed=seed)


def _optimizer(models: Mapping[str, nn.Module], recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW over all models, each shared parameter once; vectors do not decay."""
    together = nn.ModuleDict({f"task {n}": model for n, model in enumerate(models.values())})
    groups: list[dict[str, Any]] = [
        {"params": [p for p in together.parameters() if p.ndim > 1]},
        {"params": [p for p in together.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    quicken(optimizer, together, recipe.mechanism_rate_factor)
    return optimizer
