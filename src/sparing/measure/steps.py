"""The matrix products of a call, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sparing.measure.flops import all_formulas, no_shortcuts, raw


@dataclass(frozen=True)
class Step:
    """A kind of operation with its operands' shapes, how often it ran, and the cost of all runs."""

    operation: str
    shapes: tuple[tuple[int, ...], ...]
    calls: int
    flops: int

    def describe(self) -> str:
        """The step in words, such as ``bmm (12, 64, 1024) (12, 1024, 64), 3 calls``."""
        shapes = " ".join(str(shape) for shape in self.shapes)
        return f"{self.operation} {shapes}{f', {self.calls} calls' * (self.calls > 1)}"


def count_steps(call: Callable[[], object]) -> list[Step]:
    """The products of one call, equal ones merged at their first position; see ``count_flops``."""
    counts: dict[tuple[str, tuple[tuple[int, ...], ...]], tuple[int, int]] = {}

    def noting(operation: Any, formula: Callable[..., int]) -> Callable[..., int]:
        def counted(*operands: Any, **options: Any) -> int:
            flops = formula(*operands, **options)
            tensors = (part for part in operands if isinstance(part, Tensor))
            shapes = tuple(tuple(part.shape) for part in tensors)
            kind = _name(operation), shapes
            calls, sum_so_far = counts.get(kind, (0, 0))
            counts[kind] = calls + 1, sum_so_far + int(flops)
            return flops

        return raw(counted)

    formulas = {op: noting(op, formula) for op, formula in all_formulas().items()}
    with no_shortcuts(), FlopCounterMode(display=False, custom_mapping=formulas):
        call()
    return [Step(*kind, *sums) for kind, sums in counts.items()]


def _name(operation: Any) -> str:
    """The operator's own name; every fused kernel is called attention."""
    name = str(operation).rpartition(".")[2]
    return "attention" if "scaled_dot_product" in name else name
