"""The one place where configurations, tokenizers and weights of transformers are opened.

A folder can ask transformers to run Python files that lie in it (``auto_map``), to fetch kernels
(``attn_implementation`` with a slash) or to open another model (``adapter_config.json``). None of
this happens here: it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel

ADAPTER = "adapter_config.json"


def local(source: str | Path) -> str:
    """A folder's path with its home written out, or else the hub name as it is.

    transformers takes a name with ``~`` for one of the hub.
    """
    text = str(source)
    try:
        folder = Path(text).expanduser()
        return str(folder) if folder.is_dir() else text
    except (OSError, RuntimeError, ValueError):  # no such user, or no path at all
        return text


def open_config(source: str | Path, kind: Any = AutoConfig) -> PreTrainedConfig:
    """The configuration of a folder or hub name, of the class ``kind`` where it is given.

    Raises what transformers raises, and ``ValueError`` where the configuration asks for code of
    others.
    """
    config: PreTrainedConfig = kind.from_pretrained(local(source), trust_remote_code=False)
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    for part in (config, *parts):
        chosen = getattr(part, "_attn_implementation", None)
        names = chosen.values() if isinstance(chosen, dict) else (chosen,)
        if any("/" in str(name) for name in names):
            raise ValueError("its configuration asks for an attention kernel to be fetched")
    return config


def open_tokenizer(source: str | Path) -> Any:
    """The tokenizer of a folder or hub name; raises what transformers raises."""
    return AutoTokenizer.from_pretrained(local(source), trust_remote_code=False)


def open_weights(kind: Any, source: str | Path, **options: Any) -> Any:
    """A model of the class ``kind`` (an Auto class too) with the weights of a folder or hub name.

    ``options`` go to ``from_pretrained``, whose result is given back. Raises what transformers
    raises, and ``ValueError`` for a folder that asks for code or models of others.
    """
    place = local(source)
    if (Path(place) / ADAPTER).is_file():
        raise ValueError(
            f"it holds an adapter ({ADAPTER}): merge it into its model, and save that one"
        )
    if "config" not in options:
        concrete = isinstance(kind, type) and issubclass(kind, PreTrainedModel)
        options["config"] = open_config(place, kind.config_class if concrete else AutoConfig)
    return kind.from_pretrained(place, trust_remote_code=False, **options)
