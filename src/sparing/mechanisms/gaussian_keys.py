"""Transformer-MGK: each key is a mixture of Gaussians around shifted copies of itself."""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._pairs import attend_by_scores, held_bytes
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.pairs.squares import (
    aligned,
    attend,
    attend_to_square,
    factors,
    squares,
)

MIXTURE = ("soft", "hard")


class GaussianKeys(Mechanism):
    """A query weighs each token by a few Gaussians, centred around the token's key.

    Formula: w_ij proportional over j to, with g_ijr = exp(-|q_i - k_j + m_r|^2 / (2 s_r)),
    ``mixture="soft"``: sum over r of p_r g_ijr;
    ``mixture="hard"``: the largest g_ijr of all r; out_i = sum_j w_ij v_j.

    Symbols: i runs over queries, j over the keys that i may see, r = 0, 1, ... over
    ``components``; the shifts m_r (``shifts``) and the shares p_r, a softmax over r of
    ``share_logits``, are learned for each head; the variance s_r is
    sqrt(dim) / ``narrowing``^r. The first shift starts at zero, the others as normal numbers with
    standard deviation 0.5, sampled with ``seed``; shares start equal.

    Cost: 4 dim flops and some 6 ``components`` other operations for each pair; quadratic in time,
    piece by piece in memory. On an accelerator a soft mixture is fused attention over a key for
    each component, and stores no square. Never cheaper than softmax at as many heads: the paper
    saves by halving them. With one component it is probabilistic attention with a uniform prior,
    that is softmax for keys of equal norm.

    Source: Nguyen et al., 2022, arXiv 2110.08678, sections 2.2 to 2.4, with shifted keys. On the
    Long Range Arena their code has the variance sqrt(dim) for all components. For language models
    it has a third of it for the second component (``narrowing=3``), which far queries then hardly
    see. What differs: weights are taken in log space. The paper takes exponentials that all become
    zero far from every key and are then divided by each other. Shares belong to a head; in the
    paper to positions up to a longest length. Here every length works, and order does not matter.
    Shares are learned by gradients, not by a step of EM inside each call. The form with a second
    key projection is left out: a mechanism gets one key for each token.
    """

    traits = Traits(
        paper="Improving Transformers with Probabilistic Attention Keys, arXiv 2110.08678",
        year=2022,
        family="dense",
        causal=True,
        cross=True,
        permutable=True,
        random=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        components: int = 2,
        mixture: str = "soft",
        narrowing: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        if components < 1:
            raise UsageError(f"gaussian_keys: components must be at least 1; got {components}")
        require_choice("gaussian_keys", "mixture", mixture, MIXTURE)
        if not 0 < narrowing < math.inf:
            raise UsageError(f"gaussian_keys: narrowing must be above 0; got {narrowing}")
        self.components = components
        self.mixture = mixture
        self.narrowing = narrowing
        self.seed = seed
        self.traits = dataclasses.replace(type(self).traits, random=components > 1)
        generator = torch.Generator().manual_seed(seed)
        shape = (components, heads.count, heads.dim)
        shifts = torch.randn(shape, generator=generator, device="cpu") / 2
        shifts[0] = 0
        self.shifts = nn.Parameter(shifts)
        if mixture == "soft":
            self.share_logits = nn.Parameter(torch.zeros(heads.count, components))

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Scores, softmax and weighted sum for some queries at a time."""
        rows, columns = self._for_pairs(wide(q), wide(k))
        mixed = attend_by_scores(self._scores, rows, columns, wide(v), mask, self.components)
        return mixed.to(q.dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Soft, each component is a key of its own with the token's value, for the fused kernel.

        The largest of the components is no sum of weights: hard, all pairs are scored.
        """
        q, k, v = streams
        count = self.components
        if self.mixture == "hard":
            rows, columns = self._keys_of_components(wide(q), wide(k))
            return attend_to_square(self._largest, rows, columns.flatten(3), v, mask, count)
        rows, columns = self._keys_of_components(q, k)
        values = F.pad(v, (0, rows.shape[3] - v.shape[3]))  # one width serves the fastest kernel
        values = values[:, :, :, None].expand(-1, -1, -1, count, -1)
        scale = self._precisions[0]
        mixed = attend(
            rows, columns.flatten(2, 3), values.flatten(2, 3), mask, scale=scale, copies=count
        )
        return mixed[..., : v.shape[3]]

    def cost(self, work: Workload) -> Cost:
        """Two products over all pairs; a score for each component, made from the first of them."""
        pairs, count = work.rows * work.queries * work.keys, self.components
        wide_bytes = max(4, work.element_bytes)
        numbers = work.rows * (work.queries + work.keys) * (work.dim + count)
        outputs = 2 * work.rows * work.queries * work.dim
        shares = work.heads * count if self.mixture == "soft" else 0
        return Cost(
            matmul_flops=4 * pairs * work.dim + 2 * work.rows * work.queries * count * work.dim,
            other_flops=(6 * count + 3) * pairs + 4 * count * work.rows * work.keys * work.dim,
            peak_bytes=(numbers + outputs) * wide_bytes + held_bytes(work, count),
            params=count * work.heads * work.dim + shares,
        )

    @property
    def _precisions(self) -> list[float]:
        """1 / s_r of each component."""
        return [self.narrowing**r / math.sqrt(self.heads.dim) for r in range(self.components)]

    def _for_pairs(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys with the terms of the scores that depend on one of them."""
        shifts, precisions = self.shifts.to(q.dtype), q.new_tensor(self._precisions)
        for_queries = q @ shifts.permute(1, 2, 0) + q.square().sum(-1, keepdim=True) / 2
        distances = [(k - shift[:, None]).square().sum(-1) / 2 for shift in shifts]
        for_keys = -precisions * torch.stack(distances, -1)
        if self.mixture == "soft":
            for_keys = for_keys + self.share_logits.to(q.dtype).log_softmax(-1)[:, None]
        return torch.cat([q, -precisions * for_queries], -1), torch.cat([k, for_keys], -1)

    def _keys_of_components(
        self, q: Float[Tensor, "batch heads queries dim"], k: Float[Tensor, "batch heads keys dim"]
    ) -> tuple[
        Float[Tensor, "batch heads queries width"],
        Float[Tensor, "batch heads keys components width"],
    ]:
        """Queries and all components of each key: their products times 1 / s_0 are the scores.

        A score is p (q . x - |x|^2 / 2 - |q|^2 / 2) + s_0 log(share) for x = k - m_r and
        p = ``narrowing``^r. Where all p are one, the last square is the same for all keys.
        """
        apart = (
            wide(k)[:, :, :, None] - wide(self.shifts).to(wide(k).dtype).transpose(0, 1)[:, None]
        )
        powers = torch.arange(self.components, dtype=apart.dtype, device=apart.device)
        narrow = torch.pow(self.narrowing, powers)
        added, lengths = squares(apart) * narrow / -2, squares(q)
        if self.mixture == "soft":
            shares = self.share_logits.to(apart.dtype).log_softmax(-1)[:, None]
            added = added + shares / self._precisions[0]
        of_keys, ones = factors(added, torch.ones_like(lengths), q.dtype)
        rows, columns = [q, ones], [(apart * narrow[:, None]).to(q.dtype), of_keys]
        if self.narrowing != 1:
            of_queries, halves = factors(lengths, (narrow / -2).expand_as(added), q.dtype)
            rows, columns = [*rows, of_queries], [*columns, halves]
        return aligned(rows), aligned(columns)

    def _largest(
        self,
        q: Float[Tensor, "batch heads queries width"],
        k: Float[Tensor, "batch heads keys components_width"],
        heads: slice,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The scores of the best component of each key."""
        del heads
        several = k.reshape(*k.shape[:2], -1, q.shape[3])
        products = (q * self._precisions[0]) @ several.mT
        return products.reshape(*products.shape[:3], -1, self.components).amax(-1)

    def _scores(
        self,
        q: Float[Tensor, "batch some_heads queries features"],
        k: Float[Tensor, "batch some_heads keys features"],
        heads: slice,
    ) -> Float[Tensor, "batch some_heads queries keys"]:
        """The logarithm of the sum, or the largest, over the components."""
        del heads
        dim = self.heads.dim
        products = q[..., :dim] @ k[..., :dim].transpose(-1, -2)
        scores = [
            products * precision + q[..., dim + r, None] + k[:, :, None, :, dim + r]
            for r, precision in enumerate(self._precisions)
        ]
        joined = scores[0]
        for score in scores[1:]:
            if self.mixture == "soft":
                joined = torch.logaddexp(joined, score)
            else:
                joined = torch.maximum(joined, score)
        return joined
