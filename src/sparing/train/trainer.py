"""Train one model on one task; stop at any moment, and resume bit for bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel, TrainingArguments

from sparing.core.errors import FULL_DISK, CheckpointError, Unsupported, UsageError, nearest
from sparing.core.heap import freed_kept
from sparing.core.processor import multiplies_bfloat16
from sparing.core.progress import waiting
from sparing.core.ranks import first, is_alone, wait_for_all
from sparing.foreign.pretrained import write_pretrained
from sparing.models.shared.quiet import quiet
from sparing.tasks import Task
from sparing.tasks.shared.words import WORDS
from sparing.train import checkpoints
from sparing.train._loop import Journal, Loop
from sparing.train._metrics import MetricsFile
from sparing.train._record import METRICS, RESULT, description_of, open_record
from sparing.train._record import drop_training as drop_training
from sparing.train.evaluation import evaluating
from sparing.train.metering import StepMeter
from sparing.train.objective import Objective, splits, usual_loss
from sparing.train.processes import errors_shared, join
from sparing.train.recipe import OPTIMIZERS, PRECISIONS, Recipe
from sparing.train.room import on_cpu, require_room
from sparing.train.surroundings import generators_kept, interrupts_to


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    ``train_time_s`` is the time in training steps alone: no loading, validation or saving.
    ``metric`` is the task's own; it chose the best validation. ``curve`` has an entry for each
    validation: epoch, step, validation_score (that metric), validation_accuracy, validation_loss,
    train_loss (the mean since the last one), and a meter's names. The accuracy is None where the
    answer is a number. The ``best_*`` and ``validation_*`` fields are of the validation that gave
    the model its weights. ``notes`` describe unusual events.
    """

    train_time_s: float
    steps: int
    examples_seen: int
    best_step: int
    best_epoch: float
    metric: str
    validation_score: float
    validation_accuracy: float | None
    validation_loss: float
    stopped_early: bool
    curve: list[dict[str, float | int]]
    notes: list[str]


def train(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe | None = None,
    *,
    output_dir: Path,
    teacher: nn.Module | None = None,
    objective: Objective | None = None,
    resume: Literal["auto", "never"] = "auto",
    on_progress: Callable[[float, str], None] | None = None,
    meter: StepMeter | None = None,
) -> TrainResult:
    """Train ``model`` in place; at the end it has the weights of the best validation.

    ``output_dir`` gets the model (``save_pretrained``), metrics.jsonl, result.json and, meanwhile,
    checkpoints. The user's random generators are restored. With ``resume="auto"`` an unfinished run
    there continues from its last sound checkpoint and ends with the same weights, bit for bit; a
    finished one is read back. ``"never"`` starts again. A ``teacher`` uses the recipe's
    distillation weights; an ``objective`` replaces the loss. ``on_progress``, or else the waiting
    caller of a study's cell, gets a fraction and a text. A ``meter`` runs in steps alone.

    On Ctrl-C the step in progress is finished and saved, then ``KeyboardInterrupt`` is raised; a
    second one stops at once. Under torchrun or accelerate every process calls this with the same
    arguments; process 0 alone writes, and all get its result. Raises ``UsageError`` for a loss that
    is not finite, too little memory or a folder that cannot be written, ``CheckpointError`` for
    another run or no checkpoint there. Where another process was killed it is ``ProcessLost``.
    """
    recipe, folder = recipe or Recipe(), Path(output_dir)
    if objective is None:
        objective = usual_loss(task.answer, teacher, recipe.distillation)
    elif teacher is not None:
        raise UsageError("give train a teacher or an objective, which has its own; not both")
    with errors_shared(), _disk_errors(folder), quiet(), generators_kept(), freed_kept():
        join_for(model, recipe, objective)
        return _run(model, task, recipe, folder, objective, resume, on_progress, meter)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of writers into one line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UsageError(f"cannot write to {folder}: {error}") from error
    except RuntimeError as error:
        if not any(sign in str(error) for sign in FULL_DISK):
            raise
        raise UsageError(f"cannot write to {folder}: the disk may be full") from error


def join_for(model: PreTrainedModel, recipe: Recipe, objective: Objective) -> None:
    """Join the processes of a launcher; raises ``UsageError`` where they cannot share the work."""
    processes = join(cpu=on_cpu(recipe))
    if processes == 1:
        return
    if processes > recipe.batch_size:
        raise UsageError(
            f"{processes} processes for batches of {recipe.batch_size} examples: start at most "
            f"{recipe.batch_size}, or raise recipe.batch_size"
        )
    if not splits(objective):
        raise Unsupported(
            f"the loss {type(objective).__name__} does not say that it splits a batch over "
            "processes (splits = True): train in one process"
        )
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if getattr(model.config, name, 0):
            raise Unsupported(
                f"the model's {name} would leave out other layers in each process: set it to 0, "
                "or train in one process"
            )


def _run(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    folder: Path,
    objective: Objective,
    resume: str,
    on_progress: Callable[[float, str], None] | None,
    meter: StepMeter | None,
) -> TrainResult:
    _require_examples(task)
    description = description_of(model, task, recipe, objective)

    def opened() -> tuple[bool, Path | None, list[str]]:
        if resume == "never" or not (folder / RESULT).exists():
            require_room(model, task, recipe)
        return _opened(model, folder, description, resume)

    finished, start, notes = first(opened)
    if finished:
        return _read_back(model, folder)
    journal = Journal(recipe, MetricsFile(folder / METRICS), on_progress or waiting(), meter)
    steps = 0
    if start is not None:
        state = checkpoints.read_json(start / checkpoints.STATE)
        journal.restore(state["stateful_callbacks"]["Journal"])
        steps = state["global_step"]
        notes.append(f"resumed from step {steps}")
    journal.metrics.rewind(steps)
    if not journal.out_of_patience:
        steps = _train(model, task, recipe, folder, objective, journal, start)
    return _finish(model, folder, journal, steps, recipe, notes, task)


def _require_examples(task: Task) -> None:
    if len(task.train) == 0:
        raise UsageError(f"task {task.name} has no training examples")
    if len(task.validation) == 0:
        raise UsageError(
            f"task {task.name} has no validation examples to choose the best epoch by: give some, "
            "or ten training examples and more, of which a tenth is held out"
        )


def _opened(
    model: PreTrainedModel, folder: Path, description: dict[str, Any], resume: str
) -> tuple[bool, Path | None, list[str]]:
    """Whether the training in the folder has ended, else where it goes on, with notes."""
    folder.mkdir(parents=True, exist_ok=True)
    open_record(folder, description, resume)
    if (folder / RESULT).exists():
        return True, None, []
    return False, *checkpoints.last_good(folder, model)


def _train(
    model: PreTrainedModel,
    task: Task,
    recipe: Recipe,
    folder: Path,
    objective: Objective,
    journal: Journal,
    start: Path | None,
) -> int:
    """Run the loop to its end; returns the total number of steps."""
    if is_alone():
        raise Unsupported(
            "several processes cannot share this training: run the same command without torchrun "
            "or accelerate"
        )
    arguments = _arguments(recipe, task, folder)
    with _as_it_came(model):
        try:
            loop = Loop(model, arguments, task, recipe, journal, objective)
        except (ValueError, RuntimeError, ImportError) as error:
            raise _refused(error) from error
        teacher = objective.teacher
        context = nullcontext() if teacher is None else evaluating(teacher.to(loop.args.device))
        try:
            with interrupts_to(journal), context:
                loop.train(resume_from_checkpoint=None if start is None else str(start))
                journal.agree()
        finally:
            journal.totals.close()
    if journal.interrupted:
        raise KeyboardInterrupt
    steps: int = loop.state.global_step
    return steps


@contextmanager
def _as_it_came(model: PreTrainedModel) -> Iterator[None]:
    """Undo Trainer's changes of a model besides the training.

    It sets the cache flag, and mixed precision replaces ``forward`` on the instance.
    """
    training, forward = model.training, model.__dict__.get("forward")
    use_cache = getattr(model.config, "use_cache", None)
    try:
        yield
    finally:
        model.train(training)
        model.zero_grad()
        if use_cache is not None:
            model.config.use_cache = use_cache
        model.__dict__.pop("_original_forward", None)
        model.__dict__.pop("forward", None)
        if forward is not None:
            model.forward = forward


def _refused(error: Exception) -> UsageError:
    reason = str(error).strip().partition("\n")[0]
    return UsageError(f"Trainer refuses the recipe: {reason}")


def _finish(
    model: PreTrainedModel,
    folder: Path,
    journal: Journal,
    steps: int,
    recipe: Recipe,
    notes: list[str],
    task: Task,
) -> TrainResult:
    """Restore the best weights, and save the model and the result."""
    best = journal.best
    best_step = int(best["step"])
    checkpoints.load_weights(model, folder / f"{checkpoints.PREFIX}{best_step}")
    result = TrainResult(
        train_time_s=journal.train_time_s,
        steps=steps,
        examples_seen=journal.examples_seen,
        best_step=best_step,
        best_epoch=best["epoch"],
        metric=journal.metric,
        validation_score=best["validation_score"],
        validation_accuracy=best.get("validation_accuracy"),
        validation_loss=best["validation_loss"],
        stopped_early=journal.out_of_patience,
        curve=journal.curve,
        notes=notes,
    )
    wait_for_all()  # the checkpoints are removed below
    return first(lambda: _written(model, folder, result, task))


def _written(model: PreTrainedModel, folder: Path, result: TrainResult, task: Task) -> TrainResult:
    """Save the model and the result, remove files not needed any more."""
    write_pretrained(model, folder)
    if task.tokenizer is not None:
        write_pretrained(task.tokenizer, folder)
    elif task.words is not None:
        checkpoints.write_json(folder / WORDS, task.words.numbers)
    checkpoints.write_json(folder / RESULT, asdict(result))
    renamed = checkpoints.weights_problem(model, folder)  # by ``save_pretrained``
    checkpoints.clear(folder, keep=result.best_step if renamed else None)
    return result


def _read_back(model: nn.Module, folder: Path) -> TrainResult:
    """The result of a finished run; the model gets its weights."""
    try:
        result = TrainResult(**checkpoints.read_json(folder / RESULT))
    except TypeError as error:
        raise CheckpointError(f"{folder / RESULT} is not a result of this version") from error
    best = folder / f"{checkpoints.PREFIX}{result.best_step}"  # present if names differ
    checkpoints.load_weights(model, best if (best / checkpoints.WEIGHTS).is_file() else folder)
    return result


def _arguments(recipe: Recipe, task: Task, folder: Path) -> TrainingArguments:
    """The recipe as Trainer's arguments."""
    cpu = on_cpu(recipe)
    precision = resolve_precision(recipe.precision, cpu=cpu)
    epoch_steps = -(-len(task.train) // recipe.batch_size)
    every = epoch_steps * recipe.evaluate_every_epochs
    try:
        arguments = TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=recipe.epochs,
            per_device_train_batch_size=recipe.batch_size,
            per_device_eval_batch_size=max(128, recipe.batch_size),
            **_descent(recipe, epoch_steps),
            seed=recipe.seed,
            bf16=precision == "bfloat16",
            fp16=precision == "float16",
            use_cpu=cpu,
            eval_strategy="steps",
            eval_steps=every,
            save_strategy="steps",
            save_steps=min(every, recipe.save_every_steps or every),
            save_total_limit=2,
            logging_strategy="steps",
            logging_steps=recipe.log_every_steps or epoch_steps,
            logging_nan_inf_filter=False,
            report_to=list(recipe.trackers) or "none",
            disable_tqdm=True,
            log_level="error",
            remove_unused_columns=False,
            dataloader_pin_memory=not cpu,
            ddp_find_unused_parameters=True,
        )
    except (ValueError, RuntimeError, ImportError) as error:
        raise _refused(error) from error
    # With several accelerators Trainer would copy the model to all of them at every step.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def _descent(recipe: Recipe, epoch_steps: int) -> dict[str, Any]:
    """The optimiser and its schedule as Trainer's arguments."""
    schedule: dict[str, Any] = {"lr_scheduler_type": recipe.schedule}
    if recipe.last_rate_share:
        rest = {"min_lr_rate": recipe.last_rate_share}
        schedule = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": rest}
    return {
        **schedule,
        "optim": OPTIMIZERS[recipe.optimizer],
        "learning_rate": recipe.learning_rate,
        "adam_beta1": recipe.first_moment,
        "weight_decay": recipe.weight_decay,
        "warmup_steps": round(recipe.warmup_share * epoch_steps * recipe.epochs),
        "max_grad_norm": recipe.max_gradient_norm,
    }


def resolve_precision(precision: str, *, cpu: bool) -> str:
    """The training precision: the requested one, or the best that the device supports well.

    Raises ``UsageError`` for float16 on a CPU, which Trainer's loss scaling does not support, and
    warns of bfloat16 on a CPU that only emulates it.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}{nearest(precision, PRECISIONS)}")
    if precision == "float16" and cpu:
        raise UsageError("precision float16 needs an accelerator; use float32 or bfloat16")
    emulated = cpu and not multiplies_bfloat16()
    if precision == "bfloat16" and emulated:
        warnings.warn(
            "this processor has no instructions for bfloat16: training in it takes tens of times "
            "as long as in float32; precision='fast' chooses the faster type",
            stacklevel=2,
        )
    if precision not in ("auto", "fast"):
        return precision
    if cpu:
        return "float32" if emulated or precision == "auto" else "bfloat16"
    bfloat16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return "bfloat16" if bfloat16 else "float32"
