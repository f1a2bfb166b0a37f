"""Linformer's projections for longer inputs than they were trained on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.mechanisms.linformer import Linformer
from sparing.transfer.positions import interpolated

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Way = Literal["sliced", "interpolated"]
AS_MANY_SLOTS = "as many slots"
PROJECTIONS = ("key_projection", "value_projection")


def projection(
    old: Float[Tensor, "*heads slots short"], fresh: Float[Tensor, "*heads slots long"], way: Way
) -> Float[Tensor, "*heads slots long"]:
    """A trained projection for longer inputs.

    "sliced" keeps its columns and appends those of the fresh one. "interpolated" interpolates along
    the tokens and scales, so that a constant sequence keeps its slots.
    """
    short, long = old.shape[-1], fresh.shape[-1]
    if way == "sliced":
        return torch.cat((old, fresh[..., short:]), -1)
    flat = old.reshape(-1, short).T
    stretched = interpolated(flat, long).T * (short / long)
    return stretched.reshape(*old.shape[:-1], long)


def other_form(model: PreTrainedModel, short: int, long: int) -> tuple[str, PreTrainedModel] | None:
    """The other form of a Linformer on inputs of ``long`` tokens: its name, and a changed copy.

    The model was built for at least ``long`` tokens and trained on ``short``. Projections by
    position are "interpolated" from the trained columns. Means over segments of tokens get longer
    segments, for "as many slots" as in training; unchanged, they have more slots and a quadratic
    cost. None for a model that has neither.
    """
    longer = copy.deepcopy(model)
    words = {
        _lengthened(module, short, long)
        for module in longer.modules()
        if isinstance(module, Linformer)
    } - {""}
    return (words.pop(), longer) if words else None


@torch.no_grad()
def _lengthened(mechanism: Linformer, short: int, long: int) -> str:
    """Change the mechanism itself, and return the form's name; "" where nothing changes."""
    if mechanism.projection == "mean_pool":
        mechanism.stride = -(-mechanism.stride * long // short)
        return AS_MANY_SLOTS
    if mechanism.projection == "convolution":
        return ""
    for name in PROJECTIONS:
        value = getattr(mechanism, name)
        if value is not None:
            value[..., :long] = projection(value[..., :short], value[..., :long], "interpolated")
    return "interpolated"
