"""Trainer with our own loss, order of examples, evaluation and log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from sparing.core.errors import Diverged
from sparing.core.ranks import Share, anywhere, everywhere, first, is_first, sharing, world
from sparing.core.recording import record
from sparing.tasks import Task
from sparing.train._auxiliary import fell_below, mean_score, replaces, with_auxiliary
from sparing.train._metrics import MetricsFile
from sparing.train._shares import (
    SHARE,
    load_generators,
    reseed,
    save_generators,
    shared_loader,
    taken,
    through,
)
from sparing.train.checkpoints import save_weights
from sparing.train.evaluation import Evaluation, evaluate
from sparing.train.metering import StepMeter, Totals
from sparing.train.objective import Objective, validator_of
from sparing.train.order import LengthGrouped
from sparing.train.raised import raised_attention
from sparing.train.rates import quicken
from sparing.train.recipe import Recipe

PROGRESS_SECONDS = 0.2
INPUT = "the input"


class Journal(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers is untyped
    """The course of a training so far: times, losses, validations; saved in every checkpoint.

    It also ends the training: when patience runs out, or, after saving, when ``interrupted``.
    """

    def __init__(
        self,
        recipe: Recipe,
        metrics: MetricsFile,
        on_progress: Callable[[float, str], None] | None,
        meter: StepMeter | None = None,
    ) -> None:
        self.recipe = recipe
        self.metrics = metrics
        self.on_progress = on_progress
        self.totals = Totals(meter)
        self.sampler: LengthGrouped | None = None
        self.interrupted = False
        self.train_time_s = 0.0
        self.examples_seen = 0
        self.curve: list[dict[str, float | int]] = []
        self.best: dict[str, float | int] = {}
        self.metric = "score"
        self.waits = 0
        self.mark: float | None = None
        self.since_log: list[float] = []
        self.since_validation: list[float] = []
        self.head_scores: list[float] = []
        self._started = 0.0
        self._reported = 0.0

    def state(self) -> dict[str, Any]:
        """The state that a resumed run continues from."""
        names = ("train_time_s", "examples_seen", "curve", "best", "metric", "waits", "mark")
        lists = ("since_log", "since_validation", "head_scores")
        attributes = {name: getattr(self, name) for name in names + lists}
        return {"args": {}, "attributes": {**attributes, "spent": self.totals.read()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a result of ``state``."""
        attributes = dict(state["attributes"])
        self.totals.spent = attributes.pop("spent", {})
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def out_of_patience(self) -> bool:
        """Whether ``patience`` validations were not better, or one fell too low."""
        waited = self.recipe.patience is not None and self.waits >= self.recipe.patience
        return waited or fell_below(self.curve, self.recipe.auxiliary)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Pass the epoch to the order of examples."""
        assert self.sampler is not None
        self.sampler.epoch = state.global_step * state.num_train_epochs // state.max_steps

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock: the batch has been loaded."""
        reseed(self.recipe.seed, state.global_step)
        self.totals.go_on()
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Stop the clock, log the loss when it is due, and handle an interruption."""
        if args.device.type != "cpu":
            torch.accelerator.synchronize(args.device)
        self.train_time_s += time.perf_counter() - self._started
        epoch_steps = state.max_steps // state.num_train_epochs
        every = self.recipe.log_every_steps or epoch_steps
        if state.global_step % every == 0 and self.since_log:
            entry = {"step": state.global_step, "epoch": round(state.epoch, 6)}
            self.metrics.append({"kind": "train", **entry, "loss": _mean(self.since_log)})
            self.since_log = []
        self._report(state)
        if self.agree():
            control.should_save = control.should_training_stop = True
        return control

    def agree(self) -> bool:
        """Whether any process was interrupted; all of them know afterwards."""
        self.interrupted = anywhere(self.interrupted)
        return self.interrupted

    def on_validation(
        self, state: Any, control: Any, evaluation: Evaluation, time_s: float
    ) -> None:
        """Log a validation, keep the best, and stop when patience has run out."""
        entry = {
            "epoch": round(state.epoch, 6),
            "step": state.global_step,
            "validation_score": evaluation.score,
            "validation_loss": evaluation.loss,
            "train_loss": _mean(self.since_validation),
        }
        if evaluation.right is not None:
            entry["validation_accuracy"] = evaluation.accuracy
        entry |= self.totals.spent
        if self.head_scores:
            entry["mean_head_score"] = _mean(self.head_scores)
        if self.head_scores or self.recipe.auxiliary.baseline is not None:
            entry["validation_latency_ms"] = 1e3 * time_s / evaluation.count
        self.metric = evaluation.metric
        self.since_validation, self.head_scores = [], []
        self.curve.append(entry)
        self.metrics.append({"kind": "validation", **entry})
        if not self.best or replaces(entry, self.best, self.recipe.auxiliary):
            self.best = entry
            self._count(evaluation.score)
            state.best_global_step = state.global_step
        else:
            self.waits += 1
        control.should_save = True
        control.should_training_stop = control.should_training_stop or self.out_of_patience

    def _count(self, score: float) -> None:
        """Count a validation that is not better by at least ``least_gain``."""
        least = self.recipe.least_gain
        if least and self.mark is not None and score <= self.mark + least:
            self.waits += 1
        else:
            self.mark, self.waits = score, 0

    def _report(self, state: Any) -> None:
        """Report progress, at most so often that reporting costs little time."""
        now = time.perf_counter()
        done = state.global_step >= state.max_steps
        if (
            not is_first()
            or self.on_progress is None
            or (now - self._reported < PROGRESS_SECONDS and not done)
        ):
            return
        self._reported = now
        text = f"epoch {math.ceil(state.epoch)} of {state.num_train_epochs}"
        if self.best:
            text += f", best validation {self.metric} {self.best['validation_score']:.1%}"
        self.on_progress(state.global_step / state.max_steps, text)


def _mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


class Loop(transformers.Trainer):  # type: ignore[misc]  # transformers is untyped
    """transformers' Trainer with our loss, order, evaluation and checkpoints."""

    control: Any

    def __init__(
        self,
        model: nn.Module,
        arguments: Any,
        task: Task,
        recipe: Recipe,
        journal: Journal,
        objective: Objective,
    ) -> None:
        super().__init__(
            model,
            arguments,
            data_collator=task.collate,
            train_dataset=task.train,
            eval_dataset=task.validation,
            callbacks=[journal],
        )
        self.remove_callback(transformers.PrinterCallback)
        self.task, self.recipe, self.journal, self.objective = task, recipe, journal, objective
        # The loss below is a mean over the batch and takes no keyword arguments.
        self.model_accepts_loss_kwargs = False

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGrouped:
        """The order of the examples, a function of seed and epoch alone."""
        lengths = self.task.train.lengths
        sampler = LengthGrouped(lengths, self.recipe.batch_size, self.recipe.seed)
        self.journal.sampler = sampler
        return sampler

    def get_train_dataloader(self) -> Any:
        """Trainer's in one process; in several, each has its rows of every batch."""
        if world() == 1:
            return super().get_train_dataloader()
        pinned = self.args.dataloader_pin_memory
        return shared_loader(self.task, self._get_train_sampler(), pinned=pinned)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Trainer's, made once; parameters of mechanisms may have their own rate."""
        made = self.optimizer is not None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if not made and self.recipe.mechanism_rate_factor != 1:
            quicken(optimizer, self.model, self.recipe.mechanism_rate_factor)
        return optimizer

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Tensor:
        """The objective's loss, and the losses that layers report meanwhile.

        The step's number seeds everything random in the objective. Trainer lowers the precision of
        ``model.forward`` alone; an objective may also call a model's parts, and a teacher.
        """
        share = taken(inputs)
        return through(model, lambda: self._loss(inputs, share))

    def _loss(self, inputs: dict[str, Tensor], share: Share | None) -> Tensor:
        step = self.state.global_step
        with sharing(share):
            with record(self.model) as log, self.accelerator.autocast():
                loss = self.objective(self.model, inputs, step)
            score = mean_score(log)
            if score is not None:
                self.journal.head_scores.append(score)
            weight = self.recipe.auxiliary.weight_at(step, self.state.max_steps)
            return with_auxiliary(loss, log, weight)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Any = None
    ) -> Tensor:
        """One step; a loss that is not finite stops the training and names where it began."""
        # around the backward pass too: recomputation there must equal the first computation
        with raised_attention(bfloat16=self.args.bf16, device=self.args.device):
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        value = loss.item()
        if not math.isfinite(value):
            reasons = everywhere(first_not_finite(self.model, inputs))
            of_inputs = [reason for reason in reasons if reason.startswith(INPUT)]
            raise Diverged(
                f"the loss is {value} at step {self.state.global_step + 1}: "
                f"{(of_inputs or reasons)[0]}"
            )
        self.journal.since_log.append(value)
        self.journal.since_validation.append(value)
        share: Any = inputs.get(SHARE)
        self.journal.examples_seen += len(inputs["labels"]) if share is None else share.whole
        return loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The task's metrics and the loss on the validation split, or the objective's own.

        Process 0 evaluates; the others wait and get what it found, so all decide alike.
        """
        self.journal.totals.read()
        start = time.perf_counter()
        evaluation = first(self._evaluated)
        time_s = time.perf_counter() - start
        if not math.isfinite(evaluation.loss):
            raise Diverged(
                f"the validation loss is {evaluation.loss} at step {self.state.global_step}: "
                f"{first_not_finite(self.model, {})}"
            )
        metrics = {f"eval_{name}": value for name, value in evaluation.scores.items()}
        metrics["eval_loss"] = evaluation.loss
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        self.journal.on_validation(self.state, self.control, evaluation, time_s)
        return metrics

    def _evaluated(self) -> Evaluation:
        """Without the outputs, which no process needs any more."""
        validator, size = validator_of(self.objective), self.args.eval_batch_size
        if validator is None:
            evaluation = evaluate(self.model, self.task, "validation", batch_size=size)
        else:
            evaluation = validator.validate(self.model, self.task, size)
        return replace(evaluation, outputs=None, truth=None)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the weights of a checkpoint, outside the meter's window."""
        self.journal.totals.read()
        if self.args.should_save:
            save_weights(self.model, Path(output_dir or self.args.output_dir))

    def _save_rng_state(self, output_dir: str) -> None:
        if world() == 1:
            super()._save_rng_state(output_dir)
        else:
            save_generators(Path(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Process 0 goes on with its generators; the others are seeded anew at each step."""
        if world() == 1:
            super()._load_rng_state(checkpoint)
        elif checkpoint is not None and is_first():
            load_generators(Path(checkpoint))

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """0: Trainer's estimate ignores attention and reads the whole model at each step."""
        return 0


def first_not_finite(model: nn.Module, inputs: dict[str, Tensor]) -> str:
    """The first non-finite input, parameter or gradient."""
    for name, value in inputs.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if not bool(value.isfinite().all()):
            return f"{INPUT} {name} is not finite"
    for name, value in model.named_parameters():
        if not bool(value.isfinite().all()):
            return f"the parameter {name} is not finite; a lower learning rate may help"
    for name, value in model.named_parameters():
        if value.grad is not None and not bool(value.grad.isfinite().all()):
            return f"the gradient of {name} is not finite; a lower learning rate may help"
    return "all inputs and parameters are finite; the forward pass overflows"
