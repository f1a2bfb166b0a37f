"""Arguments of an adaptive model besides inputs: those of calls and of ``from_pretrained``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from sparing.core.errors import CheckpointError, Unsupported, UsageError, quoted
from sparing.core.paths import expanded
from sparing.core.tracing import is_exported
from sparing.foreign.kinds import answer_kind
from sparing.train.checkpoints import WEIGHTS

_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "token")
# Reading is always strict, runs no foreign code, and takes one set of weights, in safetensors.
_ALWAYS = {
    "adapter_kwargs",
    "code_revision",
    "low_cpu_mem_usage",
    "strict",
    "trust_remote_code",
    "use_safetensors",
    "weights_only",
    "_commit_hash",
    "_from_auto",
    "_from_pipeline",
}
_IGNORED_LABEL = -100


def refuse_requests(what: str, requests: Mapping[str, Any]) -> None:
    """Raise ``Unsupported``, naming the first argument that requests something unsupported.

    None and False request nothing.
    """
    for name, value in requests.items():
        if value is not None and value is not False:
            raise Unsupported(f"{what} cannot honour {name}; leave it out")


def refuse_outputs(config: Any) -> None:
    """Raise ``Unsupported`` where a configuration requests unsupported outputs."""
    for name in ("output_hidden_states", "output_attentions"):
        if getattr(config, name, False):
            raise Unsupported(f"an adaptive model cannot honour {name} of its configuration")


def refuse_export() -> None:
    """Raise ``Unsupported`` where a call is recorded once: sizes depend on the values of a mask."""
    if is_exported():
        raise Unsupported(
            "an adaptive model is not exported whole, as its computation depends on values: export "
            "sparing.transfer.freezing.segments(model)"
        )


def loss_against(labels: Tensor, logits: Float[Tensor, "batch outputs"], config: Any) -> Tensor:
    """The loss that the dense model has: cross-entropy, or that of its other kind of answer.

    Of several labels it is the binary cross-entropy, of a number the squared error. Raises
    ``UsageError`` for labels of another shape or type.
    """
    kind, batch = answer_kind(config), len(logits)
    if kind == "class":
        return functional.cross_entropy(logits, checked_labels(labels, config.num_labels, batch))
    shapes = [logits.shape] if kind == "labels" else [(batch,), (batch, 1)]
    if not labels.is_floating_point() or labels.shape not in shapes:
        what = f"{config.num_labels} of 0 or 1" if kind == "labels" else "one number"
        raise UsageError(
            f"labels must be floating and {what} an input; got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    if kind == "labels":
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    return functional.mse_loss(logits[:, 0], labels.reshape(-1).to(logits.dtype))


def checked_labels(labels: Tensor, classes: int, batch: int) -> Int[Tensor, " inputs"]:
    """The classes in the loss's format.

    Raises ``UsageError`` unless labels are one class an input; -100 leaves an input out.
    """
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if not whole or labels.shape not in ((batch,), (batch, 1)):
        raise UsageError(
            f"labels must be {batch} class numbers, one an input; got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    flat = labels.reshape(-1).long()
    if flat.device.type == "cpu":
        outside = flat[(flat != _IGNORED_LABEL) & ((flat < 0) | (flat >= classes))]
        if outside.numel():
            raise UsageError(f"labels must be from 0 to {classes - 1}; got {int(outside[0])}")
    return flat


def local_folder(name: Any, options: dict[str, Any]) -> Path:
    """The folder that a model is read from; a hub name's files are fetched.

    Removes the options of fetching from ``options``. Raises ``UsageError`` where there is nothing.
    """
    hub = {key: options.pop(key) for key in _HUB if key in options}
    inner = options.pop("subfolder", None) or ""
    folder = expanded(name)
    if folder.is_dir():
        return folder / inner
    from huggingface_hub import snapshot_download

    patterns = [str(Path(inner, file)) for file in ("config.json", WEIGHTS)]
    given = {key: value for key, value in hub.items() if value is not None}
    try:
        return Path(snapshot_download(str(name), allow_patterns=patterns, **given)) / inner
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"no model at {str(name)[:40]!r}: {reason[:200]}") from error


def saved_type(config: Any, folder: Path) -> torch.dtype:
    """The type of the weights in a configuration, float32 where it has none.

    Raises ``CheckpointError`` for anything but a floating type.
    """
    dtype = getattr(config, "dtype", None) or torch.float32
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise CheckpointError(f"{folder / 'config.json'}: dtype is {quoted(dtype)}, no float type")
    return dtype


def read_options(options: dict[str, Any]) -> tuple[torch.dtype | None, bool]:
    """The type to convert to, None for the saved one, and whether the caller wants a report.

    Raises ``Unsupported``, naming it, for an option of ``from_pretrained`` that has no effect here.
    """
    left = {name: value for name, value in options.items() if name not in _ALWAYS}
    report = bool(left.pop("output_loading_info", False))
    kinds = [left.pop(name, None) for name in ("dtype", "torch_dtype")]
    kind = next((kind for kind in kinds if kind not in (None, "auto")), None)
    if isinstance(kind, str):
        kind = getattr(torch, kind, None) or kind
    if kind is not None and not (isinstance(kind, torch.dtype) and kind.is_floating_point):
        raise UsageError(f"dtype must be a floating type, such as torch.bfloat16; got {kind!r}")
    if left.get("attn_implementation") == "sdpa":
        del left["attn_implementation"]
    if left.get("device_map") is not None:
        raise Unsupported(
            "an adaptive model cannot honour device_map; load it and call .to(device)"
        )
    refuse_requests("from_pretrained of an adaptive model", left)
    return kind, report
