"""Save a changed model into a new folder: whole, with its tokenizer, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.errors import CheckpointError, SparingError, UsageError
from sparing.core.paths import expanded
from sparing.core.scratch import scratch_beside, scratch_inside

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROCESSOR = "preprocessor_config.json"
LAST = ("config.json", "chain.json")


def require_new(folder: Path) -> None:
    """Raise ``UsageError`` unless the folder can be created, or exists and is empty.

    It is not created yet: a later failure leaves nothing behind.
    """
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with _scratch(folder.resolve()) as part:
                occupied = any(path != part.parent for path in folder.resolve().iterdir())
        finally:
            for path in missing:
                path.rmdir()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from error
    if occupied:
        raise UsageError(f"{folder} is not empty: give a new folder")


def _scratch(folder: Path) -> AbstractContextManager[Path]:
    """The path to write to first: beside the folder, or inside it if it is mounted."""
    return scratch_inside(folder, "model") if folder.is_mount() else scratch_beside(folder)


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """A folder to write to, that becomes ``folder`` at the end: whole, or not at all.

    A mounted folder cannot be replaced, only filled. There the description of the model goes last:
    without it the folder holds none. Raises ``OSError`` where nothing can be written.
    """
    folder = folder.resolve()  # "." has no name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(folder) as written:
        yield written
        if not folder.is_mount():
            written.replace(folder)
            return
        for file in sorted(written.iterdir(), key=lambda file: file.name in LAST):
            file.replace(folder / file.name)


def tokenizer_of(name: str) -> Any:
    """The tokenizer beside a model, or None where there is none.

    transformers builds an empty tokenizer instead of reporting missing files, so they are looked
    for first.
    """
    from transformers.utils import cached_file

    from sparing.foreign.pretrained import open_tokenizer
    from sparing.models.shared.quiet import quiet
    from sparing.tasks.shared.text import VOCABULARIES

    folder = expanded(name)
    source = str(folder) if folder.is_dir() else name
    with quiet():
        for file in VOCABULARIES:
            if cached_file(source, file, _raise_exceptions_for_missing_entries=False) is None:
                continue
            try:
                return open_tokenizer(source)
            except Exception as error:  # a damaged file raises any of them
                reason = str(error).partition("\n")[0] or type(error).__name__
                raise CheckpointError(f"the tokenizer of {name} is damaged: {reason}") from error
    return None


def save_beside(name: str, folder: Path) -> bool:
    """Write the tokenizer or the processor of the model ``name``; whether it has a tokenizer."""
    from sparing.foreign.pretrained import write_pretrained

    tokenizer = tokenizer_of(name)
    if tokenizer is not None:
        write_pretrained(tokenizer, folder)
    processor = expanded(name) / PROCESSOR
    if processor.is_file():
        shutil.copyfile(processor, folder / PROCESSOR)
    return tokenizer is not None


def save_model(model: PreTrainedModel, name: str, folder: Path) -> None:
    """Write the model, with its own tokenizer or processor, whole or not at all."""
    from safetensors import SafetensorError

    from sparing.foreign.pretrained import write_pretrained
    from sparing.models.shared.quiet import quiet

    try:
        with writing_folder(folder) as part:
            with quiet():
                write_pretrained(model, part)
            save_beside(name, part)
    except SafetensorError as error:
        raise SparingError(f"cannot write to {folder}: {error}") from error
