"""One vector for each input: pooled rows, linear layers, and a length of 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.layers.packing import Layout, mean_of_all

POOLINGS = ("mean", "cls")
ACTIVATIONS: Mapping[str, Any] = {"identity": nn.Identity(), "tanh": torch.tanh}
Rows = Float[Tensor, "*rows width"]


@dataclass(frozen=True)
class VectorForm:
    """The form of every head that makes a vector of ``width`` channels.

    ``pooling`` is the mean of all tokens or the class token. ``layers`` are the linear ones after
    it, as (outputs, activation, whether there is a bias). ``unit`` vectors are divided by their
    length. ``norm_epsilon`` is that of the norm behind the last layer of families that have one.
    """

    width: int
    pooling: str = "mean"
    layers: tuple[tuple[int, str, bool], ...] = ()
    unit: bool = False
    norm_epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise UsageError(f"pooling is {' or '.join(POOLINGS)}; got {self.pooling!r}")
        for _, activation, _ in self.layers:
            if activation not in ACTIVATIONS:
                known = ", ".join(ACTIVATIONS)
                raise UsageError(f"an activation of a vector's layer is {known}; got {activation}")

    @classmethod
    def from_dict(
        cls, entry: Mapping[str, Any], width: int, norm_epsilon: float | None = None
    ) -> VectorForm:
        """The form of a configuration's entry."""
        layers = tuple((int(size), str(name), bool(bias)) for size, name, bias in entry["layers"])
        return cls(width, str(entry["pooling"]), layers, bool(entry["unit"]), norm_epsilon)

    @property
    def entry(self) -> Mapping[str, Any]:
        """What a configuration states of it."""
        layers = [list(layer) for layer in self.layers]
        return {"vector": {"pooling": self.pooling, "layers": layers, "unit": self.unit}}

    @property
    def averages(self) -> bool:
        """Whether the head reads all tokens."""
        return self.pooling == "mean"

    @property
    def least_tokens(self) -> int:
        """How many tokens of an input must remain for the head to read."""
        return 1

    @property
    def classes(self) -> int:
        """How many numbers a vector has."""
        return self.layers[-1][0] if self.layers else self.width

    def build(self) -> VectorHead:
        """A head of this form."""
        return VectorHead(self)


class VectorHead(nn.Module):
    """A vector from an input's rows; every depth that a plan may end at has one.

    ``mix`` is a linear layer of its own, which begins as the identity: after fewer layers the rows
    mean something else, and it learns what.
    """

    def __init__(self, form: VectorForm) -> None:
        super().__init__()
        self.form = form
        epsilon = form.norm_epsilon
        self.norm = None if epsilon is None else nn.LayerNorm(form.width, eps=epsilon)
        self.mix = nn.Linear(form.width, form.width)
        widths = (form.width, *(size for size, _, _ in form.layers))
        pairs: Sequence[Any] = list(zip(widths, form.layers, strict=False))
        self.linears = nn.ModuleList(
            nn.Linear(width, size, bias=bias) for width, (size, _, bias) in pairs
        )
        with torch.no_grad():
            nn.init.eye_(self.mix.weight)
            nn.init.zeros_(self.mix.bias)

    @property
    def flops(self) -> int:
        """FLOPs of its matrix products for one input; a multiply-add is 2."""
        linears: list[Any] = [self.mix, *self.linears]
        return sum(2 * int(linear.weight.numel()) for linear in linears)

    def normed(self, rows: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """The rows as the model gives them at its end: normed, where its family does that."""
        return rows if self.norm is None else self.norm(rows)

    def pool(self, rows: Tensor, layout: Layout) -> Float[Tensor, "batch width"]:
        """The mean of each input's rows, or its first."""
        rows = self.normed(rows)
        return layout.first(rows) if self.form.pooling == "cls" else mean_of_all(rows, layout)

    def forward(self, pooled: Float[Tensor, "batch width"]) -> Float[Tensor, "batch numbers"]:
        """The vectors of a result of ``pool``."""
        vector: Tensor = self.mix(pooled)
        for linear, (_, activation, _) in zip(self.linears, self.form.layers, strict=True):
            vector = ACTIVATIONS[activation](linear(vector))
        return nn.functional.normalize(vector, dim=-1) if self.form.unit else vector
