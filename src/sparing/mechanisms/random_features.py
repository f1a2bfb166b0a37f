"""Random feature attention (RFA): a Gaussian kernel of unit vectors, and a gate on the past."""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

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
from sparing.mechanisms.shared.arithmetic import dots, wide
from sparing.mechanisms.shared.products import in_parts, recorded, wide_type
from sparing.mechanisms.shared.sums.fla_sums import mix_limits, mix_past_by_fla
from sparing.mechanisms.shared.sums.past import Past, Weights, mix_all, mix_past

_FEATURE_MAPS = ("trigonometric", "positive")
_STARTING_GATE = 3.0
_LEAST_SQUARE = 1e-24
"""Added to mean squares, so that a zero is divided by a number."""

_LEAST_LENGTH = 1e-12
"""Lengths are at least this, for the same reason."""


class RandomFeatures(Mechanism):
    """Softmax attention of unit queries and keys, estimated with random features.

    Formula: out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = a_ij phi(q_i) . phi(k_j),
    phi(x) = [sin(n_r . y), cos(n_r . y)] / sqrt(features), y = sigma x / (|x| temperature); its
    mean over n is exp(-|y_q - y_k|^2 / 2): softmax's weight exp(y_q . y_k) where sigma is 1.
    gate=False: a_ij = 1; gate=True: a_ij = (1 - g_j) g_(j+1) ... g_i with
    g_j = sigmoid(u . k_j + b), the sums of the recurrence S_j = g_j S_(j-1) + (1 - g_j) phi(k_j).

    Symbols: i runs over queries, j over the keys that i may see, r over ``features`` normal
    directions n_r. They are sampled with ``seed``, the same for all heads, and ``orthogonal`` in
    groups of dim on request; sigma, learned, is a vector for each head that starts at 1; u and b,
    learned for each head, start at 0 and 3, which is g = 0.95. ``feature_map="positive"`` takes
    phi(x)_r = exp(n_r . y - |y|^2 / 2). ``redraw`` takes the next directions.

    Cost: 12 features x dim flops and 4 x features sines and cosines for each token (positive
    features: 8 features x dim flops and 2 x features exponentials); no square. As features grows it
    tends to ``softmax`` of y, unscaled.

    Source: Peng et al., 2021, arXiv 2103.02143, sections 2.2, 3.1 and 3.2. What differs: sines may
    cancel, so a denominator may be 0 or negative, though its mean is not. It is kept ``floor``
    times the sum of a_ij away from zero, with its sign; the mean is at least exp(-2 /
    temperature^2) times that sum where sigma is 1. The authors' code raises it to 1, which shrinks
    outputs of short rows and flips those of negative sums. It also scales features by 0.1. The gate
    reads a head's key instead of the layer's input: both belong to the token, but a head sees only
    its part of the input. Accelerators round y of sines to the type of q. The paper leaves the form
    without causality open. Here all queries then read the sums after the last key, as the last
    query does in the causal form. The paper takes one of 500 samples for each batch: call
    ``redraw`` in training to do so.
    """

    traits = Traits(
        paper="Random Feature Attention, arXiv 2103.02143",
        year=2021,
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
        features: int = 64,
        feature_map: str = "trigonometric",
        gate: bool = False,
        temperature: float = 1.0,
        floor: float = 0.01,
        orthogonal: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        require_choice("random_features", "feature_map", feature_map, _FEATURE_MAPS)
        if features < 1:
            raise UsageError(f"random_features: features must be at least 1; got {features}")
        if not temperature > 0 or not 0 < floor < 1:
            raise UsageError(
                "random_features: temperature must be above 0 and floor between 0 and 1; got "
                f"{temperature} and {floor}"
            )
        self.features = features
        self.feature_map = feature_map
        self.gate = gate
        self.temperature = temperature
        self.floor = floor
        self.orthogonal = orthogonal
        self.seed = seed
        self.traits = dataclasses.replace(type(self).traits, permutable=not gate)
        self.directions = Directions(
            features, heads.dim, seed=seed, orthogonal=orthogonal, equal=False
        )
        self.sigma = nn.Parameter(torch.ones(heads.count, 1, heads.dim))
        if gate:
            self.gate_weight = nn.Parameter(torch.zeros(heads.count, heads.dim))
            self.gate_bias = nn.Parameter(torch.full((heads.count, 1), _STARTING_GATE))

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
        dtype, chunked = q.dtype, works_in_chunks(q, k, v, *self.parameters())
        q, k, v = wide(q), wide(k), wide(v)
        logs = hidden_logs(mask.keep, k)
        logs = self._gate_logs(k, logs) if self.gate else logs
        rows = self.directions.rows.to(q.dtype)
        if self.feature_map == "positive" and not mask.causal:
            q, k = (self._unit(x, slice(None)) for x in (q, k))
            return positive_attention(Positive(rows, 1.0), q, k, v, logs, chunked=chunked).to(dtype)
        maps = self._maps(rows)
        mixed = feature_attention(maps, q, k, v, logs, causal=mask.causal, chunked=chunked)
        return mixed.to(dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The same sums in products over all heads and tokens."""
        return self._at_once(*streams, mask=mask, past=mix_past)

    def mix_fla(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Causal sums by flash-linear-attention."""
        return self._at_once(*streams, mask=mask, past=mix_past_by_fla)

    def limits(self, path: Path, call: Call) -> str:
        """What flash-linear-attention cannot do."""
        count = self.features * (2 if self.feature_map == "trigonometric" else 1)
        return mix_limits(call, count) if path == "fla" else ""

    def _at_once(self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, past: Past) -> Tensor:
        logs = None
        if self.gate:
            logs = self._gate_logs(wide(k), hidden_logs(mask.keep, wide(k)))
        if self.feature_map == "positive":
            logs = hidden_logs(mask.keep, wide(k)) if logs is None else logs
            exact = [self._unit(wide(x), slice(None)) for x in (q, k)]
            logs = logs - exact[1].square().sum(-1) / 2
            q, k = (torch.cat(in_parts(x, q.dtype, 2), -1) for x in exact)
            rows = self.directions.rows.repeat(1, q.shape[-1] // self.heads.dim)
            return positive_at_once(rows, q, k, v, logs, scale=1.0, causal=mask.causal, past=past)
        queries, keys = self._waves_at_once(q, k)
        weights = Weights(logs, None if self.gate else mask.keep, self.floor * self.features)
        return (past if mask.causal else mix_all)(queries, keys, v, weights)

    def cost(self, work: Workload) -> Cost:
        """Projections, sums and their reading, each a product of tokens, features and dim."""
        tokens = work.rows * (work.queries + work.keys)
        params = sum(parameter.numel() for parameter in self.parameters())
        gates = 2 * work.rows * work.keys * work.dim if self.gate else 0
        if self.feature_map == "positive" and not work.causal:
            cost = positive_cost(
                work, self.features, other_flops=4 * tokens * work.dim, params=params
            )
            return dataclasses.replace(cost, matmul_flops=cost.matmul_flops + gates)
        count = self.features * (2 if self.feature_map == "trigonometric" else 1)
        return feature_cost(
            work,
            count,
            matmul_flops=2 * tokens * self.features * work.dim + gates,
            other_flops=tokens * (4 * work.dim + 4 * self.features),
            params=params,
        )

    def _maps(self, rows: Tensor) -> FeatureMap:
        """Feature maps without the factor 1 / sqrt(features), which cancels.

        The floor includes the factor.
        """
        if self.feature_map == "positive":
            maps = Positive(rows, 1.0)
            return FeatureMap(
                self.features,
                lambda q, heads: maps.queries(self._unit(q, heads)),
                lambda k, heads: maps.keys(self._unit(k, heads)),
            )
        return FeatureMap(
            2 * self.features,
            lambda q, heads: _waves(self._unit(q, heads), rows.t()),
            lambda k, heads: (_waves(self._unit(k, heads), rows.t()), None),
            floor=self.floor * self.features,
        )

    def _unit(self, x: Tensor, heads: slice) -> Tensor:
        return F.normalize(x, dim=-1) * (self.sigma[heads].to(x.dtype) / self.temperature)

    def _waves_at_once(self, *streams: Tensor) -> list[Tensor]:
        """sin and cos of n_r . y for each stream, with directions that include sigma."""
        like, dim = streams[0], self.heads.dim
        sigma = self.sigma.to(wide_type(like.dtype)) / self.temperature
        if recorded(*streams, sigma):
            rows = (self.directions.rows * (sigma / math.sqrt(dim))).to(like.dtype)
            roots = (F.rms_norm(x, (dim,), eps=_LEAST_SQUARE) for x in streams)  # length sqrt(dim)
            return [_waves(x, rows.mT) for x in roots]
        # Rows for each sample, in one operation: a product would copy them.
        rows = like.new_empty(*like.shape[:2], self.features, dim)
        torch.mul(self.directions.rows, sigma.expand(len(like), -1, -1, -1), out=rows)
        return [_waves_of_units(x, rows.mT) for x in streams]

    def _gate_logs(self, k: Tensor, logs: Tensor) -> Tensor:
        """log((1 - g_j) / (g_1 ... g_j)): a_ij up to a factor that depends on i.

        Pads have g = 1. In float64, because differences of long sums are taken.
        """
        weight = self.gate_weight.to(k.dtype).expand(k.shape[0], -1, -1)
        scores = (dots(k, weight) + self.gate_bias.to(k.dtype)).double()
        hidden = logs < 0
        retained = F.logsigmoid(scores).masked_fill(hidden, 0).cumsum(-1)
        return (F.logsigmoid(-scores) - retained).masked_fill(hidden, HIDDEN)


def _waves(x: Tensor, columns: Tensor) -> Tensor:
    phases = x @ columns
    return torch.cat([phases.sin(), phases.cos()], -1)


def _waves_of_units(
    x: Float[Tensor, "batch heads tokens dim"], columns: Float[Tensor, "batch heads dim count"]
) -> Float[Tensor, "batch heads tokens twice"]:
    """``_waves`` of x / |x|, each result written only once: without gradients."""
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide_type(x.dtype))
    units = torch.div(x, lengths.clamp_min_(_LEAST_LENGTH), out=torch.empty_like(x))
    phases = units @ columns
    count = phases.shape[-1]
    waves = phases.new_empty(*phases.shape[:-1], 2 * count)
    torch.sin(phases, out=waves[..., :count])
    torch.cos(phases, out=waves[..., count:])
    return waves
