"""Linformer's projections for longer inputs than they were trained on."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.transfer.positions import interpolated

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Way = Literal["sliced", "interpolated"]
PROJECTIONS = ("key_projection", "value_projection")


def projection(
    old: Float[Tensor, "*heads slots short"], fresh: Float[Tensor, "*heads slots long"], way: Way
) -> Float[Tensor, "*heads slots long"]:
    """A trained projection for longer inputs.

    "sliced" keeps its columns and puts those of the fresh one behind; "interpolated" stretches it
    along the tokens and scales it, so that a constant sequence keeps its slots.
    """
    short, long = old.shape[-1], fresh.shape[-1]
    if way == "sliced":
        return torch.cat((old, fresh[..., short:]), -1)
    flat = old.reshape(-1, short).T
    stretched = interpolated(flat, long).T * (short / long)
    return stretched.reshape(*old.shape[:-1], long)


def stretched(model: PreTrainedModel, short: int, long: int) -> PreTrainedModel | None:
    """A copy whose projections of ``short`` tokens are interpolated to ``long``.

    Of a model that was built for ``long`` tokens at least and trained on ``short``, so that columns
    beyond are as they were drawn: of inputs up to ``long`` they are used no more. None where
    nothing in the model is projected by place.
    """
    longer = copy.deepcopy(model)
    places = [value for name, value in longer.named_parameters() if name.endswith(PROJECTIONS)]
    with torch.no_grad():
        for value in places:
            value[..., :long] = projection(value[..., :short], value[..., :long], "interpolated")
    return longer if places else None
