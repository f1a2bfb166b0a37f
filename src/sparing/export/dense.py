"""The dense model as the one segment of a chain, as it is or compiled."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.answers.kinds import LOGITS
from sparing.core.errors import Unsupported
from sparing.export.engine import Chain
from sparing.export.outputs import outputs_of
from sparing.foreign.sentences import vector_of


class TextEncoder(nn.Module):
    """A transformers text encoder that takes and gives tensors: the outputs of these names.

    The modules ``later`` make one vector for a text of the hidden states, as those of a
    sentence-transformers model do; both are outputs then.
    """

    def __init__(
        self, model: nn.Module, outputs: Sequence[str] = LOGITS, later: Sequence[nn.Module] = ()
    ) -> None:
        super().__init__()
        self.model, self.outputs = model, tuple(outputs)
        self.later = nn.ModuleList(later)

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"],
        attention_mask: Int[Tensor, "batch tokens"],
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """The outputs by their names: one alone as it is, several in a tuple."""
        further = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        made = self.model(input_ids=input_ids, attention_mask=attention_mask, **further)
        if len(self.later):
            return vector_of(self.later, made[0], attention_mask), made[0]
        if len(self.outputs) > 1:
            return tuple(made[name] for name in self.outputs)
        answer: Tensor = made[0]
        return answer


class ImageEncoder(nn.Module):
    """A transformers image encoder that takes and gives tensors: its logits, or hidden states."""

    def __init__(self, model: nn.Module, outputs: Sequence[str] = LOGITS) -> None:
        super().__init__()
        self.model, self.outputs = model, tuple(outputs)

    def forward(
        self, pixel_values: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "*batch_and_answer"]:
        """The first output, such as the logits."""
        answer: Tensor = self.model(pixel_values=pixel_values)[0]
        return answer


def dense_segment(model: nn.Module, later: Sequence[nn.Module] = ()) -> nn.Module:
    """A transformers encoder as the one segment of a dense chain.

    ``later`` are the modules that make a vector of its hidden states: see ``foreign.sentences``.
    Raises ``Unsupported`` for models that take neither ``input_ids`` nor ``pixel_values``.
    """
    name = getattr(model, "main_input_name", "")
    if name == "input_ids":
        return TextEncoder(model, outputs_of(model, later), later).train(model.training)
    if name == "pixel_values":
        return ImageEncoder(model, outputs_of(model)).train(model.training)
    raise Unsupported(
        f"{type(model).__name__} takes {name or 'other inputs'}, so it has no dense chain"
    )


def compiled_segments(
    segments: Sequence[nn.Module], example_inputs: Mapping[str, Tensor]
) -> list[nn.Module]:
    """A chain's segments through ``torch.compile`` with free sizes, compiled before they return.

    They run on the example and on its first row, which PyTorch compiles separately, so no later
    call waits. Takes up to a minute. One segment alone is recorded as CUDA graphs where its device
    has them: several hand on tensors that the next recording would overwrite. Raises
    ``Unsupported`` when nothing can be compiled here (for example without a C++ compiler).
    """
    build: Any = torch.compile
    mode = "reduce-overhead" if len(segments) == 1 else None  # changes nothing on a CPU
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's imports warn of their own deprecations
        try:
            compiled: list[nn.Module] = [build(one, dynamic=True, mode=mode) for one in segments]
            chain = Chain(compiled)
            chain.every_exit(example_inputs)
            chain.every_exit({name: value[:1] for name, value in example_inputs.items()})
        except Exception as error:  # the errors of a missing or failing compiler vary
            raise Unsupported(_not_compiled(error)) from error
    return compiled


@cache
def compile_obstacle(device: str) -> str:
    """Why torch.compile does not work on a device; empty if it does. One sum is compiled once."""
    build: Any = torch.compile
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        try:
            build(lambda numbers: numbers.exp() + 1)(torch.zeros(8, device=device))
        except Exception as error:
            return _not_compiled(error)
    return ""


def _not_compiled(error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0] or repr(error)
    return f"torch.compile does not work here: {reason}"
