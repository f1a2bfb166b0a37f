"""A changed model goes into a new folder: whole, with what it came with, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sparing.core.errors import SparingError, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROCESSOR = "preprocessor_config.json"
PART = ".part"


def require_new(folder: Path) -> None:
    """Raise ``UsageError`` unless the folder can be made, or is there and empty.

    It is not made yet: what fails later leaves nothing behind.
    """
    probe = folder / PART  # also what a killed process may have left where a volume is mounted
    if folder.is_dir() and any(entry != probe for entry in folder.iterdir()):
        raise UsageError(f"{folder} is not empty: give a new folder")
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(probe, ignore_errors=True)
        probe.mkdir()
        probe.rmdir()
        for each in missing:
            each.rmdir()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error


def _put(beside: Path, folder: Path) -> None:
    """Move what was written into place; what is mounted cannot be replaced, only filled.

    There the configuration goes last: without it the folder holds no model.
    """
    if beside.parent != folder:
        beside.replace(folder)
        return
    files = sorted(beside.iterdir(), key=lambda file: file.name == "config.json")
    for file in files:
        file.replace(folder / file.name)
    beside.rmdir()


def save_model(model: PreTrainedModel, name: str, folder: Path) -> None:
    """Write the model, with the tokenizer or processor it came with, whole or not at all."""
    from safetensors import SafetensorError

    from sparing.cli._models import tokenizer_of
    from sparing.models._quiet import quiet

    folder = folder.resolve()  # "." has no name
    beside = folder / PART if folder.is_mount() else folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with quiet():
            model.save_pretrained(beside)
        tokenizer = tokenizer_of(name)
        if tokenizer is not None:
            tokenizer.save_pretrained(beside)
        processor = Path(name).expanduser() / PROCESSOR
        if processor.is_file():
            shutil.copyfile(processor, beside / PROCESSOR)
        _put(beside, folder)
    except SafetensorError as error:
        raise SparingError(f"cannot write to {folder}: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
