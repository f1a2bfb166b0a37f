"""A matrix times the tokens of every row: no copy of the stream, in either memory layout."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sparing.core.tracing import is_traced
from sparing.mechanisms.shared.precise import precise_product

_PARALLEL = 8
"""Products at a time that fill an accelerator; fewer are cut along the tokens."""


def are_together(stream: Float[Tensor, "batch heads tokens dim"]) -> bool:
    """Whether a token's heads are adjacent in memory: then one product serves all heads."""
    return stream.stride(1) < stream.stride(2) and stream.stride(2) == stream[0, :, 0].numel()


def along_tokens(
    matrix: Float[Tensor, "#batch slots tokens"], stream: Float[Tensor, "batch heads tokens dim"]
) -> Float[Tensor, "batch heads slots dim"]:
    """matrix times each head, at least in float32; half numbers lose nothing but their own."""
    batch, heads, _, dim = stream.shape
    together = matrix.shape[0] > 1 or are_together(stream)
    rows = stream.transpose(1, 2).flatten(2) if together else stream.flatten(0, 1)
    count, tokens, width = rows.shape
    folds = _folds(count, tokens) if together else 1
    matrix = matrix.reshape(*matrix.shape[:2], folds, -1).transpose(1, 2)
    matrix = matrix.expand(count, -1, -1, -1).flatten(0, 1)
    products = precise_product(matrix, rows.view(count * folds, -1, width))
    slots = products.view(count, folds, -1, width).sum(1)
    if together:
        return slots.view(batch, -1, heads, dim).transpose(1, 2)
    return slots.view(batch, heads, -1, dim)


def _folds(count: int, tokens: int) -> int:
    """Into how many equal parts few long rows are cut."""
    if count >= _PARALLEL or is_traced():
        return 1
    return max(parts for parts in (1, 2, 4, 8, 16) if tokens % parts == 0)
