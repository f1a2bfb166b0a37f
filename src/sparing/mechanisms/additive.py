"""Additive attention: scores from a small network with one hidden layer instead of a product."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._pairs import attend_by_scores, held_bytes
from sparing.mechanisms.shared.arithmetic import dots, wide
from sparing.mechanisms.shared.pairs.squares import attend_to_square


class Additive(Mechanism):
    """Attention with scores from a small network over query and key.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax over j of u . tanh(A q_i + B k_j + b).

    Symbols: i runs over queries, j over the keys that i may see; every head has its own A and B
    (hidden, dim), b and u (hidden), sampled with ``seed``; hidden = ``hidden_dim`` (None is dim).

    Cost: for each pair 2 dim + 2 hidden flops and as many hyperbolic tangents as hidden features,
    which take most of the time. Quadratic, and dearer than softmax at every length. There is no
    setting in which it equals softmax; it equals its own loops.

    Source: Bahdanau, Cho and Bengio, 2014, arXiv 1409.0473, section 3.1 and appendix A.1.2. What
    differs: queries are the tokens', not a decoder's state, and each head has a network of its own.
    A few queries run at a time, so queries x keys x hidden numbers are never stored at once. On an
    accelerator as many run as its memory takes, in the inputs' type.
    Pooling with one learned query is a layer's, not a mechanism's.
    """

    traits = Traits(
        paper="Neural Machine Translation by Jointly Learning to Align and Translate, "
        "arXiv 1409.0473",
        year=2014,
        family="dense",
        causal=True,
        cross=True,
        permutable=True,
        random=True,
    )
    accelerated = ("accelerator",)

    def __init__(self, heads: Heads, *, hidden_dim: int | None = None, seed: int = 0) -> None:
        super().__init__(heads)
        if hidden_dim is not None and hidden_dim < 1:
            raise UsageError(f"additive: hidden_dim must be at least 1; got {hidden_dim}")
        self.hidden_dim = hidden_dim
        self.seed = seed
        hidden, generator = hidden_dim or heads.dim, torch.Generator().manual_seed(seed)
        self.query_weight = _uniform((heads.count, hidden, heads.dim), heads.dim, generator)
        self.key_weight = _uniform((heads.count, hidden, heads.dim), heads.dim, generator)
        self.bias = nn.Parameter(torch.zeros(heads.count, hidden))
        self.score_weight = _uniform((heads.count, hidden), hidden, generator)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Project once, then compare some queries at a time with all their keys."""
        queries, keys = self._projected(wide(q), wide(k))
        mixed = attend_by_scores(self._scores, queries, keys, wide(v), mask, keys.shape[3])
        return mixed.to(q.dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """As many queries at a time as memory takes."""
        q, k, v = streams
        queries, keys = self._projected(q, k)
        return attend_to_square(self._scores, queries, keys, v, mask, keys.shape[3])

    def cost(self, work: Workload) -> Cost:
        """Two projections, and for each pair a sum, a tangent, a product, and the value's share."""
        pairs, hidden = work.rows * work.queries * work.keys, self.hidden_dim or work.dim
        tokens = work.rows * (work.queries + work.keys)
        wide_bytes = max(4, work.element_bytes)
        held = tokens * hidden + 2 * work.rows * work.queries * work.dim
        return Cost(
            matmul_flops=2 * tokens * hidden * work.dim + 2 * pairs * (hidden + work.dim),
            other_flops=pairs * (2 * hidden + 4) + work.rows * work.queries * hidden,
            peak_bytes=held_bytes(work, hidden) + held * wide_bytes,
            params=work.heads * hidden * (2 * work.dim + 2),
        )

    def _projected(
        self, q: Float[Tensor, "batch heads queries dim"], k: Float[Tensor, "batch heads keys dim"]
    ) -> tuple[
        Float[Tensor, "batch heads queries hidden"], Float[Tensor, "batch heads keys hidden"]
    ]:
        query_weight, key_weight = (
            weight.to(q.dtype).transpose(-1, -2) for weight in (self.query_weight, self.key_weight)
        )
        return q @ query_weight + self.bias.to(q.dtype)[:, None], k @ key_weight

    def _scores(
        self,
        queries: Float[Tensor, "batch some_heads queries hidden"],
        keys: Float[Tensor, "batch some_heads keys hidden"],
        heads: slice,
    ) -> Float[Tensor, "batch some_heads queries keys"]:
        seen = (queries[:, :, :, None] + keys[:, :, None]).tanh_()
        weight = self.score_weight[heads].to(seen.dtype)[None, :, None]
        return dots(seen, weight.expand(*seen.shape[:3], -1))


def _uniform(shape: tuple[int, ...], inputs: int, generator: torch.Generator) -> nn.Parameter:
    """Uniform random numbers between -1/sqrt(inputs) and 1/sqrt(inputs)."""
    drawn = torch.rand(shape, generator=generator, device="cpu") * 2 - 1
    return nn.Parameter(torch.empty(shape).copy_(drawn / math.sqrt(inputs)))
