"""Exact attention with its weights written out: the slow, plain form of ``softmax``."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.recording import report
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import wide


class Eager(Mechanism):
    """Scaled dot-product attention, unfused: the square of weights is stored and can be read.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax over j of q_i . k_j / sqrt(dim).

    Symbols: as in ``softmax``. While a log is open (``sparing.record``) the weights are reported
    under ``weights``, (batch, heads, queries, keys). With ``penalise_entropy`` training reports an
    ``auxiliary_loss``: the mean over queries of -sum_j w_ij log w_ij / log of the keys that i may
    see. It runs from 0, all weight on one key, to 1. ``Recipe.auxiliary`` is its weight.

    Cost: 4 dim flops for each pair, hidden ones included; memory grows with the square of the
    tokens. It equals ``softmax`` always.

    Source: Vaswani et al., 2017, arXiv 1706.03762, equation 1. The penalty is named in HuggingGreen
    (2023) as a sparsity-inducing regularisation, without a formula. What differs: scores and
    softmax run in float32 under half precision; a query that may see no key returns zeros.
    """

    ignores_pads = True
    takes_bias = True
    traits = Traits(
        paper="Attention Is All You Need, arXiv 1706.03762",
        year=2017,
        family="dense",
        causal=True,
        cross=True,
        exact=True,
        permutable=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self, heads: Heads, *, dropout: float = 0.0, penalise_entropy: bool = False
    ) -> None:
        super().__init__(heads)
        self.dropout = dropout
        self.penalise_entropy = penalise_entropy

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Scores, softmax, weighted sum: three steps, each stored."""
        return self._weighted(self._scores(q, k), q, v, mask)

    def mix_biased(  # type: ignore[override]  # the streams, by name
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        bias: Float[Tensor, "#batch heads queries keys"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """The same steps, with the bias added to the scores."""
        return self._weighted(self._scores(q, k) + wide(bias), q, v, mask)

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        return wide(q) @ wide(k).transpose(-1, -2) / math.sqrt(self.heads.dim)

    def _weighted(self, scores: Tensor, q: Tensor, v: Tensor, mask: Mask) -> Tensor:
        allowed = mask.opened(q.shape[2], v.shape[2], q.device)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = scores.softmax(-1)
        report(self, "weights", weights)
        if self.penalise_entropy and self.training:
            report(self, "auxiliary_loss", _entropy(weights, mask))
        weights = F.dropout(weights, self.dropout, self.training)
        return (weights @ wide(v)).to(q.dtype)

    def cost(self, work: Workload) -> Cost:
        """Two products over all pairs; scores and weights are alive together."""
        pairs = work.rows * work.queries * work.keys
        return Cost(
            matmul_flops=4 * pairs * work.dim,
            other_flops=4 * pairs,
            peak_bytes=2 * pairs * max(4, work.element_bytes),
        )


def _entropy(
    weights: Float[Tensor, "batch heads queries keys"], mask: Mask
) -> Float[Tensor, "batch heads"]:
    """The mean entropy of a row as a share of its maximum; padded rows do not count."""
    rows, queries, keys = weights.shape[0], weights.shape[2], weights.shape[3]
    allowed = mask.dense(queries, keys, weights.device)
    seen = weights.new_full((rows, 1, queries), float(keys))
    if allowed is not None:
        seen = allowed.sum(-1).to(weights.dtype).expand(rows, 1, queries)
    # a row of one key has no entropy; entr has no gradient at 0
    entropy = torch.special.entr(weights.clamp_min(torch.finfo(weights.dtype).tiny)).sum(-1)
    share = entropy / seen.clamp_min(2).log() * (seen > 1)
    real = mask.keep_queries(queries)
    counted = torch.ones_like(share[:, :1]) if real is None else real[:, None].to(share.dtype)
    mean: Tensor = (share * counted).sum(-1) / counted.sum(-1).clamp_min(1)
    return mean
