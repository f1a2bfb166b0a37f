"""What makes two trainings the same one, recorded in their folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from sparing.core.errors import CheckpointError, UsageError
from sparing.core.reading import parse_json
from sparing.tasks import Task
from sparing.tasks.shared.text import VOCABULARIES
from sparing.tasks.shared.words import WORDS
from sparing.train import checkpoints
from sparing.train.objective import Objective
from sparing.train.recipe import Recipe

RESULT, RUN, METRICS, DATA = "result.json", "run.json", "metrics.jsonl", "data"


def description_of(
    model: nn.Module, task: Task, recipe: Recipe, objective: Objective
) -> dict[str, Any]:
    """The values that must be equal for two runs to be the same run, flat, as in JSON."""
    facts = {
        "task": task.name,
        "examples": len(task.train),
        DATA: f"{task.train.digest} {task.validation.digest}",
        "model": _structure(model),
        "teacher": "none" if objective.teacher is None else _structure(objective.teacher),
        **objective.describe(),
    }
    whole = {**facts, **{f"recipe.{name}": value for name, value in asdict(recipe).items()}}
    described: dict[str, Any] = parse_json(json.dumps(whole))
    return described


def _structure(model: nn.Module) -> str:
    """The model's class, and a digest of its modules, shapes and swaps."""
    parts = [f"{name} {type(module).__name__}" for name, module in model.named_modules()]
    parts += [f"{name} {tuple(tensor.shape)}" for name, tensor in model.state_dict().items()]
    swapped = getattr(getattr(model, "config", None), "sparing", None)
    parts.append(json.dumps(swapped, sort_keys=True, default=str))
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()
    return f"{type(model).__name__} {digest}"


def open_record(folder: Path, description: dict[str, Any], resume: str) -> None:
    """Begin a run in the folder, or check that the existing one is the same."""
    if resume not in ("auto", "never"):
        raise UsageError(f"resume must be 'auto' or 'never'; got {resume!r}")
    run = folder / RUN
    if resume == "never":
        _drop_record(folder)
    if run.exists():
        written = checkpoints.read_json(run)
        usual = {f"recipe.{name}": value for name, value in asdict(Recipe()).items()}
        written = {DATA: description[DATA], **usual, **written}  # older versions lack some
        other = [name for name, value in description.items() if written.get(name) != value]
        if not other:
            return
        if checkpoints.checkpoints(folder) or (folder / RESULT).exists():
            name = other[0]
            raise CheckpointError(
                f"{folder} holds another run: its {name} is {written.get(name)!r}, now it is "
                f"{description[name]!r}; choose another folder or start afresh with "
                "resume='never', on the command line --overwrite"
            )
    if checkpoints.checkpoints(folder) or (folder / RESULT).exists():
        raise CheckpointError(f"{folder} holds a run without {RUN}: choose another folder")
    checkpoints.write_json(run, description)


def drop_training(folder: Path) -> None:
    """Remove a training and its model from their folder; other files stay."""
    if not (folder / RUN).is_file():
        return
    left = ("config.json", "model*.safetensors*", "tokenizer*", WORDS, *VOCABULARIES)
    for path in [path for name in left for path in folder.glob(name) if path.is_file()]:
        path.unlink(missing_ok=True)
    _drop_record(folder)


def _drop_record(folder: Path) -> None:
    checkpoints.clear(folder)
    for name in (RESULT, METRICS, RUN):
        (folder / name).unlink(missing_ok=True)
