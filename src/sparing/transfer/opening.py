"""Open a model by name: a folder, swapped or not, or a hub name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import transformers
from safetensors import SafetensorError
from transformers import PreTrainedModel

from sparing.core.errors import CheckpointError, UsageError, nearest
from sparing.core.paths import expanded
from sparing.foreign.pretrained import open_config, open_weights
from sparing.models import MODELS
from sparing.models.shared.quiet import quiet
from sparing.transfer.checkpoint import load


def open_model(name: str, also: Sequence[str] = ()) -> PreTrainedModel:
    """The pretrained model of a folder, swapped or not, or of a hub name, as its own class.

    ``also`` are further names that the caller knows: one of them may have been meant. Raises
    ``UsageError`` where there is none and ``CheckpointError`` where its files are damaged.
    """
    if is_folder(name):
        with quiet():
            return _load(expanded(name)).eval()
    return _from_hub(name, also)


def is_folder(name: str) -> bool:
    """Whether a model is a local folder; any other name may be one of the hub.

    Raises ``UsageError`` for a file, and for a path that does not exist.
    """
    folder = expanded(name)
    if folder.is_dir():
        return True
    if folder.exists():
        raise UsageError(f"{name} is a file; give the folder that save_pretrained wrote")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UsageError(f"no model at {name!r}: there is no such folder")
    return False


def require_openable(name: str) -> None:
    """Raise ``UsageError`` if a model could not be opened later, as far as the folder shows."""
    if is_folder(name) and not (expanded(name) / "config.json").is_file():
        raise UsageError(f"{name} holds no model: there is no config.json")


def _load(folder: Path) -> PreTrainedModel:
    """Load a folder; every error names it."""
    try:
        return load(folder)
    except CheckpointError as error:
        if str(folder) in str(error):
            raise
        raise CheckpointError(f"{folder}: {error}") from error


def _from_hub(name: str, also: Sequence[str]) -> PreTrainedModel:
    with quiet():
        try:
            config = open_config(name)
            if hasattr(config, "sparing"):
                raise UsageError(f"{name!r} is a swapped model: download it and give its folder")
            kind = getattr(transformers, (config.architectures or ["AutoModel"])[0])
            model: PreTrainedModel = open_weights(kind, name, config=config)
        except UsageError:
            raise
        except (OSError, ValueError, KeyError, AttributeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise UsageError(
                f"no model {name!r}: no such folder, and not available from the hub ({reason})"
                + ("; sparing train makes one of that name" if name in MODELS.names() else "")
                + nearest(name, also)
            ) from error
        except SafetensorError as error:
            raise CheckpointError(f"the model {name!r} is damaged: {error}") from error
    return model.eval()
