"""Weights and run state on disk: written atomically, and checked when read."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sparing.core.errors import CheckpointError
from sparing.core.reading import parse_json, read_object, read_plain
from sparing.core.writing import replacing, write_atomically
from sparing.foreign.screening import require_finite

WEIGHTS, STATE = "model.safetensors", "trainer_state.json"
PREFIX = "checkpoint-"


def save_weights(model: nn.Module, folder: Path, state: Mapping[str, Tensor] | None = None) -> None:
    """Write the model's state, or the given one, under its own names, shared tensors once.

    transformers' ``save_pretrained`` renames some weights to older layouts (ViT's, for example).
    Trainer reads them back without renaming, matches nothing and does not report it. So checkpoints
    are not written that way.
    """
    tensors: dict[str, Tensor] = {}
    seen: set[tuple[object, ...]] = set()
    for name, tensor in (model.state_dict() if state is None else state).items():
        if _storage_key(tensor) not in seen:
            tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            seen.add(_storage_key(tensor))
    with replacing(folder / WEIGHTS) as beside:
        save_file(tensors, beside, metadata={"format": "pt"})


def load_weights(model: nn.Module, folder: Path) -> None:
    """Read a file of ``save_weights`` into ``model``.

    Raises ``CheckpointError`` when the file is missing or damaged or holds another model's weights,
    or some that are not finite. Missing or extra weights are errors too.
    """
    reason = weights_problem(model, folder)
    if reason:
        raise CheckpointError(f"{folder}: {reason}")
    model.load_state_dict(load_file(folder / WEIGHTS), strict=False)
    require_finite(model, folder)


def weights_problem(model: nn.Module, folder: Path) -> str:
    """Why the folder's weights cannot be read into the model; empty when they can."""
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        return f"{WEIGHTS} cannot be read ({error})"
    state = model.state_dict()
    held = {_storage_key(tensor) for name, tensor in state.items() if name in shapes}
    for name, shape in shapes.items():
        if name not in state:
            return f"it holds {name}, which the model does not have"
        if shape != tuple(state[name].shape):
            return f"its {name} is {shape}, the model's is {tuple(state[name].shape)}"
    for name, tensor in state.items():
        if name not in shapes and _storage_key(tensor) not in held:
            return f"it does not hold {name}"
    return ""


def _storage_key(tensor: Tensor) -> tuple[object, ...]:
    """Equal for two names of one tensor only; an empty tensor has no storage of its own."""
    if tensor.numel() == 0:
        return (id(tensor),)
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoint folders of a run, newest first."""
    folders = [path for path in folder.glob(f"{PREFIX}*") if path.name[len(PREFIX) :].isdigit()]
    return sorted(folders, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name[len(PREFIX) :])


def last_good(folder: Path, model: nn.Module) -> tuple[Path | None, list[str]]:
    """The newest sound checkpoint, if any, and a note on each damaged one that was skipped.

    Damaged folders are renamed, so they are neither tried again nor counted. Raises
    ``CheckpointError`` when there are several and none is sound. A single damaged one was
    interrupted while it was written: there is none before it, and training starts again.
    """
    notes: list[str] = []
    candidates = checkpoints(folder)
    for path in candidates:
        reason = _problem(path, model)
        if not reason:
            _set_aside(candidates[: candidates.index(path)])
            return path, notes
        notes.append(f"{path.name} passed over: {reason}")
    if len(notes) == 1 and not _is_whole(candidates[0]):
        _set_aside(candidates)
    elif notes:
        raise CheckpointError(
            f"{folder}: no checkpoint can be used; {notes[0]}; start afresh with resume='never', "
            "on the command line --overwrite"
        )
    return None, notes


def _damaged(folder: Path) -> list[Path]:
    """The checkpoints that were renamed as damaged."""
    return [path for path in folder.glob("damaged-*") if path.name.partition("-")[2].isdigit()]


def _set_aside(damaged: list[Path]) -> None:
    for path in damaged:
        target = path.with_name(f"damaged-{_step(path)}")
        shutil.rmtree(target, ignore_errors=True)
        path.rename(target)


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint was written to its end: its state is written last."""
    return (path / STATE).exists()


def _problem(path: Path, model: nn.Module) -> str:
    """Why a checkpoint cannot be resumed from; empty when it can."""
    try:
        state = parse_json(read_plain(path / STATE), finite=False)
        if state["global_step"] != _step(path):
            return f"{STATE} is of step {state['global_step']}"
        for name in ("optimizer.pt", "scheduler.pt", *_generator_states(path)):
            with zipfile.ZipFile(path / name) as file:
                broken = file.testzip()
            if broken:
                return f"{name} is damaged"
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        return f"it is not whole ({error})"
    return weights_problem(model, path)


def _generator_states(path: Path) -> list[str]:
    """The files with the state of the random generators, one for each process."""
    return sorted(file.name for file in path.glob("rng_state*.pth")) or ["rng_state.pth"]


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises ``CheckpointError`` when it is not one."""
    return read_object(path, CheckpointError)


def clear(folder: Path, keep: int | None = None) -> None:
    """Remove a run's checkpoints; of step ``keep`` only the weights stay."""
    for path in [*checkpoints(folder), *_damaged(folder)]:
        if keep is None or path.name != f"{PREFIX}{keep}":
            shutil.rmtree(path)
            continue
        for file in path.iterdir():
            if file.name != WEIGHTS:
                file.unlink()
