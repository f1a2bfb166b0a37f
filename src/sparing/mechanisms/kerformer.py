"""Kerformer: sigmoid queries, softmax keys, and key weights from a squeeze-and-excitation."""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.execution.fusing import fused
from sparing.core.execution.path import Call, Path
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._kernel import (
    attend,
    feature_cost,
    feature_sums,
    in_cache,
    least_exponent,
)
from sparing.mechanisms._recorded import mapped
from sparing.mechanisms.shared.arithmetic import dots, wide
from sparing.mechanisms.shared.products import HALVES
from sparing.mechanisms.shared.sums.feature_sums import (
    over_all,
    over_past,
    shares_of_all,
    shares_of_past,
    weighed,
    widest,
)
from sparing.mechanisms.shared.sums.fla_sums import fla_limits, past_by_fla

_LEAST_HIDDEN = 4
_CHOICES = {
    "se": ("content", "fixed", "none"),
    "axis": ("feature", "token"),
    "query_map": ("sigmoid", "softmax", "none"),
    "key_map": ("softmax", "none"),
}


class Kerformer(Mechanism):
    """Linear attention with different maps for queries and keys, and a learned weight for each key.

    Formula: out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = w_j (phi(q_i) . psi(k_j)),
    phi = sigmoid, psi = softmax over the features, z = mean over j of psi(k_j), and
    se="content": w_j = sigmoid(sqrt(dim) (B A z) . psi(k_j) + b), B (dim, hidden);
    se="fixed": w_j = sigmoid((B A z)_p + b_p), B (tokens, hidden), p the position of key j;
    se="none": w_j = 1.

    Symbols: i runs over queries, j over the keys that i may see; A (hidden, dim) squeezes, hidden =
    dim / ``reduction`` but at least 4. ``axis="token"`` takes the softmax over the tokens instead;
    z_p is then the mean over the features of key p and A is (hidden, tokens).
    ``query_map="softmax"`` takes it over the features of a query. ``temperature`` divides queries
    and keys first. A and B are shared by all heads and sampled with ``seed``. b starts at 2: all
    weights start near 0.88 and nearly cancel. ``query_map="none"`` and ``key_map="none"`` take
    queries and keys as they are; s_ij then has either sign and its sum may be 0, so the sum of w_j
    alone divides.

    Cost: 4 dim^2 flops for each token and no square, causal or not. With se="none", axis="token"
    and query_map="softmax" it equals Efficient Attention (arXiv 1812.01243).

    Source: Gan et al., 2023, doi 10.3389/fnbot.2023.1214203, equations 6 to 9 and section 3.5. What
    differs: w, which section 3.5 gives to the keys of equation 9, is in both its sums; in the
    numerator alone rows would not sum to 1. The paper weights positions, so its length is fixed:
    that is se="fixed". The default weights keys by their content and takes any length. The paper
    has no bias b and names no ``reduction``. Causal, z is the mean up to key j, and w_j uses that
    z: a z for each query would cost a square. Sigmoid features are in (0, 1) and key features sum
    to 1, so weights are close to uniform unless queries and keys are large. Queries are clamped at
    -40 (for a softmax: below their largest feature), so no denominator underflows. On accelerators
    products stay in half precision and float16 clamps at -9; queries or keys as they are, of either
    sign, are still summed in float32.
    """

    traits = Traits(
        paper="A novel approach to attention mechanism using kernel functions: Kerformer, "
        "doi 10.3389/fnbot.2023.1214203",
        year=2023,
        family="kernel",
        arm=True,
        causal=True,
        cross=True,
        permutable=True,
        random=True,
    )
    spreads_nan = True
    accelerated = ("fla", "accelerator")

    def __init__(
        self,
        heads: Heads,
        *,
        se: str = "content",
        axis: str = "feature",
        query_map: str = "sigmoid",
        key_map: str = "softmax",
        reduction: int = 16,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        self.se = se
        self.axis = axis
        self.query_map = query_map
        self.key_map = key_map
        self.reduction = reduction
        self.temperature = temperature
        self.seed = seed
        self._check_options()
        self.traits = dataclasses.replace(
            type(self).traits,
            causal=axis == "feature",
            any_length=se != "fixed",
            permutable=se != "fixed",
            random=se != "none",
        )
        if se != "none":
            self._create_parameters()

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Map queries and keys, weight the keys, then sums over the keys."""
        self._check_length(k.shape[2])

        def mix_rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            features = self._map_keys(wide(k), keep)
            weights = self._weights(features, keep, mask.causal)
            queries = self._map_queries(wide(q))
            if self._signed():
                return _signed(queries, features, wide(v), weights, causal=mask.causal)
            return attend(queries, features, wide(v), weights, causal=mask.causal)

        return in_cache(mix_rows, q, k, v, mask.keep)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The maps and weights, then a few products for all heads."""
        q, k, v = streams
        self._check_length(k.shape[2])

        def rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            # Sums of both signs cancel, and the softmax of keys cancels most of their gradients.
            recorded = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
            if self._signed() or recorded:
                q, k, v = wide(q), wide(k), wide(v)
            shares, keys = self._shares(q, k, keep, causal=mask.causal)
            return (over_past if mask.causal else over_all)(shares, keys, v)

        return fused(rows)(q, k, v, mask.keep).to(q.dtype)

    def mix_fla(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Causal sums by flash-linear-attention."""
        q, k, v = streams
        self._check_length(k.shape[2])

        def rows(q: Tensor, k: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
            return self._shares(q, k, keep, causal=True)

        shares, keys = fused(rows)(q, k, mask.keep)
        return past_by_fla(shares, keys, v)

    def limits(self, path: Path, call: Call) -> str:
        """What flash-linear-attention cannot do."""
        if path == "fla" and call.recorded and call.dtype in HALVES:
            return "most of the keys' gradient cancels: in half precision it needs float32"
        if path == "fla" and self._signed():
            return "features of both signs are summed in float32"
        return fla_limits(call, call.dim) if path == "fla" else ""

    def _signed(self) -> bool:
        return "none" in (self.query_map, self.key_map)

    def _shares(
        self, q: Tensor, k: Tensor, keep: Tensor | None, *, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """Mapped queries over their denominators, and mapped keys times their weights."""
        dtype, exact = k.dtype, widest(k.dtype)
        real = None if keep is None else keep[:, None].to(exact)
        features = self._map_keys(k.to(exact) if self.axis == "token" else k, keep)
        queries = self._map_queries(q)
        if self.se == "none":
            weights = real
        elif self.axis == "token":
            weights = self._fixed_weights(features, real, keep, causal)
        else:
            weights = self._quick_weights(features, real, keep, causal)
        if weights is not None and real is not None:
            weights = weights * real
        if self._signed():
            totals = _weight_totals(features, weights, q.shape[2], causal=causal)
            keys = features if weights is None else features * weights[..., None]
            return queries / totals[..., None], keys
        keys, _ = weighed(features.to(dtype), weights)
        return (shares_of_past if causal else shares_of_all)(queries, keys), keys

    def _quick_weights(
        self, features: Tensor, real: Tensor | None, keep: Tensor | None, causal: bool
    ) -> Tensor:
        """``_weights`` for axis="feature", in the widest type: means are taken of few numbers.

        The squeeze is linear, so it comes before the mean, and before the running one if causal.
        """
        exact = widest(features.dtype)
        squeezed = F.linear(features, self.squeeze.to(features.dtype))
        hidden = _quick_mean(squeezed, real, causal)
        if self.se == "fixed":
            positions = _positions(features, keep)
            excited = (hidden * self.excite.to(exact)[positions][:, None]).sum(-1)
            return (excited + self.bias.to(exact)[positions][:, None]).sigmoid()
        outputs = features @ self.excite.to(features.dtype)
        logits = (hidden * outputs).sum(-1) * math.sqrt(self.heads.dim)
        return (logits + self.bias.to(exact)).sigmoid()

    def cost(self, work: Workload) -> Cost:
        """The sums over the keys, the two small layers of the excitation, and the maps."""
        dim, keys = work.dim, work.keys
        pools = keys if work.causal else 1
        matmul_flops = other_flops = params = 0
        if self.se != "none":
            hidden, pooled = self.squeeze.shape
            matmul_flops = 2 * hidden * (keys if self.axis == "token" else pools * pooled)
            other_flops = keys * (3 * dim + 2)
            params = self.squeeze.numel() + self.excite.numel() + self.bias.numel()
        if self.se == "content":
            matmul_flops += 2 * pools * hidden * dim
            other_flops += 2 * keys * dim if work.causal else 0
            matmul_flops += 0 if work.causal else 2 * keys * dim
        if self.se == "fixed":
            other_flops += 2 * keys * hidden
        return feature_cost(
            work,
            key_copies=1 if self.se == "none" else 2,
            matmul_flops=work.rows * matmul_flops,
            other_flops=work.rows * (other_flops + 4 * (work.queries + keys) * dim),
            params=params,
        )

    def _check_options(self) -> None:
        for name, known in _CHOICES.items():
            require_choice("kerformer", name, getattr(self, name), known)
        if self.reduction < 1 or not self.temperature > 0:
            raise UsageError("kerformer: reduction must be at least 1 and temperature above 0")
        if self.axis == "token" and self.key_map == "none":
            raise UsageError("kerformer: key_map='none' has no axis; leave axis='feature'")
        if self.axis == "token" and self.se == "content":
            raise Unsupported(
                "kerformer: axis='token' has no se='content' (its excitation is one number for "
                "each position); take se='fixed' or se='none'"
            )
        if self.se == "fixed" and self.heads.tokens is None:
            raise UsageError("kerformer: se='fixed' needs Heads(tokens=...), the longest sequence")

    def _check_length(self, keys: int) -> None:
        if is_traced() or self.se != "fixed":
            return
        assert self.heads.tokens is not None
        if keys > self.heads.tokens:
            raise Unsupported(
                f"kerformer: se='fixed' has weights for {self.heads.tokens} tokens; got {keys}; "
                "build it with more Heads.tokens, or take se='content'"
            )

    def _create_parameters(self) -> None:
        """Two layers with torch's initialisation of linear ones, but from a private generator."""
        tokens = self.heads.tokens or 0
        pooled = tokens if self.axis == "token" else self.heads.dim
        outputs = tokens if self.se == "fixed" else self.heads.dim
        hidden = max(min(_LEAST_HIDDEN, pooled), pooled // self.reduction)
        generator = torch.Generator().manual_seed(self.seed)
        self.squeeze = _uniform((hidden, pooled), generator)
        self.excite = _uniform((outputs, hidden), generator)
        self.bias = nn.Parameter(torch.full((outputs if self.se == "fixed" else 1,), 2.0))

    def _map_queries(self, q: Tensor) -> Tensor:
        q = q if self.temperature == 1 else q / self.temperature
        if self.query_map == "none":
            return q
        if self.query_map == "softmax":
            return (q - q.amax(-1, keepdim=True)).clamp(min=least_exponent(q.dtype)).softmax(-1)
        least = least_exponent(q.dtype)
        return mapped(lambda x: x.clamp(min=least).sigmoid_(), lambda value: value * (1 - value), q)

    def _map_keys(self, k: Tensor, keep: Tensor | None) -> Tensor:
        k = k if self.temperature == 1 else k / self.temperature
        if self.key_map == "none":
            return k
        if self.axis == "feature":
            return k.softmax(-1)
        if keep is not None:
            k = k.masked_fill(~keep[:, None, :, None], torch.finfo(k.dtype).min)
        return k.softmax(-2)

    def _weights(self, features: Tensor, keep: Tensor | None, causal: bool) -> Tensor | None:
        """w for each key, (batch, heads or 1, keys), zero at pads; None where all are 1."""
        real = None if keep is None else keep[:, None].to(features.dtype)
        if self.se == "none":
            return real
        if self.se == "content":
            weights = self._content_weights(features, real, causal)
        else:
            weights = self._fixed_weights(features, real, keep, causal)
        return weights if real is None else weights * real

    def _content_weights(self, features: Tensor, real: Tensor | None, causal: bool) -> Tensor:
        hidden = F.linear(_mean(features, real, causal), self.squeeze.to(features.dtype))
        gates = F.linear(hidden, self.excite.to(features.dtype)) * math.sqrt(self.heads.dim)
        logits = (gates * features).sum(-1) if causal else dots(features, gates[:, :, 0])
        return (logits + self.bias.to(features.dtype)).sigmoid()

    def _fixed_weights(
        self, features: Tensor, real: Tensor | None, keep: Tensor | None, causal: bool
    ) -> Tensor:
        """The position of a key is counted from its sample's first real token."""
        positions = _positions(features, keep)
        squeeze = self.squeeze.to(features.dtype)
        if self.axis == "token":
            pooled = features.mean(-1) if real is None else features.mean(-1) * real
            hidden = pooled[:, :, None] @ squeeze.t()[positions][:, None]
        else:
            hidden = F.linear(_mean(features, real, causal), squeeze)
        excite = self.excite.to(features.dtype)[positions][:, None]
        bias = self.bias.to(features.dtype)[positions][:, None]
        return ((hidden * excite).sum(-1) + bias).sigmoid()


def _signed(
    queries: Tensor, keys: Tensor, v: Tensor, weights: Tensor | None, *, causal: bool
) -> Tensor:
    """``attend`` for features of any sign: divided by the weights' sum over the keys seen."""
    mixed, _ = feature_sums(queries, keys, v, weights, causal=causal)
    return mixed / _weight_totals(keys, weights, queries.shape[2], causal=causal)[..., None]


def _weight_totals(keys: Tensor, weights: Tensor | None, count: int, *, causal: bool) -> Tensor:
    """The sum of the weights of the keys that each query sees, never zero."""
    if weights is None:
        weights = torch.ones_like(keys[:1, :1, :, 0], dtype=widest(keys.dtype))
    if causal:
        totals = weights.cumsum(-1)[..., weights.shape[-1] - count :]
    else:
        totals = weights.sum(-1, keepdim=True)
    return totals.clamp_min(torch.finfo(totals.dtype).tiny)


def _positions(features: Tensor, keep: Tensor | None) -> Int[Tensor, "rows keys"]:
    """Of each key, counted from its sample's first real token."""
    positions = torch.arange(features.shape[2], device=features.device)[None]
    if keep is None:
        return positions
    return (positions - Mask(keep).first()[:, None]).clamp(min=0)


def _quick_mean(values: Tensor, real: Tensor | None, causal: bool) -> Tensor:
    """``_mean`` in the widest type, (batch, heads, keys or 1, values), for few values.

    The running sums go along memory: the other way they would go through the tokens one by one.
    """
    across = values.mT.to(widest(values.dtype), memory_format=torch.contiguous_format)
    if real is not None:
        across = across * real[:, :, None]
    sums = across.cumsum(-1) if causal else across.sum(-1, keepdim=True)
    counts = torch.ones_like(across[:1, 0, 0]) if real is None else real[:, 0]
    counts = counts.cumsum(-1) if causal else counts.sum(-1, keepdim=True)
    return (sums / counts.clamp_min(1)[:, None, None]).mT


def _uniform(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    """A weight between -1/sqrt(inputs) and 1/sqrt(inputs)."""
    drawn = torch.rand(shape, generator=generator, device="cpu") * 2 - 1
    weight = torch.empty(shape)
    return nn.Parameter(weight.copy_(drawn / math.sqrt(shape[1])))


def _mean(features: Tensor, real: Tensor | None, causal: bool) -> Tensor:
    """Mean over real keys, (batch, heads, 1, dim); causal: up to each key, one for each."""
    if real is not None:
        features = features * real[..., None]
    if not causal:
        if real is None:
            return features.mean(2, keepdim=True)
        return features.sum(2, keepdim=True) / real.sum(-1).clamp_min(1)[:, :, None, None]
    counts = torch.ones_like(features[:1, :1, :, 0]) if real is None else real
    return features.cumsum(2) / counts.cumsum(-1).clamp_min(1)[..., None]
