"""How a swapped model learns from the dense one: layer by layer first, then end to end."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.train.evaluation import evaluating
from sparing.transfer.registry import NAME
from sparing.transfer.swap import is_swapped, swap, unswap

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LEAST_SIZE = 1e-12  # of a target's mean square: a layer that gives zeros has no relative error


@dataclass(frozen=True)
class Call:
    """How a layer was called, and what it gave."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Tensor


def teacher_of(model: PreTrainedModel) -> PreTrainedModel:
    """A frozen copy with dense attention; its layers hand on padding as swapped ones need it."""
    teacher = copy.deepcopy(model)
    if is_swapped(teacher):
        unswap(teacher)
    swap(teacher, "softmax")
    return teacher.requires_grad_(False).eval()


def calls_of(teacher: nn.Module, given: Mapping[str, Any]) -> dict[str, Call]:
    """Run a teacher, and say how each swapped attention layer was called and what it gave."""
    calls: dict[str, Call] = {}
    handles = []
    for name, module in teacher.named_modules():
        if NAME not in module._modules:
            continue

        def keep(_module: nn.Module, args: Any, kwargs: Any, output: Any, name: str = name) -> None:
            calls[name] = Call(args, kwargs, output[0] if isinstance(output, tuple) else output)

        handles.append(module.register_forward_hook(keep, with_kwargs=True))
    try:
        with torch.no_grad():
            teacher(**given)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def relative_error(
    output: Float[Tensor, "batch tokens width"],
    goal: Float[Tensor, "batch tokens width"],
    keep: Int[Tensor, "batch tokens"] | None,
) -> Float[Tensor, ""]:
    """|output - goal|^2 / |goal|^2 over real tokens."""
    if keep is not None:
        output, goal = output[keep.bool()], goal[keep.bool()]
    if goal.dtype != torch.float64:
        output, goal = output.float(), goal.float()
    return (output - goal).square().mean() / goal.square().mean().clamp_min(LEAST_SIZE)


class LayerwiseLoss:
    """Every swapped layer learns alone to give what the teacher's gives for the same input.

    Formula: mean over l of |f_l(x_l) - g_l(x_l)|^2 / |g_l(x_l)|^2 over real tokens.

    Symbols: g_l is the teacher's attention layer l, x_l what it got, f_l the model's layer; both
    are taken before the output projection. Only the attention layers get gradients:
    projections of queries, keys and values, and a mechanism's own parameters. No error of a lower
    layer reaches a higher one, and no feed-forward network is run for the model.

    Source: Zhang et al., 2024, arXiv 2410.10254 (attention transfer by outputs). What differs:
    errors are relative to each layer's own size, so that layers count alike; all projections
    learn, not only the feature maps. Nothing is dropped out meanwhile: a layer that is the
    teacher's already has nothing to learn.
    """

    def __init__(self, teacher: nn.Module) -> None:
        self.teacher: nn.Module | None = teacher

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The mean over the swapped layers."""
        return torch.stack([*self.errors(model, batch).values()]).mean()

    def errors(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each layer's squared relative error."""
        assert self.teacher is not None
        given = {name: value for name, value in batch.items() if name != "labels"}
        keep = given.get("attention_mask")
        errors = {}
        with evaluating(model):
            for name, call in calls_of(self.teacher, given).items():
                output = model.get_submodule(name)(*call.args, **call.kwargs)
                output = output[0] if isinstance(output, tuple) else output
                errors[name] = relative_error(output, call.output, keep)
        if not errors:
            raise UsageError("the teacher has no swapped layer to learn from")
        return errors

    def describe(self) -> dict[str, Any]:
        """What is followed; the teacher's structure is described by the training itself."""
        return {"objective": "attention outputs, layer by layer"}


def layer_errors(
    teacher: nn.Module, model: nn.Module, batches: Iterable[Mapping[str, Tensor]]
) -> dict[str, float]:
    """Each layer's |error| / |output| for the teacher's own inputs, over all batches."""
    loss = LayerwiseLoss(teacher)
    sums: dict[str, list[float]] = {}
    with torch.no_grad():
        for batch in batches:
            for name, error in loss.errors(model, batch).items():
                sums.setdefault(name, []).append(float(error))
    if not sums:
        raise UsageError("layer_errors needs at least one batch")
    return {name: (sum(values) / len(values)) ** 0.5 for name, values in sums.items()}
