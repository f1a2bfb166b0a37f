"""Feature attention on accelerators: few large products, and no loop over heads or tokens.

A mechanism makes two tensors: shares, its query features over their denominators, and features of
the keys. The output is then the sum over j of (shares_i . keys_j) v_j. Inputs in half precision
stay so in every product, which accumulates in float32 by itself; denominators are float32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

PART = 512
"""Tokens of one part of a sum over all keys: more parts use more of the device."""

MOST_CHUNKS = 512
"""Chunks of tokens that one product sums; more are summed in groups of as many."""


def widest(dtype: torch.dtype) -> torch.dtype:
    """The type of sums and denominators: float32 for half precision, else the type itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def weighed(
    keys: Float[Tensor, "batch heads keys *_ features"],
    weights: Float[Tensor, "samples _ keys *sets"] | None,
) -> tuple[Float[Tensor, "batch heads keys *sets features"], float]:
    """Features of keys times their weights (1 unless given) and a factor, and the factor.

    In float16 it is 1 over the root of the tokens, so that sums stay in range; else it is 1.
    """
    factor = float(keys.shape[2] ** -0.5) if keys.dtype == torch.float16 else 1.0
    if weights is None:
        return (keys if factor == 1 else keys * factor), factor
    return scaled(keys, (weights if factor == 1 else weights * factor)[..., None]), factor


def shares_of_all(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
) -> Float[Tensor, "batch heads queries features"]:
    """Queries over the sum of their dot products with all keys; zero sums divide by 1."""
    return _shares(queries, all_keys(keys))


def shares_of_past(
    queries: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
) -> Float[Tensor, "batch heads queries features"]:
    """Queries over the sum of their dot products with the keys up to them; zero divides by 1."""
    return _shares(queries, past_keys(keys, queries.shape[2]))


def _shares(queries: Tensor, sums: Tensor) -> Tensor:
    totals = (queries * sums).sum(-1, keepdim=True, dtype=widest(queries.dtype))
    return divided(queries, nonzero(totals))


def nonzero(totals: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """Denominators; 1 where none is above zero: the numerator is zero there."""
    return totals.where(totals > 0, 1)


def over_all(
    shares: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
) -> Float[Tensor, "batch heads queries dim"]:
    """sum_j (shares_i . keys_j) v_j over all j."""
    return over_sums(shares, all_sums(keys, v))


def over_sums(
    shares: Float[Tensor, "batch heads queries features"],
    sums: Float[Tensor, "batch heads features dim"],
) -> Float[Tensor, "batch heads queries dim"]:
    """shares sums, one product for each head."""
    parts = _parts(shares.shape[2])
    if parts == 1:
        return shares @ sums
    # In parts, so that the gradient of the sums, itself a sum over all queries, is in parts too.
    return (torch.unflatten(shares, 2, (parts, -1)) @ sums[:, :, None]).flatten(2, 3)


def all_sums(
    keys: Float[Tensor, "batch heads keys features"], v: Float[Tensor, "batch heads keys dim"]
) -> Float[Tensor, "batch heads features dim"]:
    """keys^T v: in parts if the tokens divide into equal ones, which are then summed in float32."""
    parts = _parts(keys.shape[2])
    if parts == 1:
        return keys.mT @ v
    keys, v = (torch.unflatten(part, 2, (parts, -1)) for part in (keys, v))
    return (keys.mT @ v).sum(2, dtype=widest(keys.dtype)).to(keys.dtype)


def all_keys(
    keys: Float[Tensor, "batch heads keys features"],
) -> Float[Tensor, "batch heads 1 features"]:
    """The sum of all keys, rounded once; in float16 float32: its products would leave the range."""
    sums = keys.sum(-2, keepdim=True, dtype=widest(keys.dtype))
    return sums if keys.dtype == torch.float16 else sums.to(keys.dtype)


def _parts(tokens: int) -> int:
    """Into how many equal parts of at least ``PART`` tokens they are cut: a power of two."""
    parts = 1
    while tokens % (2 * parts) == 0 and tokens >= 2 * parts * PART:
        parts *= 2
    return parts


def over_past(
    shares: Float[Tensor, "batch heads queries features"],
    keys: Float[Tensor, "batch heads keys features"],
    v: Float[Tensor, "batch heads keys dim"],
) -> Float[Tensor, "batch heads queries dim"]:
    """``over_all`` with j up to i only; the queries are the last tokens.

    Pairs inside a chunk of tokens are weighed one by one; earlier chunks are summed before.
    """
    batch, heads, count, features = shares.shape
    early = keys.shape[2] - count
    size = _size(count, features)
    rows = _chunks(shares, size)
    new, values = _chunks(keys[:, :, early:], size), _chunks(v[:, :, early:], size)
    sums = sums_before(new.mT @ values)
    if early:
        old = all_sums(keys[:, :, :early], v[:, :, :early])
        sums = sums + old.flatten(0, 1)[:, None]
    rows, new, values = rows.flatten(0, 1), new.flatten(0, 1), values.flatten(0, 1)
    # What the future would get may be infinite: it is selected away, not multiplied.
    weights = (rows @ new.mT).tril_()
    # The earlier chunks come last: usually they are most of the sum, which is then rounded once.
    mixed = torch.bmm(weights, values).baddbmm_(rows, sums.flatten(0, 1))
    return _tokens(mixed, batch, heads, count)


def past_keys(
    keys: Float[Tensor, "batch heads keys features"], count: int
) -> Float[Tensor, "batch heads queries features"]:
    """The sum of the keys up to each of the last ``count`` tokens, in the widest type."""
    batch, heads, tokens, features = keys.shape
    early, exact = tokens - count, widest(keys.dtype)
    sums = _chunks(keys[:, :, early:], _size(count, features)).cumsum(2, dtype=exact)
    before = sums_before(sums[:, :, -1:])
    if early:
        old = keys[:, :, :early].sum(2, keepdim=True, dtype=exact)
        before = before + old.flatten(0, 1)[:, None]
    return _tokens(sums + before, batch, heads, count)


def sums_before(parts: Float[Tensor, "rows chunks m n"]) -> Float[Tensor, "rows chunks m n"]:
    """The sum of all chunks before each one, without the chunk itself.

    As a product with ones below the diagonal: it accumulates in float32 and rounds once.
    """
    rows, chunks, *inner = parts.shape
    if chunks > MOST_CHUNKS:
        groups = -(-chunks // MOST_CHUNKS)
        padded = F.pad(parts, (0, 0, 0, 0, 0, groups * MOST_CHUNKS - chunks))
        grouped = torch.unflatten(padded, 1, (groups, MOST_CHUNKS))
        totals = grouped.sum(2, dtype=widest(parts.dtype)).to(parts.dtype)
        inside = sums_before(grouped.flatten(0, 1)).view_as(grouped)
        return (inside + sums_before(totals)[:, :, None]).flatten(1, 2)[:, :chunks]
    ones = torch.ones(chunks, chunks, dtype=parts.dtype, device=parts.device).tril(-1)
    summed = torch.bmm(ones.expand(rows, -1, -1), parts.flatten(2))
    return summed.view(rows, chunks, *inner)


def _size(count: int, features: int) -> int:
    """Tokens of a chunk: about as many as features, so pairs and states take as much memory."""
    return min(64 if features <= 64 else 128, count)


def _chunks(tensor: Tensor, size: int) -> Float[Tensor, "rows chunks size features"]:
    """Heads of all samples as rows, and tokens in chunks; the last one is filled with zeros."""
    tokens = tensor.shape[2]
    if tokens % size:
        tensor = F.pad(tensor, (0, 0, 0, -tokens % size))
    return torch.unflatten(tensor.flatten(0, 1), 1, (-1, size))


def _tokens(chunks: Tensor, batch: int, heads: int, count: int) -> Tensor:
    """Undo ``_chunks``."""
    return chunks.reshape(batch, heads, -1, chunks.shape[-1])[:, :, :count]


def scaled(x: Float[Tensor, "*rows"], by: Float[Tensor, "*_"]) -> Tensor:
    """x by, rounded once to x's type; ``by`` may be of a wider type. Both may be broadcast."""
    result: Tensor = _Scaled.apply(x, by)  # type: ignore[no-untyped-call]
    return result


def divided(x: Float[Tensor, "*rows features"], by: Float[Tensor, "*_"]) -> Tensor:
    """x / by, rounded once to x's type; ``by`` may be of a wider type and is broadcast.

    The gradient holds no square of ``by``, which may be tiny.
    """
    result: Tensor = _Divided.apply(x, by)  # type: ignore[no-untyped-call]
    return result


class _Scaled(torch.autograd.Function):
    """See ``scaled``."""

    @staticmethod
    def forward(x: Tensor, by: Tensor) -> Tensor:
        """The product, in one pass: PyTorch alone would make it in the wider type."""
        shape = torch.broadcast_shapes(x.shape, by.shape)  # type: ignore[no-untyped-call]
        return torch.mul(x, by, out=x.new_empty(shape))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep the factors."""
        del output
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Each factor's gradient: the slopes times the other one."""
        x, by = ctx.saved_tensors
        of_x = scaled(slopes, by).sum_to_size(x.shape) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_x, None
        falls = (slopes * x).sum(-1, keepdim=True, dtype=by.dtype)
        return of_x, falls.sum_to_size(by.shape)


class _Divided(torch.autograd.Function):
    """See ``divided``."""

    @staticmethod
    def forward(x: Tensor, by: Tensor) -> Tensor:
        """The quotient, rounded once."""
        return torch.div(x, by, out=torch.empty_like(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep the quotient and what divides."""
        ctx.save_for_backward(output, inputs[1])

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """slopes / by, and -slopes x / by^2 by way of the quotient."""
        quotient, by = ctx.saved_tensors
        of_x = divided(slopes, by) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_x, None
        falls = quotient * slopes
        if by.shape[-1] == 1 < falls.shape[-1]:
            falls = falls.sum(-1, keepdim=True, dtype=by.dtype)
        return of_x, -(falls.sum_to_size(by.shape) / by)
