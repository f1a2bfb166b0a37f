"""Load a model that was saved with its swap; ``model.save_pretrained`` saves it.

The configuration carries the entry ``sparing``, which transformers writes into config.json with
everything else. Loading builds the model, removes the pruned heads and attaches the same
mechanisms, which were made for the remaining heads. Then transformers reads the weights (and
renames them for some families). Missing or extra weights are errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import PreTrainedModel

from sparing.core.catalogue import current_name, mechanism_class
from sparing.core.errors import CheckpointError, SparingError, UsageError
from sparing.core.paths import expanded
from sparing.core.reading import read_object
from sparing.foreign.pretrained import open_weights
from sparing.transfer.adapting.config import MODEL_TYPE
from sparing.transfer.adaptive import load_adaptive
from sparing.transfer.layers import find_layers
from sparing.transfer.patching import ENTRY as PATCHES
from sparing.transfer.patching import read_selection, select_patches
from sparing.transfer.plan import BIASES, Assignment
from sparing.transfer.pruning import read_rows, remove
from sparing.transfer.registry import NAME
from sparing.transfer.swap import ENTRY_VERSION, Placement, activate, attach, build, share

_ENTRY_KEYS = {"version", "swap", "pruned", PATCHES}
_LAYER_KEYS = {"layer": int, "name": str, "mechanism": str, "options": dict}


def load(path: str | Path, *, foreign: Sequence[str] = ()) -> PreTrainedModel:
    """Load a saved transformers model, pruned and with swapped attention if it was saved so.

    ``path`` is a folder that ``save_pretrained`` wrote. Values and types are those that were saved.
    A model saved without a swap loads as transformers would load it, as the class it was saved
    from. ``foreign`` names modules or packages of mechanisms, besides sparing's, that the folder
    may import, such as ``("my_lab",)``; a module that is imported already needs no permission.
    Raises ``CheckpointError`` for a corrupt, foreign, incomplete or newer checkpoint.
    """
    folder = expanded(path)
    config = _read_config(folder)
    entry = config.get(NAME)
    if config["model_type"] == MODEL_TYPE:
        return load_adaptive(folder)
    _refuse_older(entry, folder)
    kind = _model_class(config, folder)
    if entry is None:
        whole, info = _read_weights(kind, folder, tolerant=True)
        # many hub checkpoints have more: heads of another training, buffers of another version
        left = [name for name in info.get("unexpected_keys") or () if f".{NAME}." in str(name)]
        _refuse_differences({**info, "unexpected_keys": left}, folder)
        return whole
    rows = _check_entry(entry, folder)
    _require_known(rows, folder, foreign)
    try:
        built = _changed(kind, rows, read_rows(entry))
        model, info = _read_weights(built, folder, tolerant=True)
        _refuse_differences(info, folder)
        model.__class__ = kind
        if rows:
            _refresh(model, rows)
        if PATCHES in entry:
            select_patches(model, read_selection(entry[PATCHES]))
    except CheckpointError:
        raise
    except (SparingError, TypeError) as error:
        raise CheckpointError(
            f"{folder}: the saved entry does not fit the model: {error}"
        ) from error
    return model


def _read_config(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder} holds no config.json; give a folder that was saved whole")
    config = read_object(file, CheckpointError, finite=False)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{file} is not a transformers configuration: it has no model_type")
    return config


def _model_class(config: dict[str, Any], folder: Path) -> type[PreTrainedModel]:
    """The saved class, as config.json names it."""
    names = config.get("architectures") or []
    kind = getattr(transformers, str(names[0]), None) if isinstance(names, list) and names else None
    if not isinstance(kind, type) or not issubclass(kind, PreTrainedModel):
        raise CheckpointError(
            f"{folder / 'config.json'} names no model class of transformers under architectures: "
            f"{names!r}"
        )
    return kind


def _refuse_older(entry: Any, folder: Path) -> None:
    """Raise ``CheckpointError`` for an adaptive model without a model type of its own."""
    if isinstance(entry, dict) and "adaptive" in entry:
        raise CheckpointError(
            f"{folder} holds an adaptive model in an older form: its model_type is not "
            f"{MODEL_TYPE!r}; adapt or slim the model again"
        )


def _check_entry(entry: Any, folder: Path) -> list[dict[str, Any]]:
    """The saved swap, one row a layer; an error names the fault of the entry in one line."""
    where = f"{folder / 'config.json'}: the entry {NAME!r}"
    version = entry.get("version") if isinstance(entry, dict) else None
    if not isinstance(version, int):
        raise CheckpointError(f"{where} is not one that sparing wrote")
    if version > ENTRY_VERSION or not entry.keys() <= _ENTRY_KEYS:
        raise CheckpointError(f"{where} was written by a newer sparing (version {version}); update")
    others = bool(entry.keys() & {"pruned", PATCHES})
    rows = entry.get("swap", [] if others else None)
    if not isinstance(rows, list) or not (rows or others):
        raise CheckpointError(f"{where} lists no layers")
    for row in rows:
        good = isinstance(row, dict) and all(
            isinstance(row.get(key), kind) for key, kind in _LAYER_KEYS.items()
        )
        good = good and isinstance(row.get("tokens"), int | None)
        if not good or row.get("bias", "keep") not in BIASES:
            raise CheckpointError(f"{where} has a damaged layer: {row!r}")
    return [{**row, "mechanism": current_name(row["mechanism"])} for row in rows]


def _require_known(rows: list[dict[str, Any]], folder: Path, foreign: Sequence[str]) -> None:
    """Raise ``CheckpointError`` for a mechanism with code that the caller did not allow."""
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        try:
            mechanism_class(name, allowed=foreign)
        except UsageError as error:
            raise CheckpointError(f"{folder / 'config.json'}: {error}") from error


def _placements(model: PreTrainedModel, rows: list[dict[str, Any]]) -> list[Placement]:
    """The saved mechanisms, built for the layers that they were saved from."""
    layers = {layer.index: layer for layer in find_layers(model)}
    placements = []
    for row in rows:
        # by number: transformers renames its modules from one version to another
        layer = layers.get(row["layer"])
        if layer is None:
            raise CheckpointError(f"the model has no self-attention layer {row['layer']}")
        assignment = Assignment(row["mechanism"], row["options"], bias=row.get("bias", "keep"))
        placements.append(
            Placement(layer, assignment, build(model, layer, assignment, row["tokens"]))
        )
    share(placements)
    return placements


def _changed(
    kind: type[PreTrainedModel], rows: list[dict[str, Any]], pruned: Mapping[int, list[int]]
) -> type[PreTrainedModel]:
    """The model's class, pruned and with mechanisms before transformers reads the weights."""

    def build_changed(self: PreTrainedModel, config: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, config, *args, **options)
        # both are written again below: until then the model is whole
        vars(self.config).pop(NAME, None)
        if pruned:
            remove(self, pruned)
        # transformers builds on the meta device, which has no random numbers
        with torch.device("cpu"):
            if rows:
                attach(self, _placements(self, rows))

    names = {"__init__": build_changed, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), {**names, "__qualname__": kind.__qualname__})


def _read_weights(
    kind: type[PreTrainedModel], folder: Path, tolerant: bool = False
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Let transformers load the weights, quietly, and return the differences.

    When ``tolerant``, weights of another shape are returned as well instead of raised.
    """
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    how: dict[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": tolerant}
    try:
        model, info = open_weights(kind, folder, **how)
        if _has_no_pooler(kind, info):
            model, info = open_weights(kind, folder, add_pooling_layer=False, **how)
        return model, info
    except (SparingError, MemoryError):
        raise
    except Exception as error:  # a damaged configuration raises any of them
        lines = str(error).strip().splitlines() or [type(error).__name__]
        weights = isinstance(error, OSError | ValueError | RuntimeError | SafetensorError)
        what = "the weights cannot be read" if weights else "its configuration is damaged"
        raise CheckpointError(f"{folder}: {what}: {lines[0]}") from error
    finally:
        transformers.logging.set_verbosity(verbosity)


def _has_no_pooler(kind: type[PreTrainedModel], info: Mapping[str, Any]) -> bool:
    """Whether only a pooler is missing, which the class can be built without."""
    missing = [str(name) for name in info.get("missing_keys") or ()]
    builders = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    known = any("add_pooling_layer" in inspect.signature(base).parameters for base in builders)
    return known and bool(missing) and all(name.startswith("pooler.") for name in missing)


def _refuse_differences(info: Mapping[str, Any], folder: Path) -> None:
    """Raise ``CheckpointError`` for weights missing, left over or of another shape."""
    for kind in ("missing", "unexpected", "mismatched"):
        names = sorted(str(name) for name in info.get(f"{kind}_keys") or ())
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise CheckpointError(f"{folder}: {kind} weights: {names[0]}{more}")


def _refresh(model: PreTrainedModel, rows: list[dict[str, Any]]) -> None:
    """Build the mechanisms again outside transformers' loading, which corrupts unsaved buffers."""
    placements = _placements(model, rows)
    for placement in placements:
        loaded = placement.layer.module.get_submodule(NAME)
        placement.mechanism.load_state_dict(loaded.state_dict())
    attach(model, placements)
    activate(model)
