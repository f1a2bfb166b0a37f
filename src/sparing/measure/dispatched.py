"""Operations that one call of a mechanism launches, and the bytes they move: no device is needed.

On the device "meta" every operation runs without values. So both counts are the same on every
machine, and show what a form will cost on an accelerator.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sparing.core.execution.path import forced
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism


@dataclass(frozen=True)
class Dispatched:
    """What one call launches: operations by name, and the bytes that they read and write.

    Views launch nothing and are not counted. ``least_bytes`` are those of inputs and output.
    """

    operations: Counter[str]
    moved_bytes: int
    least_bytes: int

    @property
    def count(self) -> int:
        """How many operations are launched."""
        return self.operations.total()

    @property
    def passes(self) -> float:
        """How often the inputs and the output are moved, on average."""
        return self.moved_bytes / self.least_bytes


@dataclass
class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations and bytes while it is open."""

    operations: Counter[str] = field(default_factory=Counter)
    moved_bytes: int = 0

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {name: value for name, value in (kwargs or {}).items() if name != "out"}
        read, written = _tensors((args, given)), _tensors(result)
        if not _is_view(func, read, written):
            name = func.overloadpacket._qualified_op_name.removeprefix("aten::")
            self.note(name, [*read, *written])
        return result

    def note(self, name: str, moved: list[Tensor]) -> None:
        """Count one operation that reads and writes these tensors."""
        self.operations[name] += 1
        self.moved_bytes += sum(map(_stored_bytes, moved))


class _FusedAttention(TorchFunctionMode):
    """Attention as one operation, as devices have it: on "meta" it would be many."""

    def __init__(self, counting: _Counting) -> None:
        super().__init__()
        self.counting = counting

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        read = _tensors((args, kwargs))
        q, _, v = args[:3]
        output = q.new_empty(*q.shape[:-1], v.shape[-1])
        self.counting.note("attention", [*read, output])
        return output


def _tensors(values: Any) -> list[Tensor]:
    return [part for part in tree_leaves(values) if isinstance(part, Tensor)]


def _is_view(func: Any, read: list[Tensor], written: list[Tensor]) -> bool:
    """Whether an operation only looks at its inputs in another way, or makes room."""
    if "empty" in func.overloadpacket.__name__:
        return True
    if any(
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in func._schema.arguments
    ):
        return False
    returns = func._schema.returns
    aliases = bool(returns) and all(value.alias_info is not None for value in returns)
    stored = {part.untyped_storage()._cdata for part in read}
    same = bool(written) and all(part.untyped_storage()._cdata in stored for part in written)
    return aliases or same


def _stored_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor in memory: an expanded dimension is stored once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else min(size, 1)
    return elements * tensor.element_size()


def count_dispatched(
    built: Mechanism,
    batch: int,
    tokens: int,
    *,
    dtype: torch.dtype = torch.bfloat16,
    causal: bool = False,
    padded: bool = False,
    path: str = "accelerator",
) -> Dispatched:
    """Count one forward call of a mechanism on a path, without gradients.

    ``built`` is moved to the device "meta" and loses its values. Raises ``Unsupported`` where the
    path cannot serve the call.
    """
    heads = built.heads
    made = built.to("meta", dtype)
    streams = [_stream(name, heads, batch, tokens, dtype) for name in made.streams]
    keep = torch.ones(batch, tokens, dtype=torch.bool, device="meta") if padded else None
    counting = _Counting()
    with torch.no_grad(), forced(path), counting, _FusedAttention(counting):
        output = made(*streams, mask=Mask(keep, causal))
    least = sum(map(_stored_bytes, [*streams, output]))
    return Dispatched(counting.operations, counting.moved_bytes, least)


def _stream(name: str, heads: Heads, batch: int, tokens: int, dtype: torch.dtype) -> Tensor:
    inside, around = (batch, heads.count, tokens, heads.dim), (batch, tokens, heads.width or 0)
    return torch.empty(around if name == "x" else inside, dtype=dtype, device="meta")
