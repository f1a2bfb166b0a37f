"""What an adaptive encoder spends on an input: depth, widths, tokens, and when it may stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparing.core.errors import UsageError


@dataclass(frozen=True)
class LayerSizes:
    """What one encoder layer has: heads, their widths, and feed-forward neurons.

    ``query_dim`` is the width of a head's queries and keys, ``value_dim`` that of its values.
    """

    heads: int
    query_dim: int
    value_dim: int
    neurons: int

    def to_list(self) -> list[int]:
        """For JSON."""
        return [self.heads, self.query_dim, self.value_dim, self.neurons]


@dataclass(frozen=True)
class Plan:
    """How much of each layer to run, and for how long.

    ``heads`` and ``neurons`` are those kept in each layer, so their length is the depth.
    ``exits`` are the layers (counted from 1) after which an input leaves when the largest of its
    class probabilities is above ``threshold`` (1: never). After layer ``tokens_after`` each
    sequence keeps the ``tokens_kept`` share of its tokens that receive most attention (rounded up,
    the first always among them), and of these only those that receive at least ``tokens_above``
    times an even share.
    """

    heads: tuple[int, ...]
    neurons: tuple[int, ...]
    exits: tuple[int, ...] = ()
    threshold: float = 1.0
    tokens_kept: float = 1.0
    tokens_above: float = 0.0
    tokens_after: int = 2

    def __post_init__(self) -> None:
        if not self.heads or len(self.heads) != len(self.neurons):
            raise UsageError(
                f"a plan needs heads and neurons for the same layers, got {len(self.heads)} and "
                f"{len(self.neurons)}"
            )
        if min(self.heads) < 1 or min(self.neurons) < 1:
            raise UsageError("a plan keeps at least one head and one neuron in each layer")
        if not 0 < self.tokens_kept <= 1:
            raise UsageError(f"tokens_kept must be in (0, 1], got {self.tokens_kept}")
        if not 0 <= self.threshold <= 1 or not self.tokens_above >= 0:
            raise UsageError("threshold must be in [0, 1] and tokens_above not negative")
        if self.tokens_after < 1 or any(not 1 <= layer <= self.layers for layer in self.exits):
            raise UsageError(f"exits and tokens_after are layers from 1 to {self.layers}")

    @property
    def layers(self) -> int:
        """The depth."""
        return len(self.heads)

    @property
    def drops_tokens(self) -> bool:
        """Whether tokens are dropped on the way."""
        fewer = self.tokens_kept < 1 or self.tokens_above > 0
        return fewer and self.tokens_after < self.layers

    @property
    def stops(self) -> tuple[int, ...]:
        """The layers after which an input may really leave before the end, in their order."""
        if self.threshold >= 1:
            return ()
        return tuple(sorted({layer for layer in self.exits if layer < self.layers}))

    def check_fits(self, sizes: Sequence[LayerSizes]) -> None:
        """Raise ``UsageError`` when the plan asks for more than the layers have."""
        if self.layers > len(sizes):
            raise UsageError(f"the plan has {self.layers} layers, the model {len(sizes)}")
        for number, size in enumerate(sizes[: self.layers], start=1):
            wanted = (self.heads[number - 1], self.neurons[number - 1])
            if wanted[0] > size.heads or wanted[1] > size.neurons:
                raise UsageError(
                    f"the plan asks for {wanted[0]} heads and {wanted[1]} neurons in layer "
                    f"{number}, which has {size.heads} and {size.neurons}"
                )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Plan:
        """What ``to_dict`` gave; raises ``UsageError`` for anything else."""
        try:
            lists = {name: tuple(content[name]) for name in ("heads", "neurons", "exits")}
            if not all(isinstance(count, int) for counts in lists.values() for count in counts):
                raise TypeError("heads, neurons and exits are whole numbers")
            return cls(**{**content, **lists})
        except (TypeError, KeyError) as error:
            raise UsageError(f"not a plan: {error}") from error


def full_plan(sizes: Sequence[LayerSizes]) -> Plan:
    """Everything: the dense model."""
    return Plan(tuple(size.heads for size in sizes), tuple(size.neurons for size in sizes))


def narrowed(sizes: Sequence[LayerSizes], share: float, layers: int | None = None) -> Plan:
    """The plan that keeps a share of every layer's heads and neurons, and the first layers.

    Shares are rounded to whole heads and to whole eights of neurons, at least one of each.
    """
    depth = len(sizes) if layers is None else layers
    if not 0 < share <= 1 or not 1 <= depth <= len(sizes):
        raise UsageError(f"a share in (0, 1] and 1 to {len(sizes)} layers, got {share}, {depth}")
    chosen = sizes[:depth]
    return Plan(
        tuple(max(1, round(size.heads * share)) for size in chosen),
        tuple(_in_eights(size.neurons, share) for size in chosen),
    )


def _in_eights(count: int, share: float) -> int:
    """Matrix kernels work on whole vectors of eight."""
    return count if share == 1 else min(count, max(1, 8 * round(count * share / 8)))
