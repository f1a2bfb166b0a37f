"""Shared by several networks: slopes, positions, and initial weights as in the published code."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from sparing.core.errors import UsageError, require_choice
from sparing.tasks.arithmetic import ABSENT
from sparing.tasks.arithmetic import SLOTS as SLOTS

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "linear": lambda x: x,
}


class Slopes(nn.Module):
    """PReLU with a separate slope for every element of ``shape``, all 0 at first.

    Source: He et al., 2015, arXiv 1502.01852, equation 1. As in Keras each unit, and each unit at
    each step, has its own slope, and begins as ReLU.
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(*shape))

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The positive part, and the negative one times its slope."""
        return x.clamp(min=0) + self.slope * x.clamp(max=0)


class Activation(nn.Module):
    """A function without weights."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function to each number."""
        return ACTIVATIONS[self.name](x)

    def extra_repr(self) -> str:
        """Its name."""
        return self.name


def activation(name: str, *shape: int) -> nn.Module:
    """prelu with slopes of that shape, relu, tanh, gelu or linear."""
    require_choice("predictor", "activation", name, ("prelu", *ACTIVATIONS))
    return Slopes(*shape) if name == "prelu" else Activation(name)


def dense(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with weights after Glorot and Bengio (2010), bias 0, as in Keras."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def recurrent(units: int, outputs: int) -> nn.Linear:
    """A linear layer of the last state, orthogonal at first and without a bias, as in Keras."""
    layer = nn.Linear(units, outputs, bias=False)
    nn.init.orthogonal_(layer.weight)
    return layer


def positions(slots: int, width: int) -> Float[Tensor, "slots width"]:
    """Sinusoidal positions (Vaswani et al., 2017, arXiv 1706.03762, section 3.5).

    Even features are sines, odd ones cosines; of one feature, the sine of the position itself.
    """
    position = torch.arange(slots, dtype=torch.float32)[:, None]
    pair = torch.arange(0, width, 2, dtype=torch.float32)
    angle = position * torch.exp(-math.log(10000.0) * pair / width)
    table = torch.zeros(slots, width)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : width // 2]
    return table


def present(values: Float[Tensor, "batch slots"]) -> Bool[Tensor, "batch slots"]:
    """Which slots hold a number or an operator: the code 0.5 marks missing ones."""
    return values != ABSENT


def operands(
    values: Float[Tensor, "batch slots"],
) -> tuple[Float[Tensor, "batch numbers"], Float[Tensor, "batch numbers"]]:
    """The numbers, and the code of the operator before each: + before the first."""
    numbers, codes = values[:, 0::2], values[:, 1::2]
    return numbers, torch.cat([torch.ones_like(numbers[:, :1]), codes], 1)


def one_bias(layer: nn.RNNBase, *, forget: bool = False) -> nn.RNNBase:
    """A recurrent layer as in Keras: one bias, which is 0 (1 for the forget gate of an LSTM).

    Input weights are after Glorot, recurrent ones orthogonal. PyTorch has a second bias: it stays 0
    and is not trained. (Keras's own GRU trains a second one inside the reset gate.)
    """
    for name, weight in layer.named_parameters():
        if "weight_ih" in name:
            nn.init.xavier_uniform_(weight)
        elif "weight_hh" in name:
            nn.init.orthogonal_(weight)
        else:
            nn.init.zeros_(weight)
            if "bias_hh" in name:
                weight.requires_grad_(False)
            elif forget:
                with torch.no_grad():
                    weight[layer.hidden_size : 2 * layer.hidden_size] = 1
    return layer


def check_counts(name: str, **counts: int) -> None:
    """Raise ``UsageError`` for a size below 1."""
    for option, count in counts.items():
        if count < 1:
            raise UsageError(f"predictor {name}: {option} must be at least 1; got {count}")


def dropout(name: str, share: float) -> nn.Dropout:
    """Dropout; raises ``UsageError`` for a share outside [0, 1)."""
    if not 0 <= share < 1:
        raise UsageError(f"predictor {name}: dropout must be in [0, 1); got {share}")
    return nn.Dropout(share)
