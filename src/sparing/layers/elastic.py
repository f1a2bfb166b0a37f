"""One encoder layer; its first heads and first neurons are a layer too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sparing.layers.distances import DistanceForm, Distances
from sparing.layers.packing import Layout
from sparing.layers.plan import LayerSizes

LARGE_SQUARE = 1 << 20


class NoDistances:
    """The form of layers with scores that know nothing of distances."""

    def build(self, sizes: LayerSizes) -> Distances:
        """See ``DistanceForm``."""
        return Distances()


@dataclass(frozen=True)
class LayerForm:
    """The settings of a layer.

    ``norm_first`` normalises before attention and feed-forward, as vision transformers do, instead
    of after, as BERT does; ``norms_input`` False leaves out the norm before attention. ``scale``
    multiplies the scores; it stays that of the full heads when their queries and keys are narrowed,
    so the scores estimate the full ones. In a ``gated`` feed-forward each neuron is multiplied by a
    second one. ``distances`` is what the scores know of the tokens' distances.

    Source of gated neurons: Shazeer, 2020, arXiv 2002.05202, equation 6.
    """

    width: int
    scale: float
    norm_first: bool
    norm_epsilon: float
    activation: Callable[[Tensor], Tensor]
    dropout: float = 0.0
    attention_dropout: float = 0.0
    gated: bool = False
    norms_input: bool = True
    distances: DistanceForm = field(default_factory=NoDistances)


class ElasticLayer(nn.Module):
    """Self-attention and feed-forward, with heads and neurons in order of importance.

    Keeping the first ``heads`` takes their queries, keys, values and their part of the output
    projection. Keeping the first ``neurons`` takes their part of both weights. These are contiguous
    slices, so nothing is copied and dropped parts are not computed. For that reason the projections
    of one head (queries, keys, values) are adjacent.

    Shapes: rows (..., width) in and out, in either layout of ``layers.packing``.

    Source: the idea of ordered widths is that of Hou et al., 2020 (DynaBERT), arXiv 2004.04037,
    section 2.1. What differs: queries, keys and values of all kept heads come from one product.
    """

    def __init__(self, sizes: LayerSizes, form: LayerForm) -> None:
        super().__init__()
        self.sizes, self.form = sizes, form
        self.head_rows = 2 * sizes.query_dim + sizes.value_dim
        self.projection = nn.Linear(form.width, sizes.heads * self.head_rows)
        self.output = nn.Linear(sizes.heads * sizes.value_dim, form.width)
        self.rise = nn.Linear(form.width, sizes.neurons)
        self.gate = nn.Linear(form.width, sizes.neurons) if form.gated else None
        self.fall = nn.Linear(sizes.neurons, form.width)
        norm = nn.LayerNorm(form.width, eps=form.norm_epsilon)
        self.attention_norm = norm if form.norms_input else nn.Identity()
        self.feed_forward_norm = nn.LayerNorm(form.width, eps=form.norm_epsilon)
        self.distances = form.distances.build(sizes)
        # transformers sets both: whether and how to recompute the layer in the backward pass
        self.gradient_checkpointing = False
        self._gradient_checkpointing_func: Callable[..., Any] | None = None

    def forward(
        self, rows: Tensor, layout: Layout, heads: int, neurons: int
    ) -> Float[Tensor, "... width"]:
        """The layer's output with ``heads`` heads and ``neurons`` neurons."""
        if self._checkpoints():
            return self._gradient_checkpointing_func(self._plain, rows, layout, heads, neurons)  # type: ignore[misc,no-any-return]
        return self._plain(rows, layout, heads, neurons)

    def _checkpoints(self) -> bool:
        return self.gradient_checkpointing and self.training and torch.is_grad_enabled()

    def _plain(self, rows: Tensor, layout: Layout, heads: int, neurons: int) -> Tensor:
        return self._finish(rows, self._attend(self._queries(rows, layout, heads), layout), neurons)

    def forward_scored(
        self,
        rows: Tensor,
        layout: Layout,
        heads: int,
        neurons: int,
        paid: Float[Tensor, "batch tokens"] | None = None,
    ) -> tuple[Float[Tensor, "... width"], Float[Tensor, "batch tokens"]]:
        """The output, and each token's received attention: its mean over heads and queries.

        An even share is 1 / tokens of the sequence; pads receive none. Needs the square of scores,
        of this one layer. ``paid`` (0 at pads) weights each token as a key and in the mean: 0
        removes the token.
        """
        inputs = (rows, layout, heads, neurons, paid)
        if self._checkpoints():
            return self._gradient_checkpointing_func(self._with_scores, *inputs)  # type: ignore[misc,no-any-return]
        return self._with_scores(*inputs)

    def _with_scores(
        self, rows: Tensor, layout: Layout, heads: int, neurons: int, paid: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        streams, seen = self._queries(rows, layout, heads), layout.visible
        if not _in_parts(streams[0]):
            mixed, received = self._scored(streams, seen, paid)
            return self._finish(rows, self._join(mixed, layout), neurons), received
        # one sequence at a time: the squares of a whole batch would dominate the memory
        parts = []
        for index in range(len(streams[0])):
            one = slice(index, index + 1)
            q, k, v = (stream[one] for stream in streams)
            chosen = [None if mask is None else mask[one] for mask in (seen, paid)]
            parts.append(self._scored((q, k, v), *chosen))
        mixed, received = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        return self._finish(rows, self._join(mixed, layout), neurons), received

    def _scored(
        self, streams: tuple[Tensor, Tensor, Tensor], visible: Tensor | None, paid: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The output of attention (batch, heads, tokens, dim), and the received attention."""
        q, k, v = streams
        scores = (q * self.form.scale) @ k.transpose(-1, -2)
        if visible is not None:
            scores = scores.masked_fill(~visible, float("-inf"))
        weights = scores.softmax(-1)
        seen = None if visible is None else visible[:, 0, 0, :]
        if paid is not None:
            weights = weights * paid[:, None, None, :]
            weights = weights / weights.sum(-1, keepdim=True)
            seen = paid
        if seen is None:
            received = weights.mean((1, 2))
        else:
            real = weights.mean(1) * seen[:, :, None]
            received = real.sum(1) / seen.sum(1, keepdim=True)
        return F.dropout(weights, self.form.attention_dropout, self.training) @ v, received

    def flops(
        self, tokens: Float[Tensor, " batch"], heads: int, neurons: int
    ) -> Float[Tensor, " batch"]:
        """FLOPs of the matrix products for inputs of these lengths; a multiply-add is 2."""
        size, width = self.sizes, self.form.width
        per_neuron = 2 if self.gate is None else 3
        weights = heads * (self.head_rows + size.value_dim) * width + per_neuron * neurons * width
        squares = tokens * heads * (size.query_dim + size.value_dim)
        return 2 * tokens * (weights + squares) + self.distances.flops(tokens, heads)

    def _queries(self, rows: Tensor, layout: Layout, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (batch, heads, tokens, dim) of the first heads."""
        x = self.attention_norm(rows) if self.form.norm_first else rows
        count = heads * self.head_rows
        projected = F.linear(x, self.projection.weight[:count], self.projection.bias[:count])
        padded = layout.to_padded(projected)
        by_head = padded.view(*padded.shape[:2], heads, self.head_rows).transpose(1, 2)
        dim = self.sizes.query_dim
        q, k, v = torch.split(by_head, [dim, dim, self.sizes.value_dim], -1)
        return *self.distances.turned(q, k), v

    def _attend(self, streams: tuple[Tensor, Tensor, Tensor], layout: Layout) -> Tensor:
        q, k, v = streams
        dropout = self.form.attention_dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=self.distances.mask(q, k, layout),
            dropout_p=dropout,
            scale=self.form.scale,
        )
        return self._join(mixed, layout)

    def _join(self, mixed: Tensor, layout: Layout) -> Tensor:
        """The heads' results concatenated, through their part of the output projection."""
        joined = layout.to_rows(mixed.transpose(1, 2).flatten(2))
        return F.linear(joined, self.output.weight[:, : joined.shape[-1]], self.output.bias)

    def _finish(self, rows: Tensor, mixed: Tensor, neurons: int) -> Tensor:
        """Residual, feed-forward and norms, in the family's order."""
        rows = rows + self._drop(mixed)
        if self.form.norm_first:
            return rows + self._drop(self._feed_forward(self.feed_forward_norm(rows), neurons))
        rows = self.attention_norm(rows)
        rows = rows + self._drop(self._feed_forward(rows, neurons))
        finished: Tensor = self.feed_forward_norm(rows)
        return finished

    def _feed_forward(self, rows: Tensor, neurons: int) -> Tensor:
        risen = F.linear(rows, self.rise.weight[:neurons], self.rise.bias[:neurons])
        active = self.form.activation(risen)
        if self.gate is not None:
            active = active * F.linear(rows, self.gate.weight[:neurons], self.gate.bias[:neurons])
        fallen: Tensor = F.linear(active, self.fall.weight[:, :neurons], self.fall.bias)
        return fallen

    def _drop(self, rows: Tensor) -> Tensor:
        return F.dropout(rows, self.form.dropout, self.training) if self.form.dropout else rows


def _in_parts(q: Float[Tensor, "batch heads tokens dim"]) -> bool:
    """Whether sequences are scored one by one: many and long, on a CPU, without gradients."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or q.device.type != "cpu":
        return False
    batch, heads, tokens, _ = q.shape
    return batch > 1 and batch * heads * tokens * tokens > LARGE_SQUARE
