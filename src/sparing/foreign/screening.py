"""Check a configuration against its weights before anything is built, and weights for NaN.

A number in a configuration costs nothing to write and may cost hours or all memory to build. The
names and shapes of the weights are in the files' headers, which are read in milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from sparing.core.errors import CheckpointError
from sparing.core.reading import read_object

Shapes = Mapping[str, tuple[int, ...]]
WEIGHTS, INDEX, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
# Numbers of parts that are built one by one; and sides of tensors. Other numbers cost nothing.
_LAYERS = re.compile(r"(^|_)(block|depth|layer|stage)s?(_|$)")
_PARTS = re.compile(r"(^|_)(codebook|expert|group|head|level|module|quantizer)s?(_|$)")
_SIDES = re.compile(
    r"(size|dim|positions?|position_embeddings|channels?|width|length|features?|inner|embd|ctx|rank)$"
)
_IMAGES = re.compile(r"(image|patch)_size$")
_LISTS_OF_LAYERS = ("sparing.swap", "sparing.pruned", "sparing.adaptive.sizes")
_FREE = re.compile(r"(seed|theta|eps|_ids?|version|freq)$|^(id2label|label2id)\.")
# Layers that are shared, and experts in one tensor, have no numbers in the names of weights.
MOST_LAYERS, MOST_PARTS = 100, 4096
MOST_IMAGE = 2**14
# Sizes of rotary positions and the like may exceed any size in the weights.
MOST_SIZE, MOST_SIZE_UNSEEN, MOST_TIMES = 2**20, 2**24, 64
# A pruned or quantised model is read into a larger one; its head may be new.
MORE_PARAMS, MORE_TIMES = 2**24, 16


def weight_shapes(folder: Path) -> Shapes:
    """The names and shapes of the weights in a folder, from the headers; empty where none is read.

    Raises ``CheckpointError`` for an index that names files outside the folder.
    """
    if (folder / WEIGHTS).is_file():
        files = [folder / WEIGHTS]
    elif (folder / INDEX).is_file():
        names = read_object(folder / INDEX, CheckpointError).get("weight_map")
        names = {*names.values()} if isinstance(names, dict) else set()
        if any(not isinstance(name, str) or Path(name).name != name for name in names):
            raise CheckpointError(f"{folder / INDEX} names files outside its folder")
        files = [folder / name for name in sorted(names)]
    else:
        return _pickled_shapes(folder / PICKLED)
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        for path in files:
            with safe_open(path, framework="pt") as file:
                names = file.keys()
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except (OSError, SafetensorError):
        return {}  # the reader of the weights reports the error
    return shapes


def _pickled_shapes(path: Path) -> Shapes:
    if not path.is_file():
        return {}
    try:
        state = torch.load(path, map_location="meta", weights_only=True)
    except Exception:  # a damaged file raises many kinds; the reader of the weights reports which
        return {}
    return {
        str(name): tuple(value.shape) for name, value in state.items() if hasattr(value, "shape")
    }


def require_sizes(config: Mapping[str, Any], shapes: Shapes, source: object) -> None:
    """Raise ``CheckpointError`` for a size in a configuration that its weights cannot have."""
    indices = {part for name in shapes for part in name.split(".") if part.isdigit()}
    largest = max((side for shape in shapes.values() for side in shape), default=0)
    most_size = max(MOST_TIMES * largest, MOST_SIZE) if shapes else MOST_SIZE_UNSEEN
    for path, value in _numbers(config):
        name = path.rpartition(".")[2]
        if _FREE.search(path):
            continue
        if _IMAGES.search(name):
            most = MOST_IMAGE
        elif name in ("num_labels", "num_classes"):
            most = max(MOST_PARTS, largest)
        elif _LAYERS.search(name):
            most = max(MOST_LAYERS, len(indices))
        elif path.startswith("sparing.") or _SIDES.search(name):
            most = most_size
        elif _PARTS.search(name):
            most = max(MOST_PARTS, len(indices))
        else:
            continue
        if value > most:
            raise CheckpointError(
                f"{source}: its configuration says {name[:40]} = {str(value)[:24]}, which its "
                "weights cannot have"
            )


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """All whole numbers of a configuration with the names that lead to them, in lists too."""
    left: list[tuple[str, Any]] = [*config.items()]
    while left:
        name, value = left.pop()
        if isinstance(value, Mapping):
            left += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            if name in _LISTS_OF_LAYERS:
                yield f"{name}.layers", len(value)
            left += [(name, inner) for inner in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def require_room(build: Any, shapes: Shapes, source: object) -> None:
    """Raise ``CheckpointError`` where ``build()`` makes a far larger model than the weights are.

    It is called on the meta device, where a model takes no memory. Its other errors are left to the
    loading that follows.
    """
    if not shapes:
        return
    known = sum(math.prod(shape) for shape in shapes.values())
    try:
        with torch.device("meta"):
            model: nn.Module = build()
        size = sum(parameter.numel() for parameter in model.parameters())
    except Exception:  # a damaged configuration raises any error; loading reports it
        return
    if size > MORE_TIMES * known + MORE_PARAMS:
        raise CheckpointError(
            f"{source}: its configuration makes a model of {size:.3g} parameters, and its weights "
            f"have {known:.3g}"
        )


def require_finite(model: nn.Module, source: object) -> None:
    """Raise ``CheckpointError``, naming it, where a weight of a model is NaN or infinite.

    Checking the model's output is not enough: fused attention hides a query that is NaN.
    """
    for name, value in model.named_parameters():
        if not bool(value.isfinite().all()):
            raise CheckpointError(f"{source}: the weights {name} are not finite")
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if name not in saved:
            continue  # it may not be made yet: its memory may hold anything
        # masks may hold infinities
        if buffer.is_floating_point() and bool(buffer.isnan().any()):
            raise CheckpointError(f"{source}: the weights {name} are not finite")
