"""State and results of a pass through an adaptive encoder."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.layers.packing import Packed


@dataclass(frozen=True)
class Spent:
    """The answers, and the layer after which each input left."""

    logits: Float[Tensor, "batch classes"]
    layers: Int[Tensor, " batch"]


@dataclass(frozen=True)
class Trace:
    """The results of a pass without early exits.

    ``answers`` are the logits at every exit, by layer, and ``pooled`` the inputs of the heads
    there. ``states`` are the rows before the first layer and each layer's output, before tokens are
    dropped; ``lengths`` are the tokens of each input in each layer. All are in the inputs' own
    order, narrower inputs included. ``open`` holds, after each gate of a soft pass, the degree to
    which each row was still open.
    """

    answers: dict[int, Float[Tensor, "batch classes"]]
    pooled: dict[int, Float[Tensor, "batch width"]]
    states: list[Float[Tensor, "_ width"]]
    lengths: list[Int[Tensor, " batch"]]
    open: list[Float[Tensor, " rows"]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Group:
    """Inputs that run together: their indices in the batch, their rows, and their layout."""

    index: Int[Tensor, " inputs"]
    rows: Float[Tensor, "_ width"]
    layout: Packed

    def those(self, chosen: Bool[Tensor, " inputs"]) -> Group:
        """Some of them."""
        rows, layout = self.layout.stay(self.rows, chosen)
        return Group(self.index[chosen], rows, layout)


@dataclass(frozen=True, eq=False)
class Results:
    """The results so far, written in place; ``flops`` and ``narrow`` only for an open log."""

    logits: Float[Tensor, "batch classes"]
    layers: Int[Tensor, " batch"]
    flops: Float[Tensor, " batch"] | None
    narrow: Bool[Tensor, " batch"]

    def take(self, index: Int[Tensor, " inputs"], logits: Tensor, number: int) -> None:
        """The answers of inputs that leave after a layer."""
        self.logits[index] = logits.to(self.logits.dtype)
        self.layers[index] = number


def joined(before: Trace, narrow: Trace, wide: Trace, chosen: Bool[Tensor, " batch"]) -> Trace:
    """One trace of the layers before the two ways and of both; chosen inputs go the narrow way."""
    lengths = [_mixed(*pair, chosen) for pair in zip(narrow.lengths, wide.lengths, strict=True)]
    states = [
        _mixed(few, many, chosen.repeat_interleave(counts))
        for few, many, counts in zip(narrow.states[1:], wide.states[1:], lengths, strict=True)
    ]
    return Trace(
        before.answers
        | {n: _mixed(narrow.answers[n], wide.answers[n], chosen) for n in wide.answers},
        before.pooled | {n: _mixed(narrow.pooled[n], wide.pooled[n], chosen) for n in wide.pooled},
        before.states + states,
        before.lengths + lengths,
    )


def _mixed(few: Tensor, many: Tensor, chosen: Bool[Tensor, " rows"]) -> Tensor:
    """Rows of two tensors: those of the first where chosen, of the second elsewhere, in order."""
    mixed = many.new_empty(len(chosen), *many.shape[1:])
    mixed[chosen], mixed[~chosen] = few.to(many.dtype), many
    return mixed
