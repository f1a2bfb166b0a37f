"""What a layer's scores know of the distances between tokens: rotations, biases and windows.

Families with positions in their embeddings need none of this. In all forms a parameter has one
entry a head in its first dimension, so that the first heads of a layer are a layer too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.layers.packing import Layout
from sparing.layers.plan import LayerSizes

Heads = Float[Tensor, "batch heads tokens dim"]
Bias = Float[Tensor, "batch_or_one heads tokens tokens"]


@runtime_checkable
class DistanceForm(Protocol):
    """The settings of one layer's ``Distances``."""

    def build(self, sizes: LayerSizes) -> Distances:
        """The module of a layer of these sizes, with weights still to be filled."""


class Distances(nn.Module):
    """Nothing: the scores of a layer are those of queries and keys, and every token is seen."""

    window: int | None = None
    relative = False

    def turned(self, q: Heads, k: Heads) -> tuple[Heads, Heads]:
        """Queries and keys, rotated by their positions where a form does that."""
        return q, k

    def bias(self, q: Heads, k: Heads) -> Bias | None:
        """What is added to the scaled scores, if anything."""
        return None

    def flops(self, tokens: Float[Tensor, " batch"], heads: int) -> Float[Tensor, " batch"]:
        """FLOPs of its matrix products for inputs of these lengths; a multiply-add is 2."""
        return torch.zeros_like(tokens)

    def mask(self, q: Heads, k: Heads, layout: Layout) -> Tensor | None:
        """Which keys may be seen (true), or the bias, -inf where they may not; None: all alike.

        Pads see themselves, as no row may be without a key.
        """
        visible, tokens = layout.visible, q.shape[2]
        if not torch.compiler.is_compiling() and tokens == 0:
            return visible
        if self.window is not None and _needs_window(tokens, self.window):
            steps = torch.arange(tokens, device=q.device)
            apart = (steps[:, None] - steps).abs()
            near = apart <= self.window
            visible = near[None, None] if visible is None else near & (visible | (apart == 0))
        bias = self.bias(q, k)
        if bias is None:
            return visible
        return bias if visible is None else bias.masked_fill(~visible, float("-inf"))


def _needs_window(tokens: int, window: int) -> bool:
    """Whether some tokens are too far from others; always while a graph for any length is made."""
    return torch.compiler.is_compiling() or tokens > window + 1


@dataclass(frozen=True)
class Table:
    """One number for each head and bucket of distances, added to the scores.

    ``buckets`` has the bucket of each distance i - j of query i and key j, from ``longest`` - 1
    down to -``longest``.

    Source: Raffel et al., 2020 (T5), arXiv 1910.10683, section 2.1; in encoders Song et al., 2020
    (MPNet), arXiv 2004.09297.
    """

    count: int
    buckets: Buckets
    window: int | None = None

    def build(self, sizes: LayerSizes) -> Distances:
        """See ``DistanceForm``."""
        return _Table(self, sizes)


class _Table(Distances):
    relative = True

    def __init__(self, form: Table, sizes: LayerSizes) -> None:
        super().__init__()
        self.window = form.window
        self.values = nn.Parameter(torch.zeros(sizes.heads, form.count))
        self.buckets = nn.Buffer(form.buckets.falling, persistent=False)

    def bias(self, q: Heads, k: Heads) -> Bias | None:
        """The number of each pair's distance."""
        heads, tokens = q.shape[1:3]
        by_distance = self.values[:heads].index_select(1, _around(self.buckets, tokens))
        return skewed(by_distance[None, :, None, :].expand(1, heads, tokens, 2 * tokens))


@dataclass(frozen=True)
class Disentangled:
    """Scores of each query with a distance's key, and of each key with a distance's query.

    Formula: bias_ij = q_i . K_b(i-j) + k_j . Q_b(i-j).

    Symbols: b is the bucket of a distance, K and Q are one vector for each head and bucket, with
    the scale of the scores in them. ``reads_queries`` and ``reads_keys`` say which terms there are.

    Source: He et al., 2021 (DeBERTa), arXiv 2006.03654, equation 4. What differs: K
    and Q are weights, not products of every call. Only the distances that occur are multiplied.
    """

    count: int
    buckets: Buckets
    reads_queries: bool = True
    reads_keys: bool = True
    window: int | None = None

    def build(self, sizes: LayerSizes) -> Distances:
        """See ``DistanceForm``."""
        return _Disentangled(self, sizes)


class _Disentangled(Distances):
    relative = True

    def __init__(self, form: Disentangled, sizes: LayerSizes) -> None:
        super().__init__()
        self.window = form.window
        shape = (sizes.heads, form.count, sizes.query_dim)
        self.keys = nn.Parameter(torch.zeros(shape)) if form.reads_queries else None
        self.queries = nn.Parameter(torch.zeros(shape)) if form.reads_keys else None
        self.falling = nn.Buffer(form.buckets.falling, persistent=False)
        self.rising = nn.Buffer(form.buckets.rising, persistent=False)

    def bias(self, q: Heads, k: Heads) -> Bias | None:
        """The sum of both terms."""
        total: Tensor | None = None
        if self.keys is not None:
            total = skewed(q @ _vectors(self.keys, self.falling, q).mT)
        if self.queries is not None:
            by_key = skewed(k @ _vectors(self.queries, self.rising, k).mT).mT
            total = by_key if total is None else total + by_key
        return total

    def flops(self, tokens: Float[Tensor, " batch"], heads: int) -> Float[Tensor, " batch"]:
        """Those of both terms, for every distance that occurs."""
        total = torch.zeros_like(tokens)
        for vectors in (self.keys, self.queries):
            if vectors is not None:
                total = total + 4 * tokens * tokens * heads * vectors.shape[-1]
        return total


def _vectors(
    table: Float[Tensor, "all_heads buckets dim"], buckets: Int[Tensor, " distances"], like: Heads
) -> Float[Tensor, "heads near_distances dim"]:
    """The vectors of all distances that occur, and of one more, for the first heads."""
    heads, tokens = like.shape[1:3]
    return table[:heads].index_select(1, _around(buckets, tokens))


@dataclass(frozen=True)
class Rotary:
    """Queries and keys rotated by their positions.

    ``frequencies`` are the angles a token in each pair of coordinates, ``factor`` multiplies both
    cosine and sine, ``longest`` is the number of positions. ``window`` is the largest distance that
    a token sees.

    Source: Su et al., 2021 (RoFormer), arXiv 2104.09864, equation 34.
    """

    frequencies: tuple[float, ...] = field(repr=False)
    longest: int
    factor: float = 1.0
    window: int | None = None

    def build(self, sizes: LayerSizes) -> Distances:
        """See ``DistanceForm``."""
        return _Rotary(self)


class _Rotary(Distances):
    relative = True

    def __init__(self, form: Rotary) -> None:
        super().__init__()
        self.window = form.window
        cosines, sines = _turns(form.frequencies, form.longest, form.factor)
        self.cosines = nn.Buffer(cosines, persistent=False)
        self.sines = nn.Buffer(sines, persistent=False)

    def turned(self, q: Heads, k: Heads) -> tuple[Heads, Heads]:
        """Both rotated, each by its position."""
        tokens = q.shape[2]
        cosines, sines = self.cosines[:tokens], self.sines[:tokens]
        turned_q, turned_k = (_turned(x, cosines, sines) for x in (q, k))
        return turned_q, turned_k


def _turned(x: Heads, cosines: Tensor, sines: Tensor) -> Heads:
    """Rotate by angles; in float32 at least, as transformers does."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    half = x.shape[-1] // 2
    swapped = torch.cat((wide[..., half:], wide[..., :half]), -1)
    return (wide * cosines + swapped * sines).to(x.dtype)


@lru_cache(maxsize=8)
def _turns(
    frequencies: tuple[float, ...], longest: int, factor: float
) -> tuple[Float[Tensor, "positions dim"], Float[Tensor, "positions dim"]]:
    """Cosines and sines, computed in float32; all layers of one form share them.

    The first half of the sines has the sign with which the coordinates there are swapped.
    """
    with torch.device("cpu"):
        angles = torch.arange(longest).float()[:, None] * torch.tensor(frequencies)
        sines = torch.cat((-angles.sin(), angles.sin()), -1)
        return torch.cat((angles, angles), -1).cos() * factor, sines * factor


class Buckets:
    """The bucket of each distance i - j, in falling order from ``longest`` - 1, and in rising."""

    def __init__(self, of_distances: Sequence[int] | Int[Tensor, " distances"]) -> None:
        """``of_distances`` are those of -``longest`` to ``longest``."""
        numbers = torch.as_tensor(of_distances, dtype=torch.long)
        self.rising, self.falling = numbers[1:], numbers[:-1].flip(0)

    @property
    def longest(self) -> int:
        """The most tokens that they serve."""
        return len(self.rising) // 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buckets) and torch.equal(self.rising, other.rising)

    def __hash__(self) -> int:
        return hash(self.longest)


def _around(numbers: Int[Tensor, " distances"], tokens: int) -> Int[Tensor, " near_distances"]:
    """Those of the distances that occur between so many tokens, and of one more."""
    return numbers.narrow(0, len(numbers) // 2 - tokens, 2 * tokens)


def skewed(rows: Float[Tensor, "*batch tokens distances"]) -> Float[Tensor, "*batch tokens tokens"]:
    """From a column for each distance to a column for each key.

    Row i has i - j in falling order, from tokens - 1 to -tokens. Each row begins one column further
    on than the one before, so the rows in memory one after another need only be cut differently.

    Source: Huang et al., 2019 (Music Transformer), arXiv 1809.04281, section 3.4.1.
    """
    tokens = rows.shape[-2]
    flat = rows.reshape(*rows.shape[:-2], tokens * 2 * tokens)
    cut = flat.narrow(-1, tokens - 1, tokens * (2 * tokens - 1))
    by_row = cut.view(*rows.shape[:-2], tokens, 2 * tokens - 1)
    return by_row.narrow(-1, 0, tokens)
