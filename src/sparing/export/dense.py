"""The dense model in every engine, each as a chain of one segment: a fast model's baselines."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.errors import Unsupported
from sparing.export.engine import Chain
from sparing.export.int8 import Int8Settings, quantise, quantise_module
from sparing.export.onnx import export_onnx


class TextEncoder(nn.Module):
    """A transformers text encoder that takes and gives tensors: its logits, or hidden states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> Float[Tensor, "*batch_and_answer"]:
        """The first output, such as the logits."""
        further = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        answer: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask, **further)[
            0
        ]
        return answer


class ImageEncoder(nn.Module):
    """A transformers image encoder that takes and gives tensors: its logits, or hidden states."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, pixel_values: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "*batch_and_answer"]:
        """The first output, such as the logits."""
        answer: Tensor = self.model(pixel_values=pixel_values)[0]
        return answer


def dense_segment(model: nn.Module) -> nn.Module:
    """A transformers encoder as the one segment of a dense chain.

    Raises ``Unsupported`` for models that take neither ``input_ids`` nor ``pixel_values``.
    """
    name = getattr(model, "main_input_name", "")
    if name == "input_ids":
        return TextEncoder(model).train(model.training)
    if name == "pixel_values":
        return ImageEncoder(model).train(model.training)
    raise Unsupported(
        f"{type(model).__name__} takes {name or 'other inputs'}, so it has no dense chain"
    )


def compiled_segment(segment: nn.Module, example_inputs: Mapping[str, Tensor]) -> nn.Module:
    """The segment through ``torch.compile`` with free sizes, compiled before it is returned.

    It runs on the example and on its first row, which PyTorch compiles separately, so no later call
    waits. Takes up to a minute. Raises ``Unsupported`` when nothing can be compiled here (for
    example without a C++ compiler).
    """
    build: Any = torch.compile
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's imports warn of their own deprecations
        try:
            compiled: nn.Module = build(segment, dynamic=True)
            chain = Chain([compiled])
            chain(example_inputs)
            chain({name: value[:1] for name, value in example_inputs.items()})
        except Exception as error:  # the errors of a missing or failing compiler vary
            reason = str(error).strip().partition("\n")[0] or repr(error)
            raise Unsupported(f"torch.compile does not work here: {reason}") from error
    return compiled


def dense_chains(
    segment: nn.Module,
    example_inputs: Mapping[str, Tensor],
    folder: Path,
    *,
    int8: Sequence[Int8Settings] = (),
    compiled: bool = True,
    eager_int8: bool = True,
    thread_count: int = 1,
    longest: int | None = None,
) -> dict[str, Chain]:
    """The same dense segment in every engine, by name: "eager", "onnxruntime" and requested ones.

    ``compiled`` adds "torch.compile" (see ``compiled_segment``), ``eager_int8`` "torch.ao INT8",
    and each of ``int8`` an "onnxruntime INT8, ..." with its settings. Exported files go to
    ``folder``. Raises the errors of ``export_onnx`` and ``quantise``.
    """
    options: dict[str, Any] = {"thread_count": thread_count, "longest": longest}
    exported = export_onnx(segment, example_inputs, folder / "dense.onnx")
    chains = {"eager": Chain([segment], **options)}
    if compiled:
        chains["torch.compile"] = Chain([compiled_segment(segment, example_inputs)], **options)
    chains["onnxruntime"] = Chain([exported], **options)
    if eager_int8:
        chains["torch.ao INT8"] = Chain([quantise_module(segment)], **options)
    for number, settings in enumerate(int8):
        paths = quantise([exported], folder / f"int8-{number}", settings)
        chains[f"onnxruntime INT8, {settings}"] = Chain(paths, **options)
    return chains
