"""The cost of an adaptive encoder on an input: depth, widths, tokens, and early exits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from sparing.core.errors import UsageError, nearest

CONFIDENCES = ("softmax", "learned")
TUPLES = ("heads", "neurons", "exits", "narrow_heads", "narrow_neurons")
FIRST_FIELDS = 7


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of one encoder layer: heads, their widths, and feed-forward neurons.

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

    ``heads`` and ``neurons`` are those kept in each layer, so their length is the depth. ``exits``
    are the layers (counted from 1) after which an input leaves when its confidence is above
    ``threshold`` (1: never). After layer ``tokens_after`` each sequence keeps the ``tokens_kept``
    share of its tokens that receive most attention (rounded up, always with the first). Of these it
    keeps only those that receive at least ``tokens_above`` times an even share.

    ``narrow_above`` (1: never) is compared with the confidence after layer ``narrow_after``. Inputs
    above it that do not leave there run the later layers with ``narrow_heads`` and
    ``narrow_neurons``: one count for each of these layers, none larger than the others' own.

    ``confidence`` is compared with both thresholds. "softmax" is the largest of the class
    probabilities at that exit. "learned" is the probability that the exit's answer is the whole
    model's, from a head that ``fit_confidence`` makes. ``gated`` plans drop tokens by the model's
    gates (``layers.gates``) instead of by a share.
    """

    heads: tuple[int, ...]
    neurons: tuple[int, ...]
    exits: tuple[int, ...] = ()
    threshold: float = 1.0
    tokens_kept: float = 1.0
    tokens_above: float = 0.0
    tokens_after: int = 2
    narrow_heads: tuple[int, ...] = ()
    narrow_neurons: tuple[int, ...] = ()
    narrow_after: int = 0
    narrow_above: float = 1.0
    confidence: str = "softmax"
    gated: bool = False

    def __post_init__(self) -> None:
        if not self.heads or len(self.heads) != len(self.neurons):
            raise UsageError(
                f"a plan needs heads and neurons for the same layers; got {len(self.heads)} and "
                f"{len(self.neurons)}"
            )
        if min(self.heads) < 1 or min(self.neurons) < 1:
            raise UsageError("a plan keeps at least one head and one neuron in each layer")
        if not 0 < self.tokens_kept <= 1:
            raise UsageError(f"tokens_kept must be in (0, 1]; got {self.tokens_kept}")
        if not 0 <= self.threshold <= 1 or not self.tokens_above >= 0:
            raise UsageError("threshold must be in [0, 1] and tokens_above not negative")
        if self.tokens_after < 1 or any(not 1 <= layer <= self.layers for layer in self.exits):
            raise UsageError(f"exits and tokens_after are layers from 1 to {self.layers}")
        self._check_narrow()
        if self.gated and (self.tokens_kept < 1 or self.tokens_above > 0):
            raise UsageError("a plan drops tokens by gates, or by tokens_kept and tokens_above")
        if self.confidence not in CONFIDENCES:
            raise UsageError(
                f"a plan's confidence is {' or '.join(CONFIDENCES)}; got {self.confidence!r}"
                f"{nearest(str(self.confidence), CONFIDENCES)}"
            )

    def _check_narrow(self) -> None:
        """Raise ``UsageError`` where the narrower widths do not fit the plan."""
        if not 0 <= self.narrow_above <= 1 or not 0 <= self.narrow_after < self.layers:
            raise UsageError(
                f"narrow_above must be in [0, 1] and narrow_after from 0 (never) to "
                f"{self.layers - 1}, the last layer but one; got {self.narrow_above} and "
                f"{self.narrow_after}"
            )
        rest = self.layers - self.narrow_after if self.narrow_after else 0
        if len(self.narrow_heads) != rest or len(self.narrow_neurons) != rest:
            raise UsageError(
                f"narrow_heads and narrow_neurons need one count for each of the {rest} layers "
                f"after narrow_after; got {len(self.narrow_heads)} and {len(self.narrow_neurons)}"
            )
        pairs = [
            *zip(self.narrow_heads, self.heads[self.narrow_after :], strict=False),
            *zip(self.narrow_neurons, self.neurons[self.narrow_after :], strict=False),
        ]
        if any(not 1 <= few <= many for few, many in pairs):
            raise UsageError(
                "narrow_heads and narrow_neurons must be from 1 to the plan's counts in that layer"
            )

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
    def narrows(self) -> bool:
        """Whether inputs may go on narrower."""
        return self.narrow_after > 0 and self.narrow_above < 1

    @cached_property
    def narrower(self) -> Plan:
        """The plan of narrower inputs, without the choice."""
        if not self.narrow_after:
            return self
        heads = self.heads[: self.narrow_after] + self.narrow_heads
        neurons = self.neurons[: self.narrow_after] + self.narrow_neurons
        return replace(self.wider, heads=heads, neurons=neurons)

    @cached_property
    def wider(self) -> Plan:
        """The plan of the other inputs, without the choice."""
        return replace(self, narrow_heads=(), narrow_neurons=(), narrow_after=0, narrow_above=1.0)

    @cached_property
    def without_choice(self) -> Plan:
        """The widest and deepest run of an input: no early exit, no narrower part."""
        return replace(self.wider, exits=(), threshold=1.0)

    @cached_property
    def computed_exits(self) -> tuple[int, ...]:
        """The layers with computed exit heads, the last one included, in their order."""
        narrow = (self.narrow_after,) if self.narrows else ()
        return tuple(sorted({*self.stops, *narrow, self.layers}))

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """The layers after which an input can leave before the end, in their order."""
        if self.threshold >= 1:
            return ()
        return tuple(sorted({layer for layer in self.exits if layer < self.layers}))

    def lets_all_leave(self, classes: int) -> bool:
        """Whether all inputs but ties leave at its first exit.

        The confidence is never below 1 / ``classes``.
        """
        return bool(self.stops) and self.confidence == "softmax" and self.threshold * classes <= 1

    def shortened(self, layers: int) -> Plan:
        """The same plan with ``layers`` layers; exits after them are left out.

        Raises ``UsageError`` for more layers than it has, or none.
        """
        if not 1 <= layers <= self.layers:
            raise UsageError(f"the plan has {self.layers} layers, not {layers}")
        plan = self if layers > self.narrow_after else self.wider
        after = plan.narrow_after
        rest = layers - after if after else 0
        return replace(
            plan,
            heads=plan.heads[:layers],
            neurons=plan.neurons[:layers],
            exits=tuple(layer for layer in plan.exits if layer <= layers),
            narrow_heads=plan.narrow_heads[:rest],
            narrow_neurons=plan.narrow_neurons[:rest],
        )

    def check_fits(self, sizes: Sequence[LayerSizes]) -> None:
        """Raise ``UsageError`` when the plan needs more than the layers have."""
        if self.layers > len(sizes):
            raise UsageError(f"the plan has {self.layers} layers, the model {len(sizes)}")
        for number, size in enumerate(sizes[: self.layers], start=1):
            needed = (self.heads[number - 1], self.neurons[number - 1])
            if needed[0] > size.heads or needed[1] > size.neurons:
                raise UsageError(
                    f"the plan needs {needed[0]} heads and {needed[1]} neurons in layer "
                    f"{number}, which has {size.heads} and {size.neurons}"
                )

    def to_dict(self) -> dict[str, Any]:
        """For JSON; later fields are left out at their defaults, for older readers."""
        later = {entry.name: entry.default for entry in fields(self)[FIRST_FIELDS:]}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name not in later or value != later[name]
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Plan:
        """The inverse of ``to_dict``; raises ``UsageError`` for anything else."""
        try:
            needed = {name: content[name] for name in TUPLES[:3]}
            given = {**needed, **{name: content[name] for name in TUPLES if name in content}}
            lists = {name: tuple(counts) for name, counts in given.items()}
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
        raise UsageError(f"a share in (0, 1] and 1 to {len(sizes)} layers; got {share}, {depth}")
    chosen = sizes[:depth]
    return Plan(
        tuple(max(1, round(size.heads * share)) for size in chosen),
        tuple(_in_eights(size.neurons, share) for size in chosen),
    )


def narrowing(plan: Plan, share: float, *, after: int, above: float) -> Plan:
    """The plan in which confident inputs go on with a share of its heads and neurons.

    Their confidence after layer ``after`` is above ``above``; counts are rounded as in
    ``narrowed``. Raises ``UsageError`` for a share outside (0, 1] and a layer that no other
    follows.
    """
    if not 0 < share <= 1 or not 1 <= after < plan.layers:
        raise UsageError(
            f"a share in (0, 1] after one of layers 1 to {plan.layers - 1}; got {share}, {after}"
        )
    return replace(
        plan,
        narrow_heads=tuple(max(1, round(count * share)) for count in plan.heads[after:]),
        narrow_neurons=tuple(_in_eights(count, share) for count in plan.neurons[after:]),
        narrow_after=after,
        narrow_above=above,
    )


def _in_eights(count: int, share: float) -> int:
    """Matrix kernels work on whole vectors of eight."""
    return count if share == 1 else min(count, max(1, 8 * round(count * share / 8)))
