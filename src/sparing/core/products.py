"""The matrix products of a mechanism's formula: their shapes and how many operations they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FLOPS_OF_A_TERM = 2  # a multiplication and an addition


@dataclass(frozen=True)
class Product:
    """``left`` (rows, inner) times ``right`` (inner, columns), for every head.

    Sizes are symbols such as "n". ``says`` is what the result is, or what becomes of it.
    """

    left: str
    right: str
    result: str
    rows: str
    inner: str
    columns: str
    says: str = ""

    @property
    def sizes(self) -> tuple[str, str, str]:
        """Rows, inner size and columns."""
        return self.rows, self.inner, self.columns


@dataclass(frozen=True)
class Products:
    """The products of one call in their order, with the number of each symbol and its meaning."""

    steps: tuple[Product, ...]
    sizes: Mapping[str, int]
    meanings: Mapping[str, str]

    def flops(self, step: Product) -> int:
        """Additions and multiplications of one step for one head."""
        rows, inner, columns = (self.sizes[symbol] for symbol in step.sizes)
        return FLOPS_OF_A_TERM * rows * inner * columns

    @property
    def total(self) -> int:
        """Those of all steps for one head."""
        return sum(map(self.flops, self.steps))
