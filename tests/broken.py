"""Mechanisms broken on purpose, each in one way, with the check that must catch it."""

from __future__ import annotations

import dataclasses
import math

import torch

from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost
from sparing.mechanisms.eager import Eager

EXACT = Eager.traits
LINEAR = dataclasses.replace(EXACT, exact=False, permutable=False)


class _Broken(Mechanism):
    """Exact attention in three steps, each of which a broken form may spoil."""

    traits = EXACT

    def scores(self, q, k):
        return q @ k.transpose(-1, -2) / math.sqrt(self.heads.dim)

    def allowed(self, mask, queries, keys):
        return mask.dense(queries, keys)

    def mix(self, q, k, v, *, mask):
        scores = self.scores(q, k)
        allowed = self.allowed(mask, q.shape[2], k.shape[2])
        if allowed is not None:
            allowed = allowed | ~allowed.any(-1, keepdim=True)
            scores = scores.masked_fill(~allowed, -torch.inf)
        return scores.softmax(-1) @ v

    def cost(self, work):
        pairs = work.rows * work.queries * work.keys
        return Cost(4 * pairs * work.dim, 4 * pairs, 8 * pairs)


class MaskIgnored(_Broken):
    caught_by = "padding_equals_cropping"

    def allowed(self, mask, queries, keys):
        return type(mask)(None, mask.causal).dense(queries, keys)


class FutureLeakedByOneToken(_Broken):
    caught_by = "causality"

    def allowed(self, mask, queries, keys):
        allowed = mask.dense(queries, keys)
        if mask.causal:
            allowed = allowed | torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries + 1)
        return allowed


class FutureLeakedBeyondOneBlock(_Broken):
    caught_by = "causality"

    def allowed(self, mask, queries, keys):
        allowed = mask.dense(queries, keys)
        if mask.causal and queries > 128:
            allowed = allowed.clone()
            allowed[..., 127, 128] = True
        return allowed


class CausalityIgnored(_Broken):
    caught_by = "causality"

    def allowed(self, mask, queries, keys):
        return type(mask)(mask.keep).dense(queries, keys)


class ScaleForgotten(_Broken):
    caught_by = "exact_trait"

    def scores(self, q, k):
        return q @ k.transpose(-1, -2)


class HeadsMixed(_Broken):
    caught_by = "heads_are_apart"

    def mix(self, q, k, v, *, mask):
        return super().mix(q, k, v.mean(1, keepdim=True).expand_as(v), mask=mask)


class BatchMixed(_Broken):
    caught_by = "batch_invariance"

    def scores(self, q, k):
        return super().scores(q, k) / k.abs().amax()


class PadsLeftInTheNormaliser(_Broken):
    caught_by = "padding_equals_cropping"

    def mix(self, q, k, v, *, mask):
        weights = self.scores(q, k).exp()
        allowed = self.allowed(mask, q.shape[2], k.shape[2])
        masked_weights = weights if allowed is None else weights * allowed
        return masked_weights @ v / weights.sum(-1, keepdim=True)


class PadsTakenForPositions(_Broken):
    """Left pads shift what depends on the position."""

    caught_by = "padding_equals_cropping"
    traits = dataclasses.replace(LINEAR, causal=False, cross=False)

    def scores(self, q, k):
        return super().scores(q, k) + torch.arange(k.shape[2]) * 0.1


class WindowOffByOne(_Broken):
    caught_by = "decoding"
    traits = dataclasses.replace(LINEAR, cross=False)

    def allowed(self, mask, queries, keys):
        band = torch.ones(queries, keys, dtype=torch.bool).triu(-3)
        allowed = mask.dense(queries, keys)
        return band if allowed is None else band & allowed


class FailsOnOddLengths(_Broken):
    caught_by = "lengths"

    def mix(self, q, k, v, *, mask):
        if q.shape[2] % 2:
            raise RuntimeError("odd")
        return super().mix(q, k, v, mask=mask)


class AcceptsAMaskItCannotHonour(_Broken):
    """Declares that it is not causal, but the refusal of the base class is switched off."""

    caught_by = "causality"
    traits = dataclasses.replace(EXACT, causal=False)

    def require_traits(self, mask, queries, keys):
        return None


class DrawsFromTheGlobalGenerator(_Broken):
    caught_by = "private_randomness"

    def __init__(self, heads):
        super().__init__(heads)
        self.register_buffer("noise", torch.randn(heads.dim))


class DrawsAtTheFirstCall(_Broken):
    caught_by = "private_randomness"

    def mix(self, q, k, v, *, mask):
        torch.rand(1)
        return super().mix(q, k, v, mask=mask)


class ClaimsToBeExact(_Broken):
    caught_by = "exact_trait"

    def scores(self, q, k):
        return super().scores(q, k) * 0.999


class ClaimsNotToBeExact(_Broken):
    caught_by = "exact_trait"
    traits = dataclasses.replace(EXACT, exact=False)


class NotDeterministic(_Broken):
    caught_by = "determinism"

    def scores(self, q, k):
        generator = torch.Generator()
        generator.seed()
        return (
            super().scores(q, k)
            + torch.rand(1, generator=generator, dtype=q.dtype)[0] * 1e-3 * q.mean()
        )

    def mix(self, q, k, v, *, mask):
        generator = torch.Generator()
        generator.seed()
        noise = torch.rand(1, generator=generator).to(q)
        return super().mix(q * (1 + noise * 1e-6), k, v, mask=mask)


class NaNWhereAQuerySeesNothing(_Broken):
    """The output is repaired by the base class; the gradient is not."""

    caught_by = "fully_masked_rows"

    def mix(self, q, k, v, *, mask):
        scores = self.scores(q, k)
        allowed = self.allowed(mask, q.shape[2], k.shape[2])
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return scores.softmax(-1) @ v


class GradientCut(_Broken):
    caught_by = "gradients"

    def scores(self, q, k):
        return super().scores(q, k.detach())


class DrawsAreNotSaved(_Broken):
    caught_by = "state_round_trip"
    traits = dataclasses.replace(EXACT, exact=False, random=True)

    def __init__(self, heads, *, seed=0):
        super().__init__(heads)
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        self.noise = torch.rand(heads.dim, generator=generator)

    def scores(self, q, k):
        return super().scores(q * self.noise.to(q), k)


class SeedWithoutEffect(_Broken):
    caught_by = "random_trait"
    traits = dataclasses.replace(EXACT, random=True)

    def __init__(self, heads, *, seed=0):
        super().__init__(heads)
        self.seed = seed


class SeedMattersAfterAll(DrawsAreNotSaved):
    caught_by = "random_trait"
    traits = dataclasses.replace(EXACT, exact=False)


class ExportsAfterAll(_Broken):
    caught_by = "export"
    traits = dataclasses.replace(EXACT, exportable=False)


class OverflowsInHalfPrecision(_Broken):
    caught_by = "half_precision"

    def mix(self, q, k, v, *, mask):
        weights = self.scores(q, k).exp()
        allowed = self.allowed(mask, q.shape[2], k.shape[2])
        weights = weights if allowed is None else weights * allowed
        return weights @ v / weights.sum(-1, keepdim=True)


class WritesIntoItsInput(_Broken):
    caught_by = "determinism"

    def scores(self, q, k):
        return super().scores(q.mul_(1.0).add_(0.5), k)


class CostTooLow(_Broken):
    caught_by = "cost"

    def cost(self, work):
        return Cost(4 * work.queries * work.keys * work.dim, 1, 1)


class HiddenSquare(_Broken):
    """States the cost of a linear mechanism, and builds a square mask."""

    caught_by = "no_square"
    traits = dataclasses.replace(LINEAR, causal=False)

    def mix(self, q, k, v, *, mask):
        torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril_()
        return q * (k * v).mean(2, keepdim=True)

    def cost(self, work):
        return Cost(work.rows * work.queries * work.dim, 1, 1)


class SwallowsUnknownOptions(_Broken):
    caught_by = "refusals"

    def __init__(self, heads, **options):
        super().__init__(heads)


class TiedToItsExportLength(_Broken):
    caught_by = "export"

    def scores(self, q, k):
        return super().scores(q, k) * (k.shape[2] / int(k.shape[2]) if k.shape[2] == 24 else 1.5)


class LongerThanItSays(_Broken):
    caught_by = "any_length"
    traits = dataclasses.replace(EXACT, any_length=False)


class CrossWithoutSayingSo(_Broken):
    caught_by = "cross"
    traits = Traits(paper="none", year=2026, causal=True, cross=False, exact=True, permutable=True)

    def require_traits(self, mask, queries, keys):
        return None


class BiasForgotten(_Broken):
    caught_by = "bias"
    takes_bias = True

    def mix_biased(self, q, k, v, *, bias, mask):
        return self.mix(q, k, v, mask=mask)


class BiasTakenWithoutSayingSo(_Broken):
    caught_by = "bias"

    def _check_bias(self, bias, q, keys):
        return None

    def mix_biased(self, q, k, v, *, bias, mask):
        return self.mix(q, k, v, mask=mask)


class NoClaim(_Broken):
    caught_by = "claims"


ALL = [
    value
    for value in list(globals().values())
    if isinstance(value, type) and hasattr(value, "caught_by")
]
