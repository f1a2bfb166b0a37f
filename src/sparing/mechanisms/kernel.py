"""Kernel self-attention: softmax over the values of a kernel between query and key."""

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
from sparing.mechanisms.shared.pairs.squares import attend, attend_to_square, distance_factors

KERNELS = ("dot", "gaussian", "inverse_quadratic", "laplace", "module")
_EUCLIDEAN = ("gaussian", "inverse_quadratic")


class Kernel(Mechanism):
    """Attention with a kernel of query and key as score, most often one of their distance.

    Formula: out_i = sum_j w_ij v_j with w_ij = softmax over j of s_ij, where ``kernel`` is
    "dot": s_ij = c q_i . k_j;
    "gaussian": s_ij = exp(-g c |q_i - k_j|^2);
    "inverse_quadratic": s_ij = 1 / (1 + g c |q_i - k_j|^2);
    "laplace": s_ij = -c sum_f |q_if - k_jf|;
    "module": s_ij = c sum_f (|q_if - k_jf| - |q_if| - |k_jf|).

    Symbols: i runs over queries, j over the keys that i may see, f over features; c = ``scale``
    (None is 1/sqrt(dim)); g = softplus of a learned number, one for each head, starts at 1. The
    Gaussian and the inverse quadratic are between 0 and 1. No weight is more than e times another:
    attention is close to uniform.

    Cost: 4 dim flops for each pair, or 2 dim and 3 dim elementwise with "laplace" and "module";
    quadratic in time, piece by piece in memory. On an accelerator the pieces are as few as its
    memory takes. kernel="dot" equals softmax.

    Source: Rymarczyk et al., 2021, arXiv 2005.12991, section 3. What differs: the authors' code has
    c = 1 (their heads are narrow; use ``scale=1``) and passes g through a relu, which never leaves
    0. It has the Laplace kernel in a comment only, so choosing it gives the dot product. The
    residual with its learned factor and the pooling of a bag are parts of a layer, not of its
    mixing. "module" has their sign: it is largest where query and key differ in sign.
    """

    traits = Traits(
        paper="Kernel Self-Attention for Weakly-supervised Image Classification using Deep "
        "Multiple Instance Learning, arXiv 2005.12991",
        year=2021,
        family="dense",
        causal=True,
        cross=True,
        permutable=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self, heads: Heads, *, kernel: str = "gaussian", scale: float | None = None
    ) -> None:
        super().__init__(heads)
        require_choice("kernel", "kernel", kernel, KERNELS)
        if scale is not None and not 0 < scale < math.inf:
            raise UsageError(f"kernel: scale must be above 0 and finite; got {scale}")
        self.kernel = kernel
        self.scale = scale
        usual = math.isclose(self._factor, 1 / math.sqrt(heads.dim))
        self.traits = dataclasses.replace(type(self).traits, exact=kernel == "dot" and usual)
        if kernel in _EUCLIDEAN:
            one = math.log(math.e - 1)
            self.sharpness = nn.Parameter(torch.full((heads.count,), one))

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Scores, softmax and weighted sum for some queries at a time."""
        return attend_by_scores(self._scores, wide(q), wide(k), wide(v), mask).to(q.dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """All pairs at once, as far as memory goes; "dot" by the fused kernel, without them."""
        q, k, v = streams
        if self.kernel == "dot":
            return attend(q, k, v, mask, scale=self._factor)
        if self.kernel in _EUCLIDEAN:
            return attend_to_square(self._bounded, *distance_factors(q, k), v, mask)
        # the gradient of these distances stores a number for each feature of a pair
        numbers = q.shape[3] if torch.is_grad_enabled() else 1
        return attend_to_square(self._scores, wide(q), wide(k), v, mask, numbers)

    def cost(self, work: Workload) -> Cost:
        """A product over all pairs for the values, and one for the scores where they are one."""
        pairs = work.rows * work.queries * work.keys
        by_product = self.kernel == "dot" or self.kernel in _EUCLIDEAN
        return Cost(
            matmul_flops=(4 if by_product else 2) * pairs * work.dim,
            other_flops=pairs * (8 if by_product else 4 + 3 * work.dim),
            peak_bytes=held_bytes(work)
            + 2 * work.rows * work.queries * work.dim * max(4, work.element_bytes),
            params=work.heads if self.kernel in _EUCLIDEAN else 0,
        )

    @property
    def _factor(self) -> float:
        return 1 / math.sqrt(self.heads.dim) if self.scale is None else self.scale

    def _scores(
        self,
        q: Float[Tensor, "batch some_heads queries dim"],
        k: Float[Tensor, "batch some_heads keys dim"],
        heads: slice,
    ) -> Float[Tensor, "batch some_heads queries keys"]:
        if self.kernel == "dot":
            return (q * self._factor) @ k.transpose(-1, -2)
        if self.kernel in _EUCLIDEAN:
            distances = _squared_distances(q, k) * self._scaled_sharpness(heads, q.dtype)
            return (-distances).exp() if self.kernel == "gaussian" else 1 / (1 + distances)
        distances = torch.cdist(q, k, p=1.0) * self._factor
        if self.kernel == "laplace":
            return -distances
        # |q| is the same for all keys: it cancels in the softmax
        return distances - k.abs().sum(-1)[:, :, None] * self._factor

    def _bounded(
        self,
        q: Float[Tensor, "batch heads queries width"],
        k: Float[Tensor, "batch heads keys width"],
        heads: slice,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The same between 0 and 1 from the factors of distances; an infinite one is the largest.

        It would have gradients that are not numbers, in float16 from 65,504 on.
        """
        sharpness = self._scaled_sharpness(heads, wide(q).dtype).to(q.dtype)
        distances = (q @ k.mT).clamp(0, torch.finfo(q.dtype).max)
        if self.kernel == "gaussian":
            return (distances * -sharpness).exp()
        return (distances * sharpness + 1).reciprocal()

    def _scaled_sharpness(
        self, heads: slice, dtype: torch.dtype
    ) -> Float[Tensor, "some_heads 1 1"]:
        return (F.softplus(self.sharpness[heads].to(dtype)) * self._factor)[:, None, None]


def _squared_distances(
    q: Float[Tensor, "batch heads queries dim"], k: Float[Tensor, "batch heads keys dim"]
) -> Float[Tensor, "batch heads queries keys"]:
    """|q - k|^2 by one product, at least 0: a negative distance would make kernels explode."""
    norms = q.square().sum(-1)[..., None] + k.square().sum(-1)[:, :, None]
    return (norms - 2 * (q @ k.transpose(-1, -2))).clamp_min(0)
