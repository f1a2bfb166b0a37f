"""The distances between the tokens of one call, as columns of a table of position keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

from sparing.core.tracing import is_traced

LENGTHS = 256


@dataclass(frozen=True)
class Buckets:
    """How a model assigns distances to buckets: ``span`` is the largest bucket.

    ``count`` is the model's ``position_buckets``, ``longest`` its ``max_relative_positions``.
    """

    count: int
    longest: int

    @property
    def span(self) -> int:
        """The largest bucket; a table has ``2 * span + 1`` columns, from -span to span."""
        return self.count if self.count > 0 else self.longest


@dataclass
class Positions:
    """What the layers of one call share: its distances, and the pairs of tokens that it hides.

    Only the buckets from -``reach`` to ``reach`` occur. ``index`` (tokens, tokens) is the column
    of each pair, ``reach`` plus the bucket of column less row. It is None where every distance
    has a bucket of its own: a view of the products is enough then.
    """

    tokens: Any
    reach: Any
    index: Int[Tensor, "tokens tokens"] | None
    _read: tuple[Tensor, Tensor | None] | None = None

    def columns(
        self, table: Float[Tensor, "heads buckets dim"]
    ) -> Float[Tensor, "heads columns dim"]:
        """The rows of a table from -span to span for the buckets that occur."""
        first = table.shape[1] // 2 - self.reach
        if is_traced():  # of a slice, the exporter compares the strides with those of one length
            chosen = torch.arange(2 * self.reach + 1, device=table.device) + first
            return table.index_select(1, chosen)
        return table[:, first : first + 2 * self.reach + 1]

    def pairs(
        self, products: Float[Tensor, "heads rows columns"]
    ) -> Float[Tensor, "batch heads tokens tokens"]:
        """For each row and each token, the product in the column of their distance.

        Rows are the tokens of all inputs, one input after another.
        """
        heads, rows, columns = products.shape
        batch = rows // self.tokens
        if self.index is None:
            # one row further, the same distance is one column to the left
            strides = (self.tokens * columns, rows * columns, columns - 1, 1)
            return products.as_strided(
                (batch, heads, self.tokens, self.tokens), strides, self.tokens - 1
            )
        split = products.view(heads, batch, self.tokens, columns).transpose(0, 1)
        return split.gather(-1, self.index.expand(batch, heads, -1, -1))

    def hidden(self, mask: Tensor) -> Bool[Tensor, "..."] | None:
        """Where a pair is hidden, for a mask of visible ones; None where none is.

        Whether any is hidden is read on the CPU only: elsewhere a call would wait for the device.
        """
        if self._read is None or self._read[0] is not mask:
            visible = mask.bool()
            known = mask.device.type == "cpu" and not is_traced()
            self._read = mask, None if known and bool(visible.all()) else ~visible
        return self._read[1]


def positions_of(hidden: Float[Tensor, "batch tokens width"], buckets: Buckets) -> Positions:
    """The distances in a call on these hidden states.

    Recorded as a graph, the call has a free length, so the index is computed in the graph. No
    bucket is larger than its distance.
    """
    tokens = hidden.shape[-2]
    if is_traced():
        distances = build_relative_position(hidden, hidden, buckets.count, buckets.longest)[0]
        reach = tokens - 1
        # a graph of few tokens needs no such operation, which ExecuTorch does not take
        if not statically_known_true(reach <= buckets.span):
            reach = torch.sym_min(reach, buckets.span)  # type: ignore[no-untyped-call]
        return Positions(tokens, reach, reach - distances.clamp(-buckets.span, buckets.span))
    steps, reach, exact = _buckets_of(tokens, buckets, hidden.device, torch.get_default_dtype())
    if exact:
        return Positions(tokens, reach, None)
    columns = torch.arange(tokens, device=hidden.device)
    return Positions(tokens, reach, steps[columns - columns[:, None] + tokens - 1] + reach)


@lru_cache(maxsize=LENGTHS)
def _buckets_of(
    tokens: int, buckets: Buckets, device: torch.device, kind: torch.dtype
) -> tuple[Int[Tensor, " distances"], int, bool]:
    """The buckets of the distances from 1 - tokens on, the largest, and whether each has its own.

    transformers computes them in the default type, on the device: a logarithm may round otherwise
    elsewhere.
    """
    with torch.inference_mode(False):
        rows = torch.empty((tokens, 1), device=device)
        upper = build_relative_position(rows, rows[:1], buckets.count, buckets.longest)
        upper = upper.flatten().clamp(max=buckets.span)
        steps = torch.cat((-upper[1:].flip(0), upper))
        exact = torch.equal(upper, torch.arange(tokens, device=device))
    return steps, int(upper[-1]), exact
