"""The shape that a mechanism is built for."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.errors import UsageError


@dataclass(frozen=True)
class Heads:
    """The number and width of a mechanism's heads.

    ``count`` heads of ``dim`` features each. ``width`` is the width of the layer's input (count x
    dim unless given). ``tokens`` is the longest sequence, for mechanisms with parameters for each
    position; others ignore it.
    """

    count: int
    dim: int
    width: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("count", "dim", "width", "tokens"):
            value = getattr(self, name)
            if value is None and name in ("width", "tokens"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UsageError(f"Heads({name}=...) must be a positive integer; got {value!r}")
        if self.width is None:
            object.__setattr__(self, "width", self.count * self.dim)
