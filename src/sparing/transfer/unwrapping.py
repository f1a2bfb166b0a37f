"""The transformers model inside a wrapper: parallel, compiled, with adapters, or of sentences."""

from __future__ import annotations

import re
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError

# The model inside each known wrapper: package, class, path.
WRAPPERS = (
    ("torch", "DataParallel", "module"),
    ("torch", "DistributedDataParallel", "module"),
    ("torch", "OptimizedModule", "_orig_mod"),
)
SENTENCES = "sentence_transformers"


def unwrapped(model: Any, *, merged: bool = False, changed: bool = False) -> Any:
    """The transformers model that a wrapper calls; anything else is returned unchanged.

    Opens ``DataParallel``, ``DistributedDataParallel``, the result of ``torch.compile``, PEFT
    models, and the models of ``sentence_transformers``. Changes of the inner model also change its
    wrapper. ``merged`` says that only the model's own weights are read: adapters would be lost.
    ``changed`` says that parameters are added or removed: ``DistributedDataParallel`` synchronises
    only those that it began with. Raises ``Unsupported`` for these, and for any other object around
    a transformers model; the message names the inner model.
    """
    while not isinstance(model, PreTrainedModel):
        if changed and _is_of(model, "torch", "DistributedDataParallel"):
            raise Unsupported(
                "DistributedDataParallel synchronises only the parameters that it began with: "
                "give model.module, and wrap it afterwards"
            )
        inner = _inner(model, merged)
        if inner is None:
            refuse_wrapper(model)
            return model
        model = inner
    if merged:
        _require_merged(model)
    return model


def refuse_wrapper(model: Any) -> None:
    """Raise ``Unsupported`` for an unknown object that holds a transformers model, naming it."""
    paths = model_paths(model)
    if paths:
        raise Unsupported(
            f"{type(model).__name__} is a wrapper around a transformers model: give "
            f"{' or '.join(paths[:3])}"
        )


def model_paths(model: Any) -> list[str]:
    """The transformers models in an object as Python expressions, such as model[0].auto_model."""
    if isinstance(model, PreTrainedModel):
        return []
    if isinstance(model, nn.Module):
        return [f"model{_path(name)}" for name in _outermost(model)]
    inner = getattr(model, "model", None)  # a pipeline's, a Trainer's
    return ["OBJECT.model"] if isinstance(inner, PreTrainedModel) else []


def tokenizer_in(model: Any) -> Any:
    """The tokenizer inside a sentence-transformers wrapper; None where there is none."""
    tokenizer = getattr(model, "tokenizer", None)
    return tokenizer if _is_of(model, SENTENCES) else None


def _inner(model: Any, merged: bool) -> Any:
    """The model that a known wrapper calls; None for anything else."""
    for package, kind, path in WRAPPERS:
        if _is_of(model, package, kind):
            return getattr(model, path)
    if _is_of(model, "peft", "PeftModel"):
        if merged:
            raise Unsupported(_unmerged(type(model).__name__))
        config = getattr(model, "active_peft_config", None)
        if getattr(config, "is_prompt_learning", False):
            raise Unsupported(f"{type(model).__name__} adds learned prompts outside of its model")
        return model.get_base_model()
    if _is_of(model, SENTENCES):
        paths = _outermost(model) if isinstance(model, nn.Module) else []
        if len(paths) == 1:
            return model.get_submodule(paths[0])
        if not paths and isinstance(getattr(model, "model", None), PreTrainedModel):
            return model.model
    return None


def _require_merged(model: PreTrainedModel) -> None:
    """Raise ``Unsupported`` where adapters are still separate from the weights."""
    if any(_is_of(module, "peft", "BaseTunerLayer") for module in model.modules()):
        raise Unsupported(_unmerged(type(model).__name__))


def _unmerged(name: str) -> str:
    return f"{name} has adapters that are not merged: give model.merge_and_unload()"


def _is_of(model: Any, package: str, kind: str = "") -> bool:
    """Whether a class, or one of its bases, is this class of a package."""
    return any(
        base.__module__.partition(".")[0] == package and base.__name__ == (kind or base.__name__)
        for base in type(model).__mro__
    )


def _outermost(model: nn.Module) -> list[str]:
    """The paths of the transformers models that are in no other one."""
    paths: list[str] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{path}.") for path in paths)
        if isinstance(module, PreTrainedModel) and not inside:
            paths.append(name)
    return paths


def _path(name: str) -> str:
    """A module's path as Python writes it."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f".{name}")


def require_transformers(model: Any, verb: str) -> PreTrainedModel:
    """The transformers model inside; ``UsageError`` with the verb's name where there is none."""
    inner = unwrapped(model)
    if not isinstance(inner, PreTrainedModel):
        raise UsageError(
            f"{verb} needs a transformers model or a folder of one; got {type(model).__name__}"
        )
    return inner
