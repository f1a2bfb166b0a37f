"""DeBERTa-v2's attention, its position keys and queries constants, its score part short.

Formula: a_ij = softmax_j((q_i . k_j + q_i . P[b(i - j)] + k_j . R[b(i - j)]) / s).

Symbols: P and R are the relative embeddings, normed where the model does so, through the key and
query matrices of positions. b is the bucket of a distance and s the root of the head's width times
1 + the number of position terms.

P and R depend on weights alone, so they are computed once. The bucket is odd in the distance, so
both terms read the same columns, and only those of distances that occur are multiplied.

Source: He et al., 2021, arXiv 2006.03654 and 2111.09543, as transformers computes it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DebertaV2Encoder,
    DisentangledSelfAttention,
    scaled_size_sqrt,
)

from sparing.core.tracing import is_traced
from sparing.transfer.folding.positions import Buckets, Positions, positions_of
from sparing.transfer.folding.sources import Sources, weights_of

CONSTANTS = KEYS, QUERIES = "sparing_position_keys", "sparing_position_queries"
STATE = "sparing_folded_from"
_TERMS = {KEYS: "c2p", QUERIES: "p2c"}
_PROJECTIONS = {KEYS: ("pos_key_proj", "key_proj"), QUERIES: ("pos_query_proj", "query_proj")}


class FoldedAttention(DisentangledSelfAttention):  # type: ignore[misc]  # transformers is untyped
    """Attention with constants for its positions; it has no weights of its own.

    The constants are buffers (heads, 2 * span + 1, dim) that are not saved: of keys from bucket
    span down to -span, of queries from -span up.
    """

    def forward(
        self,
        hidden_states: Float[Tensor, "batch tokens width"],
        attention_mask: Tensor,
        output_attentions: bool = False,
        query_states: Float[Tensor, "batch tokens width"] | None = None,
        relative_pos: Tensor | Positions | None = None,
        rel_embeddings: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As transformers does; by the constants where the encoder gives ``Positions``.

        Returns (batch, tokens, width) and, with ``output_attentions``, the attention weights
        (batch, heads, tokens, tokens).
        """
        if not isinstance(relative_pos, Positions):
            output: tuple[Tensor, Tensor | None] = super().forward(
                hidden_states,
                attention_mask,
                output_attentions,
                query_states=query_states,
                relative_pos=relative_pos,
                rel_embeddings=rel_embeddings,
            )
            return output
        queries, keys, values = (
            projection(hidden_states).unflatten(-1, (self.num_attention_heads, -1))
            for projection in (self.query_proj, self.key_proj, self.value_proj)
        )
        scale = scaled_size_sqrt(queries, 1 + sum(t in self.pos_att_type for t in _TERMS.values()))
        scale = scale.to(dtype=queries.dtype, device=queries.device)
        queries = queries / scale
        bias = self._bias(queries, keys / scale, relative_pos)
        hidden = relative_pos.hidden(attention_mask)
        q, k, v = (stream.transpose(1, 2) for stream in (queries, keys, values))
        if output_attentions or _must_replace(queries):
            mixed, weights = _explicit(q, k, v, bias, hidden)
        else:
            mixed, weights = _fused(q, k, v, bias, hidden), None
        return mixed.transpose(1, 2).flatten(2), weights if output_attentions else None

    def _bias(
        self,
        queries: Float[Tensor, "batch tokens heads dim"],
        keys: Float[Tensor, "batch tokens heads dim"],
        positions: Positions,
    ) -> Float[Tensor, "batch heads tokens tokens"] | None:
        """The position terms of the scores; None for a model without any."""
        terms = []
        for name, stream in ((KEYS, queries), (QUERIES, keys)):
            table = getattr(self, name)
            if table is not None:
                used = positions.columns(table).to(stream.dtype)
                rows = stream.flatten(0, 1).transpose(0, 1)
                pairs = positions.pairs(torch.bmm(rows, used.transpose(1, 2)))
                terms.append(pairs if name == KEYS else pairs.transpose(-1, -2))
        return sum(terms[1:], terms[0]) if terms else None

    def __setattr__(self, name: str, value: Any) -> None:
        """Also drop the constants where a module is replaced: adapters merge into it unseen."""
        if isinstance(value, nn.Module):
            self._buffers.update(dict.fromkeys(CONSTANTS))
        super().__setattr__(name, value)

    def has_constants(self) -> bool:
        """Whether the constants of every position term are there."""
        return all(self._buffers[name] is not None for name, _ in self.folded())

    def folded(self) -> list[tuple[str, nn.Module]]:
        """The names of the constants, and the projection that makes each."""
        return [
            (name, getattr(self, _PROJECTIONS[name][self.share_att_key]))
            for name, term in _TERMS.items()
            if term in self.pos_att_type
        ]

    def fold(self, embeddings: Float[Tensor, "buckets width"]) -> None:
        """Compute the constants from the present weights."""
        for name, projection in self.folded():
            rows = projection(embeddings[: 2 * self.pos_ebd_size])
            # distances beyond the last bucket read the last row, and span is odd like the others
            rows = torch.cat((rows, rows[-1:]))
            table = rows.view(len(rows), self.num_attention_heads, -1).transpose(0, 1)
            setattr(self, name, (table.flip(1) if name == KEYS else table).contiguous())


def _must_replace(queries: Tensor) -> bool:
    """Whether hidden scores must be replaced, not lost in a sum with the lowest number.

    float16 holds none that is low enough, and a sum has gradients in rows where all is hidden.
    """
    has_gradient = torch.is_grad_enabled() and queries.requires_grad
    return has_gradient or queries.dtype is torch.float16


def _explicit(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention and its weights."""
    scores = queries @ keys.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return weights @ values, weights


def _fused(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, hidden: Tensor | None
) -> Tensor:
    """Attention by one kernel, in which a hidden pair's score is lost beside the lowest number."""
    if hidden is not None:
        bias = queries.new_zeros(hidden.shape) if bias is None else bias
        bias = bias.masked_fill(hidden, torch.finfo(bias.dtype).min)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, scale=1.0)


class FoldedEncoder(DebertaV2Encoder):  # type: ignore[misc]  # transformers is untyped
    """An encoder that decides in each call whether its layers may use constants."""

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Tensor,
        output_hidden_states: bool = True,
        output_attentions: bool = False,
        query_states: Tensor | None = None,
        relative_pos: Any = None,
        return_dict: bool = True,
    ) -> Any:
        """As transformers does."""
        if query_states is None and relative_pos is None and self._ready():
            relative_pos = positions_of(hidden_states, self.buckets())
        return super().forward(
            hidden_states,
            attention_mask,
            output_hidden_states,
            output_attentions,
            query_states,
            relative_pos,
            return_dict,
        )

    def train(self, mode: bool = True) -> FoldedEncoder:
        """Also forget the constants: trainers may write where PyTorch does not count."""
        if mode != self.training:
            self.forget()
        return super().train(mode)  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        """Also forget the constants where a module is replaced."""
        if isinstance(value, nn.Module):
            self.forget()
        super().__setattr__(name, value)

    def _apply(self, *args: Any, **options: Any) -> Any:
        self.forget()  # also frees the old weights, which would be held until the next call
        return super()._apply(*args, **options)

    def buckets(self) -> Buckets:
        """How distances become buckets here."""
        return Buckets(self.position_buckets, self.max_relative_positions)

    def attentions(self) -> list[FoldedAttention]:
        """The attention of each layer."""
        return [layer.attention.self for layer in self.layer]

    def forget(self) -> None:
        """Let the next call compute the constants again."""
        self.__dict__[STATE] = Sources()

    def sources(self) -> list[Tensor] | None:
        """The weights behind all constants; None where a part of them does not compute as built."""
        parts: list[tuple[nn.Module, type[nn.Module]]] = [(self.rel_embeddings, nn.Embedding)]
        if "layer_norm" in self.norm_rel_ebd:
            parts.append((self.LayerNorm, nn.LayerNorm))
        for attention in self.attentions():
            if type(attention) is not FoldedAttention or "forward" in vars(attention):
                return None
            parts += [(projection, nn.Linear) for _, projection in attention.folded()]
        return weights_of(*parts)

    def fold(self) -> None:
        """Compute the constants of all layers from the present weights."""
        kind = self.rel_embeddings.weight.device.type
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(kind, enabled=False):
            embeddings = self.get_rel_embedding()
            for attention in self.attentions():
                attention.fold(embeddings)
            self.__dict__[STATE] = Sources(self.sources() or ())

    def _ready(self) -> bool:
        """Whether constants may replace their computation in this call; refreshed if they must.

        No dropout may act on them, and no gradient be wanted of their weights.
        """
        exported = torch.compiler.is_exporting()
        if is_traced() and (torch.compiler.is_dynamo_compiling() or not exported):
            return False
        attentions, weights = self.attentions(), self.sources()
        if weights is None or any(attention.training for attention in attentions):
            return False
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
            return False
        state: Sources = vars(self)[STATE]
        there = all(attention.has_constants() for attention in attentions)
        if exported:  # the weights may be symbols
            return there and state.unchanged()
        if not (there and state.are(weights)):
            self.fold()
        return True
