"""Performer: softmax attention estimated with positive orthogonal random features (FAVOR+)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import UsageError, require_choice
from sparing.core.execution.path import Call, Path
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._features import (
    HIDDEN,
    FeatureMap,
    feature_attention,
    feature_cost,
    hidden_logs,
    works_in_chunks,
)
from sparing.mechanisms._positive import (
    Positive,
    positive_at_once,
    positive_attention,
    positive_cost,
)
from sparing.mechanisms._random import Directions
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.products import wide_type
from sparing.mechanisms.shared.sums.fla_sums import mix_limits, mix_past_by_fla
from sparing.mechanisms.shared.sums.past import Past, Weights, mix_all, mix_past

_LEAST_FEATURE = 1e-3
_CHOICES = {"feature_map": ("positive", "relu"), "scaling": ("random", "fixed")}


class Performer(Mechanism):
    """Attention with dot products of random features as weights, in time linear in tokens.

    Formula: out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = phi(q_i) . phi(k_j) and
    feature_map="positive": phi(x)_r = exp(w_r . y - |y|^2 / 2), y = x / dim^(1/4); its mean over
    w is softmax's exp(q_i . k_j / sqrt(dim));
    feature_map="relu": phi(x)_r = max(w_r . y, 0) + 0.001.

    Symbols: i runs over queries, j over the keys that i may see, r over ``features`` random
    directions w_r, sampled with ``seed``, the same for all heads; by default int(dim ln dim) of
    them (266 for dim 64). ``orthogonal`` makes them orthogonal in groups of dim; ``scaling`` gives
    them "random" lengths, those of normal vectors, or the "fixed" length sqrt(dim). ``redraw``
    takes the next ones.

    Cost: 8 features x dim flops for each token and no square. With positive features the result
    tends to softmax as features grows, the error as 1 / sqrt(features). The variance of a weight
    grows as exp(|q + k|^2 / sqrt(dim)), so large queries and keys need many more.

    Source: Choromanski et al., 2020, arXiv 2009.14794, lemma 1 and sections 2.2 to 2.4. What
    differs: no 1e-4 is added to features. It is not needed: without causality the sum is computed
    as a softmax over features of softmaxes over keys, in which nothing can overflow or vanish. It
    is also wrong: with a maximum over all keys as stabiliser, a large later key pushes earlier ones
    below it, which leaks the future. Causality works in blocks of 64 tokens, with references that
    only look back; there a feature of a key ends at exp(-80) times its largest. On accelerators
    blocks have 128 tokens and are summed in groups; not causal, both softmaxes are fused
    attentions, with directions in the type of q. The features are fixed: call ``redraw`` in
    training to change them.
    """

    traits = Traits(
        paper="Rethinking Attention with Performers, arXiv 2009.14794",
        year=2020,
        family="kernel",
        arm=True,
        causal=True,
        cross=True,
        permutable=True,
        random=True,
    )
    accelerated = ("fla", "accelerator")

    def __init__(
        self,
        heads: Heads,
        *,
        features: int | None = None,
        feature_map: str = "positive",
        orthogonal: bool = True,
        scaling: str = "random",
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        self.features = features
        self.feature_map = feature_map
        self.orthogonal = orthogonal
        self.scaling = scaling
        self.seed = seed
        for name, known in _CHOICES.items():
            require_choice("performer", name, getattr(self, name), known)
        if features is not None and features < 1:
            raise UsageError(f"performer: features must be at least 1; got {features}")
        count = features or max(1, int(heads.dim * math.log(heads.dim)))
        self.directions = Directions(
            count, heads.dim, seed=seed, orthogonal=orthogonal, equal=scaling == "fixed"
        )

    def redraw(self) -> None:
        """Take the next random directions; which ones follow is part of the saved state."""
        self.directions.redraw()

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Features of queries and keys, then sums over the keys."""
        dtype, chunked = q.dtype, works_in_chunks(q, k, v)
        q, k, v = wide(q), wide(k), wide(v)
        rows = self.directions.rows.to(q.dtype) * self.heads.dim**-0.25
        logs = hidden_logs(mask.keep, k)
        maps = Positive(rows, self.heads.dim**-0.5)
        if self.feature_map == "positive" and not mask.causal:
            return positive_attention(maps, q, k, v, logs, chunked=chunked).to(dtype)
        if self.feature_map == "positive":
            both = FeatureMap(len(rows), lambda q, _: maps.queries(q), lambda k, _: maps.keys(k))
        else:
            both = FeatureMap(
                len(rows), lambda q, _: _relu(q, rows), lambda k, _: (_relu(k, rows), None)
            )
        mixed = feature_attention(both, q, k, v, logs, causal=mask.causal, chunked=chunked)
        return mixed.to(dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The same sums in products over all heads and tokens."""
        return self._at_once(*streams, mask=mask, past=mix_past)

    def mix_fla(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Causal sums by flash-linear-attention."""
        return self._at_once(*streams, mask=mask, past=mix_past_by_fla)

    def limits(self, path: Path, call: Call) -> str:
        """What flash-linear-attention cannot do."""
        return mix_limits(call, len(self.directions.rows)) if path == "fla" else ""

    def _at_once(self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, past: Past) -> Tensor:
        rows, scale = self.directions.rows, self.heads.dim**-0.25
        if self.feature_map == "positive":
            norms = torch.linalg.vector_norm(k, dim=-1, dtype=wide_type(k.dtype))
            logs = norms.square() * (-(scale**2) / 2)
            if mask.keep is not None:
                logs = logs.masked_fill(~mask.keep[:, None], HIDDEN)
            return positive_at_once(rows, q, k, v, logs, scale=scale, causal=mask.causal, past=past)
        if q.dtype == torch.float16:
            q, k = q.float(), k.float()  # sums of these features need more range
        least = _LEAST_FEATURE / scale  # features are all larger by 1 / scale, which cancels
        queries, keys = (((x @ rows.to(x.dtype).t()).add_(least)).clamp_(min=least) for x in (q, k))
        sums = past if mask.causal else mix_all
        return sums(queries, keys, v, Weights(keep=mask.keep))

    def cost(self, work: Workload) -> Cost:
        """Projections, sums and their reading, each a product of tokens, features and dim."""
        count = len(self.directions.rows)
        if self.feature_map == "positive" and not work.causal:
            return positive_cost(work, count)
        features = work.rows * (work.queries + work.keys) * count
        steps = 4 if self.feature_map == "positive" else 2
        return feature_cost(
            work, count, matmul_flops=2 * features * work.dim, other_flops=steps * features
        )


def _relu(x: Tensor, rows: Tensor) -> Tensor:
    return (x @ rows.t()).add_(_LEAST_FEATURE).clamp_(min=_LEAST_FEATURE)
