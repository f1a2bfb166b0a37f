"""The one module that opens configurations, tokenizers and weights of transformers.

A folder can make transformers run its Python files (``auto_map``), fetch kernels
(``attn_implementation`` with a slash) or open another model (``adapter_config.json``). All of
this is refused here.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from sparing.core.reading import parse_json, read_plain
from sparing.core.writing import modes_by_umask
from sparing.foreign.screening import (
    INDEX,
    WEIGHTS,
    Shapes,
    require_finite,
    require_room,
    require_sizes,
    weight_shapes,
)

ADAPTER, CONFIG = "adapter_config.json", "config.json"
_SHARDS = "model-*.safetensors"


def local(source: str | Path) -> str:
    """A folder's path with its home expanded, or else the hub name unchanged.

    transformers treats a name with ``~`` as one of the hub.
    """
    text = str(source)
    try:
        folder = Path(text).expanduser()
        return str(folder) if folder.is_dir() else text
    except (OSError, RuntimeError, ValueError):  # no such user, or no path at all
        return text


def open_config(source: str | Path, kind: Any = AutoConfig) -> PreTrainedConfig:
    """The configuration of a folder or hub name, of the class ``kind`` where it is given.

    Raises transformers' errors, ``ValueError`` where the configuration needs foreign code, and
    ``CheckpointError`` for sizes that its weights cannot have.
    """
    path = local(source)
    folder = Path(path)
    if folder.is_dir():
        _require_sizes(folder, weight_shapes(folder), path)
    elif (fetched := _fetched(path, CONFIG)) is not None:
        _require_sizes(fetched, {}, path)
    config: PreTrainedConfig = kind.from_pretrained(path, trust_remote_code=False)
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    for part in (config, *parts):
        chosen = getattr(part, "_attn_implementation", None)
        names = chosen.values() if isinstance(chosen, dict) else (chosen,)
        if any("/" in str(name) for name in names):
            raise ValueError("its configuration needs an attention kernel to be fetched")
    return config


def open_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a folder or hub name; raises transformers' errors."""
    return AutoTokenizer.from_pretrained(local(source), trust_remote_code=False)


def open_weights(kind: Any, source: str | Path, **options: Any) -> Any:
    """A model of the class ``kind`` (an Auto class too) with the weights of a folder or hub name.

    ``options`` go to ``from_pretrained``, and its result is returned. Raises transformers' errors,
    ``ValueError`` for a folder that needs foreign code or models, and ``CheckpointError`` for
    weights that are not finite or far smaller than the configuration.
    """
    path = local(source)
    if (Path(path) / ADAPTER).is_file():
        raise ValueError(
            f"it holds an adapter ({ADAPTER}): merge it into its model, and save that one"
        )
    concrete = isinstance(kind, type) and issubclass(kind, PreTrainedModel)
    if "config" not in options:
        options["config"] = open_config(path, kind.config_class if concrete else AutoConfig)
    folder = Path(path) if Path(path).is_dir() else _fetched(path, CONFIG, WEIGHTS, INDEX, _SHARDS)
    if folder is not None:
        config = copy.deepcopy(options["config"])
        build = kind if concrete else kind.from_config
        require_room(lambda: build(config), weight_shapes(folder), path)
    wants_info = options.pop("output_loading_info", False)
    options |= {"trust_remote_code": False, "output_loading_info": True}
    opened, info = kind.from_pretrained(path, **options)
    _read_base(opened, info, path, options)
    require_finite(opened, path)
    return (opened, info) if wants_info else opened


def _read_base(
    opened: PreTrainedModel, info: dict[str, Any], path: str, options: dict[str, Any]
) -> None:
    """Fill in the encoder if transformers did not read it: some releases miss a ViT without head.

    They initialise its weights at random without a message. The encoder alone they do read.
    """
    start = f"{opened.base_model_prefix}."
    lost = {name for name in info["missing_keys"] if name.startswith(start)}
    if not lost or not info["unexpected_keys"] or opened.base_model is opened:
        return
    base, base_info = type(opened.base_model).from_pretrained(path, **options)
    gained = lost - {start + name for name in base_info["missing_keys"]}
    if not gained:
        return
    # the encoder alone may have a pooler that the head does not use
    opened.base_model.load_state_dict(base.state_dict(), strict=False)
    info["missing_keys"] = {*info["missing_keys"]} - gained
    info["unexpected_keys"] = base_info["unexpected_keys"]


def _require_sizes(folder: Path, shapes: Shapes, path: str) -> None:
    """Check the configuration as written, before a number in it makes a long list."""
    try:
        written = parse_json(read_plain(folder / CONFIG), finite=False)
    except (OSError, ValueError):
        return  # transformers says what is wrong with it
    if isinstance(written, dict):
        require_sizes(written, shapes, path)


def _fetched(name: str, *files: str) -> Path | None:
    """The folder with these files of a hub name; None where they are not available."""
    try:
        return Path(snapshot_download(name, allow_patterns=[*files]))
    except Exception:  # no such name, no network: transformers says which
        return None


def write_pretrained(model: Any, folder: str | Path) -> None:
    """Write a model, a tokenizer or the like into a folder, with the modes of the umask."""
    model.save_pretrained(folder)
    modes_by_umask(Path(folder))
