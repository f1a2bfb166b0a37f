"""Linear attention with elu + 1 features: the keys are summed once, for all queries."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from sparing.core.execution.fusing import fused
from sparing.core.execution.path import Call, Path
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._kernel import attend, feature_cost, in_cache, positive
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.sums.feature_sums import (
    over_all,
    over_past,
    shares_of_all,
    shares_of_past,
    weighed,
    widest,
)
from sparing.mechanisms.shared.sums.fla_sums import fla_limits, past_by_fla


class Linear(Mechanism):
    """Attention with dot products of positive features as weights, in time linear in tokens.

    Formula: out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = phi(q_i) . phi(k_j) and
    phi(x) = elu(x) + 1.

    Symbols: i runs over queries, j over the keys that i may see; phi works on each element.

    Cost: 4 dim^2 flops for each token and no square, causal or not. There is no setting in which it
    equals softmax; it equals its own square form, with s written out.

    Source: Katharopoulos et al., 2020, arXiv 2006.16236, equations 5 to 7 (causal: 8 to 12). What
    differs: phi is max(x, 0) + exp(min(x, 0)), since expm1(x) + 1 rounds small features away. It
    ends at exp(-40), so no denominator underflows; the paper's 1e-6 in the denominator is not
    needed, and rows sum to 1. Causality works in blocks of 64 tokens instead of token by token: the
    same sums, without a dim x dim state for each token. On accelerators products stay in half
    precision, and in float16 phi ends at exp(-9).
    """

    traits = Traits(
        paper="Transformers are RNNs: Fast Autoregressive Transformers, arXiv 2006.16236",
        year=2020,
        family="kernel",
        arm=True,
        causal=True,
        cross=True,
        permutable=True,
    )
    spreads_nan = True
    gains_by_compiling = "always"
    accelerated = ("fla", "accelerator")

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Features of queries and keys, then sums over the keys."""

        def mix_rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            features = positive(wide(k))
            weights = None if keep is None else keep[:, None].to(features.dtype)
            return attend(positive(wide(q)), features, wide(v), weights, causal=mask.causal)

        return in_cache(mix_rows, q, k, v, mask.keep)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """All heads in a few products, in the inputs' type."""
        q, k, v = streams

        def rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            shares, keys = _shares(q, k, keep, causal=mask.causal)
            return (over_past if mask.causal else over_all)(shares, keys, v)

        return fused(rows)(q, k, v, mask.keep)

    def mix_fla(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Causal sums by flash-linear-attention."""
        q, k, v = streams

        def rows(q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
            return _shares(q, k, keep, causal=True)

        shares, keys = fused(rows)(q, k, mask.keep)
        return past_by_fla(shares, keys, v)

    def limits(self, path: Path, call: Call) -> str:
        """What flash-linear-attention cannot do."""
        return fla_limits(call, call.dim) if path == "fla" else ""

    def cost(self, work: Workload) -> Cost:
        """Two products with a dim x dim state; four operations for each feature."""
        features = work.rows * (work.queries + work.keys) * work.dim
        return feature_cost(work, other_flops=4 * features)


def _shares(q: Tensor, k: Tensor, keep: Tensor | None, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Features of queries over their denominators, and features of keys."""
    weights = None if keep is None else keep[:, None].to(widest(k.dtype))
    keys, _ = weighed(positive(k), weights)
    return (shares_of_past if causal else shares_of_all)(positive(q), keys), keys
