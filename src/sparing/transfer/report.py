"""The result of a swap: which layers changed, which did not and why, which weights are new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from transformers import PreTrainedModel

from sparing.core.catalogue import mechanism_class
from sparing.core.options import option_defaults
from sparing.core.printing import fitted_lines
from sparing.transfer.distance import Distance, distance_of_swap


@dataclass(frozen=True)
class SwappedLayer:
    """One layer that has a mechanism now.

    ``untrained`` counts its new parameters that start at random, by name. ``unused`` names the
    projections that are not read any more. ``dropout_off`` is the share of attention weights that
    the layer used to drop and the mechanism cannot (0 where nothing changed). ``change`` says what
    becomes of the layer's bias by distance or its sliding window; empty where it has neither.
    """

    index: int
    name: str
    mechanism: str
    options: dict[str, Any]
    tokens: int | None
    untrained: dict[str, int]
    unused: tuple[str, ...]
    dropout_off: float
    change: str = ""


@dataclass(frozen=True)
class LeftLayer:
    """One attention layer that keeps transformers' own attention, and why; no index for cross."""

    index: int | None
    name: str
    reason: str


@dataclass(frozen=True)
class SwapReport:
    """The result of ``sparing.swap``; print it, or use ``to_dict()``.

    ``distance(batches)`` measures the difference from the original before any training.
    """

    model_class: str
    swapped: tuple[SwappedLayer, ...]
    left: tuple[LeftLayer, ...]
    _model: PreTrainedModel = field(repr=False, compare=False)

    @property
    def untrained_params(self) -> int:
        """How many new parameters have to be trained."""
        return sum(sum(layer.untrained.values()) for layer in self.swapped)

    def distance(self, batches: Iterable[Mapping[str, Any]]) -> Distance:
        """The distance of the swapped model from the same model with its own attention.

        ``batches`` are a few dictionaries of the model's inputs.
        """
        return distance_of_swap(self._model, batches)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "model_class": self.model_class,
            "swapped": [asdict(layer) for layer in self.swapped],
            "left": [asdict(layer) for layer in self.left],
            "untrained_params": self.untrained_params,
        }

    def __str__(self) -> str:
        """At most 40 lines, the same layers together."""
        lines = [f"{self.model_class}: {len(self.swapped)} layers swapped, {len(self.left)} left"]
        lines += _grouped(
            (layer.index, f"{layer.mechanism}{_settings(layer)}{_change(layer)}", layer.name)
            for layer in self.swapped
        )
        lines += _grouped((layer.index, f"left: {layer.reason}", layer.name) for layer in self.left)
        if self.untrained_params:
            names = sorted({name for layer in self.swapped for name in layer.untrained})
            lines.append(f"  untrained: {self.untrained_params:,} parameters ({', '.join(names)})")
        unused = [name for layer in self.swapped for name in layer.unused]
        if unused:
            lines.append(f"  unused: {', '.join(unused)}")
        off = sorted({layer.dropout_off for layer in self.swapped if layer.dropout_off})
        if off:
            shares = ", ".join(f"{share:g}" for share in off)
            lines.append(f"  attention dropout is off in swapped layers (it was {shares})")
        return fitted_lines(lines)


def _settings(layer: SwappedLayer) -> str:
    usual = option_defaults(mechanism_class(layer.mechanism))
    settings = {name: value for name, value in layer.options.items() if value != usual[name]}
    settings |= {"tokens": layer.tokens} if layer.tokens else {}
    shown = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"({shown})" if shown else ""


def _change(layer: SwappedLayer) -> str:
    return f", {layer.change}" if layer.change else ""


def _grouped(rows: Iterable[tuple[int | None, str, str]]) -> list[str]:
    """One line for each kind of layer: its numbers, its description, and the first one's name."""
    groups: dict[str, list[tuple[int | None, str]]] = {}
    for index, what, name in rows:
        groups.setdefault(what, []).append((index, name))
    lines = []
    for what, members in groups.items():
        numbers = ", ".join("cross" if index is None else str(index) for index, _ in members)
        more = f" and {len(members) - 1} more" if len(members) > 1 else ""
        lines.append(f"  {numbers}: {what} [{members[0][1]}{more}]")
    return lines
