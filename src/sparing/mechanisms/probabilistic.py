"""Probabilistic attention: keys and values as a mixture of Gaussians, queries inferred by EM."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms.shared.arithmetic import fused_softmax, wide
from sparing.mechanisms.shared.products import in_parts


@dataclass(frozen=True)
class Known:
    """Values that are given at ``positions``; ``values`` None means each position's own v."""

    positions: Bool[Tensor, "batch queries"]
    values: Float[Tensor, "batch heads queries dim"] | None = None


class Probabilistic(Mechanism):
    """Each key and value is a Gaussian of a mixture; the output is a query's most probable value.

    Formula: w_ij proportional to pi_j exp(-a |q_i - z_j|^2 / 2) exp(-b |o_i - m_j|^2 / 2) over j,
    out_i = o_i = sum_j w_ij m_j, with z = k and m = v unless they are adapted:
    ``key_adaptation`` times: z_j = (t k_j + a sum_i w_ij q_i) / (t + a sum_i w_ij), w with b = 0;
    known o_i, i in F (``values_known``), ``value_propagation`` times:
    m_j = (u v_j + b sum_F w_ij o_i) / (u + b sum_F w_ij).
    ``value_adaptation`` times the same with every i in F and o_i = v_i; the outputs are inferred.

    Symbols: i runs over queries, j over the keys that i may see; a = ``precision`` (None is
    1/sqrt(dim)), b = ``value_precision``, t = ``key_prior``, u = ``value_prior``;
    ``prior="magnitude"`` is pi_j proportional to exp(a |k_j|^2 / 2), ``"uniform"`` the same for
    all. With b = 0, o is one sum. With b above 0 it is on both sides: ``value_iterations``
    steps of EM from the answer for b = 0, each of which raises the probability of o.

    Cost: as softmax with the defaults, and fused; every iteration adds 4 dim flops for each pair
    and stores a square of weights. Never cheaper than softmax. With the defaults it is softmax;
    with a uniform prior it is for keys of equal norm.

    Source: Movellan and Gabbur, 2020, arXiv 2010.15583; value propagation also arXiv 2106.15338.
    What differs: everything runs in log space, with no constant in a denominator. The prior pi
    stays that of the given keys and values while z and m are adapted. The means are pulled to the
    given k and v, so each step is one of EM. The authors' code recomputes both from the adapted
    ones, and its magnitude prior cancels the norm of m too. Adapting keys or values mixes all
    queries: then it is not causal, and padded queries do not count. Adapted values are those of
    self-attention, where a query has a value of its own.
    """

    traits = Traits(
        paper="Probabilistic Transformers, arXiv 2010.15583",
        year=2020,
        family="dense",
        causal=True,
        cross=True,
        exact=True,
        permutable=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        precision: float | None = None,
        prior: str = "magnitude",
        value_precision: float = 0.0,
        value_iterations: int = 1,
        value_prior: float = 1.0,
        value_propagation: int = 1,
        value_adaptation: int = 0,
        key_adaptation: int = 0,
        key_prior: float = 1.0,
    ) -> None:
        super().__init__(heads)
        self.precision = precision
        self.prior = prior
        self.value_precision = value_precision
        self.value_iterations = value_iterations
        self.value_prior = value_prior
        self.value_propagation = value_propagation
        self.value_adaptation = value_adaptation
        self.key_adaptation = key_adaptation
        self.key_prior = key_prior
        self.known: Known | None = None
        self._check_options()
        plain = value_precision == 0 and key_adaptation == 0 and prior == "magnitude"
        self.traits = dataclasses.replace(
            type(self).traits,
            causal=key_adaptation == 0 and value_adaptation == 0,
            cross=value_adaptation == 0,
            permutable=value_adaptation == 0,
            exact=plain and math.isclose(self._alpha, 1 / math.sqrt(heads.dim)),
        )

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """One fused call where no EM is needed, else the steps with their weights written out."""
        if self.value_precision == 0 and self.key_adaptation == 0 and self.known is None:
            return self._mix_fused(q, k, v, mask)
        known = self._checked_known(v, mask, q.shape[2])
        return self._mix_steps(wide(q), wide(k), wide(v), mask, known).to(q.dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The fused call in the type of the inputs; the steps of EM as they are."""
        q, k, v = streams
        if self.value_precision or self.key_adaptation or self.known is not None:
            return self.mix(q, k, v, mask=mask)
        dim = q.shape[3]
        if self.prior == "uniform":
            q, k, v = _with_norms(q, k, v)
        square = mask.causal and mask.keep is None and q.shape[2] == k.shape[2]
        allowed = None if square else mask.opened(q.shape[2], k.shape[2], q.device)
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, allowed, is_causal=square, scale=self._alpha
        )
        return mixed[..., :dim].to(streams[0].dtype)

    def cost(self, work: Workload) -> Cost:
        """One product for scores, one for values, two more for each EM step.

        Fused, the kernel skips what causality hides. ``values_known`` comes on top, in its calls.
        """
        wide_bytes = max(4, work.element_bytes)
        outputs = work.rows * work.queries * work.dim
        if self.value_precision == 0 and self.key_adaptation == 0:
            dim = work.dim + (self.prior == "uniform")
            pairs = work.rows * work.visible_pairs
            peak_bytes = outputs * work.element_bytes
            if self.prior == "uniform":
                peak_bytes += work.rows * dim * 2 * (work.queries + work.keys) * wide_bytes
            return Cost(4 * pairs * dim, 4 * pairs, peak_bytes)
        steps = self.key_adaptation + self.value_adaptation
        steps += self.value_iterations if self.value_precision else 0
        pairs = work.rows * work.queries * work.keys
        return Cost(
            matmul_flops=4 * pairs * work.dim * (1 + steps),
            other_flops=6 * pairs * (1 + steps),
            peak_bytes=3 * pairs * wide_bytes + outputs * work.element_bytes,
        )

    @property
    def _alpha(self) -> float:
        return 1 / math.sqrt(self.heads.dim) if self.precision is None else self.precision

    def _check_options(self) -> None:
        require_choice("probabilistic", "prior", self.prior, ("magnitude", "uniform"))
        for name in ("precision", "key_prior", "value_prior"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"probabilistic: {name} must be above 0; got {value}")
        for name in ("value_precision", "key_adaptation", "value_adaptation"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise UsageError(f"probabilistic: {name} must not be below 0; got {value}")
        if self.value_iterations < 1 or self.value_propagation < 1:
            raise UsageError(
                "probabilistic: value_iterations and value_propagation must be at least 1"
            )
        if self.value_adaptation and not self.value_precision:
            raise UsageError("probabilistic: value_adaptation needs value_precision above 0")

    def _mix_fused(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Fused attention; a uniform prior is added as one more feature.

        As an additive mask it would cost a square of scores where gradients are recorded.
        """
        queries, keys, dim = q.shape[2], k.shape[2], q.shape[3]
        scaled = q
        if self.prior == "uniform":
            scaled = wide(q) * (self._alpha * math.sqrt(dim + 1))
            scaled = torch.cat([scaled, torch.full_like(scaled[..., :1], math.sqrt(dim + 1))], -1)
            k = wide(k)
            k = torch.cat([k, k.square().sum(-1, keepdim=True) * (-self._alpha / 2)], -1)
            v = nn.functional.pad(wide(v), (0, 1))
        elif self.precision is not None:
            scaled = q * (self._alpha * math.sqrt(dim))
        if mask.causal and mask.keep is None and queries == keys:
            mixed = fused_softmax(scaled, k, v, causal=True)
        else:
            mixed = fused_softmax(scaled, k, v, mask.dense(queries, keys, q.device))
        return mixed[..., :dim].to(q.dtype)

    def _mix_steps(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, known: Known | None
    ) -> Tensor:
        allowed = mask.dense(q.shape[2], k.shape[2], q.device)
        if allowed is not None:
            allowed = allowed | ~allowed.any(-1, keepdim=True)
        norms = (k.square().sum(-1) * (self._alpha / 2))[:, :, None]
        prior = norms if self.prior == "magnitude" else torch.zeros_like(norms)
        real = mask.keep_queries(q.shape[2])
        means = self._adapted_keys(q, k, prior, allowed, real)
        scores = _gaussian_scores(q, means, self._alpha) + prior
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        values = self._adapted_values(scores, v, known, real)
        mixed = scores.softmax(-1) @ values
        for _ in range(self.value_iterations if self.value_precision else 0):
            agreement = _gaussian_scores(mixed, values, self.value_precision)
            mixed = (scores + agreement).softmax(-1) @ values
        if known is None or known.values is None:
            return mixed
        return known.values.to(mixed.dtype).where(known.positions[:, None, :, None], mixed)

    def _adapted_keys(
        self, q: Tensor, k: Tensor, prior: Tensor, allowed: Tensor | None, real: Tensor | None
    ) -> Tensor:
        """The means of the queries' Gaussians after ``key_adaptation`` steps of EM."""
        means = k
        for _ in range(self.key_adaptation):
            scores = _gaussian_scores(q, means, self._alpha) + prior
            if allowed is not None:
                scores = scores.masked_fill(~allowed, -torch.inf)
            weights = scores.softmax(-1)
            if real is not None:
                weights = weights * real[:, None, :, None].to(weights.dtype)
            means = _maximised(k, self.key_prior, q, weights, self._alpha)
        return means

    def _adapted_values(
        self, scores: Tensor, v: Tensor, known: Known | None, real: Tensor | None
    ) -> Tensor:
        """The means of the values, moved towards known ones or towards the queries' own values."""
        if known is None and not self.value_adaptation:
            return v
        if known is not None:
            assert known.values is not None
            given, outputs, steps = known.positions, known.values, self.value_propagation
        else:
            every = torch.ones(v.shape[0], v.shape[2], dtype=torch.bool, device=v.device)
            given, outputs, steps = every if real is None else real, v, self.value_adaptation
        given = given[:, None, :, None]
        outputs, means = outputs.to(v.dtype).where(given, 0), v
        for _ in range(steps):
            agreement = _gaussian_scores(outputs, means, self.value_precision)
            weights = (scores + agreement).softmax(-1) * given.to(v.dtype)
            means = _maximised(v, self.value_prior, outputs, weights, self.value_precision)
        return means

    def _checked_known(self, v: Tensor, mask: Mask, queries: int) -> Known | None:
        """The known values, checked against this call; pads are never known."""
        known = self.known
        if known is None:
            return None
        batch, heads, keys, dim = v.shape
        if self.value_precision == 0:
            raise UsageError("probabilistic: known values need value_precision above 0")
        if self.value_adaptation:
            raise UsageError("probabilistic: value_adaptation knows all values: give no others")
        if mask.causal:
            raise Unsupported("probabilistic: known values cannot be causal: they change all keys")
        if tuple(known.positions.shape) != (batch, queries):
            raise UsageError(
                f"probabilistic: known positions must be (batch, queries) = ({batch}, {queries}); "
                f"got {tuple(known.positions.shape)}"
            )
        if known.values is None and mask.is_cross(queries, keys):
            raise UsageError("probabilistic: in cross-attention known values must be given")
        values = v if known.values is None else known.values
        if tuple(values.shape) != (batch, heads, queries, dim):
            raise UsageError(
                f"probabilistic: known values must be {(batch, heads, queries, dim)}; got "
                f"{tuple(values.shape)}"
            )
        real = mask.keep_queries(queries)
        positions = known.positions if real is None else known.positions & real
        return Known(positions, values)


def _with_norms(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Minus half of each key's squared norm as features more, in parts that lose no digit.

    There are as many as make the features a multiple of eight, which fused kernels want.
    """
    if k.dtype == torch.float16:  # its largest number is less than some norms
        q, k, v = wide(q), wide(k), wide(v)
    dtype = torch.promote_types(k.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(k, dim=-1, keepdim=True, dtype=dtype)
    parts = in_parts(norms.square(), k.dtype)
    room = -(q.shape[3] + len(parts)) % 8
    halves = q.new_full((*q.shape[:3], len(parts) + room), -0.5)
    shown = torch.cat([k, *parts, k.new_zeros(*k.shape[:3], room)], 3)
    return torch.cat([q, halves], 3), shown, nn.functional.pad(v, (0, len(parts) + room))


@contextmanager
def values_known(
    model: nn.Module,
    positions: Bool[Tensor, "batch queries"],
    values: Float[Tensor, "batch heads queries dim"] | None = None,
) -> Iterator[None]:
    """Value propagation: inside the block the outputs at ``positions`` are known.

    They may be clicks, for example. It applies to every probabilistic mechanism in ``model``, which
    may be one itself. Without ``values`` the known output of a position is its own v. The other
    values are pulled towards the known ones, and known positions return their known values. Needs
    ``value_precision`` above 0; raises ``UsageError`` where the model has no such mechanism.
    """
    modules = [module for module in model.modules() if isinstance(module, Probabilistic)]
    if not modules:
        raise UsageError("values_known: the model has no probabilistic mechanism")
    before = [module.known for module in modules]
    for module in modules:
        module.known = Known(positions, values)
    try:
        yield
    finally:
        for module, known in zip(modules, before, strict=True):
            module.known = known


def _gaussian_scores(points: Tensor, means: Tensor, precision: float) -> Tensor:
    """-precision/2 |point - mean|^2 without |point|^2, which cancels in a softmax."""
    products = points @ means.transpose(-1, -2)
    return (products - means.square().sum(-1)[:, :, None] / 2) * precision


def _maximised(
    given: Tensor, prior: float, points: Tensor, weights: Tensor, precision: float
) -> Tensor:
    """The M step for means with a Gaussian prior around ``given``."""
    drawn = weights.transpose(-1, -2) @ points * precision
    return (prior * given + drawn) / (prior + precision * weights.sum(-2)[..., None])
