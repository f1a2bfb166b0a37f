"""The distance of a swapped model from the original before training, on a few batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from sparing.core.errors import UsageError
from sparing.core.printing import fitted_lines
from sparing.transfer.registry import NAME


@dataclass(frozen=True)
class Distance:
    """The differences of two models on the same inputs, at real tokens.

    ``output_error`` is |after - before| / |before| over the models' outputs. Outputs are logits, or
    the last hidden states where there are none. CLIP's are those of its texts over the images, a
    question-answering model's those of first and last tokens. ``divergence`` is the mean
    Kullback-Leibler divergence from the first model's predicted distribution to the second's, in
    nats (None without classes). ``layers`` is the relative error of each swapped attention layer's
    output, including the changes of the layers below it.
    """

    output_error: float
    divergence: float | None
    layers: dict[str, float]

    def __str__(self) -> str:
        """At most 40 lines."""
        lines = [f"output error {self.output_error:.3g} of the original's size"]
        if self.divergence is not None:
            lines.append(f"divergence {self.divergence:.3g} nats")
        lines += [f"  {name}: {error:.3g}" for name, error in self.layers.items()]
        return fitted_lines(lines)


def distance(
    before: PreTrainedModel, after: PreTrainedModel, batches: Iterable[Mapping[str, Any]]
) -> Distance:
    """The distance between two models of one architecture; ``after`` is the swapped one.

    Both run in evaluation mode without gradients. Raises ``UsageError`` without batches.
    """
    names = _swapped_names(after)
    sums = _Sums(names)
    for batch in batches:
        with _quiet(before):
            first = _run(before, names, batch)
        with _quiet(after):
            second = _run(after, names, batch)
        sums.add(first, second, batch.get("attention_mask"))
    return sums.result()


def distance_of_swap(model: PreTrainedModel, batches: Iterable[Mapping[str, Any]]) -> Distance:
    """The distance of a swapped model from itself with transformers' own attention."""
    names = _swapped_names(model)
    sums = _Sums(names)
    with _quiet(model):
        for batch in batches:
            with _unmixed(model, names):
                first = _run(model, names, batch)
            sums.add(first, _run(model, names, batch), batch.get("attention_mask"))
    return sums.result()


_Outputs = tuple[Tensor, bool, dict[str, Tensor]]


class _Sums:
    """Squared errors and sizes, added up over batches."""

    def __init__(self, names: list[str]) -> None:
        self.errors = dict.fromkeys(("", *names), 0.0)
        self.sizes = dict.fromkeys(("", *names), 0.0)
        self.divergence = 0.0
        self.predictions = 0

    def add(self, first: _Outputs, second: _Outputs, keep: Tensor | None) -> None:
        """Count one batch: each model's outputs for it, and which tokens are real."""
        before, are_logits, layers_before = first
        after, _, layers_after = second
        self._add_error("", _real(before, keep), _real(after, keep))
        for name, value in layers_before.items():
            self._add_error(name, _real(value, keep), _real(layers_after[name], keep))
        if are_logits:
            old = _real(before, keep).double().log_softmax(-1)
            new = _real(after, keep).double().log_softmax(-1)
            self.divergence += float(F.kl_div(new, old, reduction="sum", log_target=True))
            self.predictions += old[..., 0].numel()

    def _add_error(self, name: str, before: Tensor, after: Tensor) -> None:
        self.errors[name] += float((after.double() - before.double()).square().sum())
        self.sizes[name] += float(before.double().square().sum())

    def result(self) -> Distance:
        """The distance over everything added."""
        if not self.sizes[""]:
            raise UsageError("distance needs at least one batch with outputs that are not all zero")
        errors = {
            name: (error / self.sizes[name]) ** 0.5 if self.sizes[name] else 0.0
            for name, error in self.errors.items()
        }
        output_error = errors.pop("")
        divergence = self.divergence / self.predictions if self.predictions else None
        return Distance(output_error, divergence, errors)


def _real(value: Tensor, keep: Tensor | None) -> Tensor:
    """Only the real tokens, where the tensor has an entry for each token."""
    if keep is None or keep.ndim != 2 or value.shape[:2] != keep.shape or value.ndim < 3:
        return value
    return value[keep.bool().to(value.device)]


def _swapped_names(model: nn.Module) -> list[str]:
    names = [name for name, module in model.named_modules() if NAME in module._modules]
    if not names:
        raise UsageError("distance needs a swapped model: call sparing.swap(model, ...) first")
    return names


def _run(model: nn.Module, names: list[str], batch: Mapping[str, Any]) -> _Outputs:
    """The model's output, whether it is logits, and the output of each named layer."""
    layers: dict[str, Tensor] = {}
    handles = []
    for name in names:

        def keep_output(_module: nn.Module, _args: Any, output: Any, name: str = name) -> None:
            layers[name] = output[0] if isinstance(output, tuple) else output

        handles.append(model.get_submodule(name).register_forward_hook(keep_output))
    try:
        output = model(**batch)
    finally:
        for handle in handles:
            handle.remove()
    for field in ("logits", "logits_per_text", "last_hidden_state"):
        if getattr(output, field, None) is not None:
            return output[field], field != "last_hidden_state", layers
    if getattr(output, "start_logits", None) is not None:
        return torch.stack((output.start_logits, output.end_logits), -1), False, layers
    raise UsageError(f"{type(model).__name__} gives neither logits nor last_hidden_state")


@contextmanager
def _quiet(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, and the modes of all modules restored."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def _unmixed(model: nn.Module, names: list[str]) -> Iterator[None]:
    """The model with transformers' own attention while the block is open."""
    layers = [model.get_submodule(name) for name in names]
    mechanisms = [layer._modules.pop(NAME) for layer in layers]
    try:
        yield
    finally:
        for layer, mechanism in zip(layers, mechanisms, strict=True):
            layer._modules[NAME] = mechanism
