"""Nystromformer: softmax attention through a few landmarks and a pseudo-inverse."""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.recording import is_logged, report
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._alignment import segment_means
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.lowrank.inverse import inverse_steps
from sparing.mechanisms.shared.lowrank.segments import means_of_segments
from sparing.mechanisms.shared.products import HALVES, in_parts, recorded

PINV = ("iterative", "exact")
_Means = tuple[Tensor, Tensor | None]
_attention = F.scaled_dot_product_attention


class Nystrom(Mechanism):
    """Softmax attention, completed from what it is between a few landmarks.

    Formula: out = S(q, k~) S(q~, k~)^+ S(q~, k) v + C(v) with S(a, b) = softmax(a b^T / sqrt(dim)).

    Symbols: q~ and k~ are the means of ``landmarks`` segments of queries and keys; ^+ is the
    pseudo-inverse. ``iterations`` steps Z <- Z (13 - A Z (15 - A Z (7 - A Z))) / 4 from Z = A^T /
    (|A|_1 |A|_inf) compute it, or singular values (``pinv="exact"``). C is a convolution over the
    tokens, one kernel of odd size ``conv_kernel`` for each head, or nothing. While a log is open,
    |A Z A - A| / |A| of each head is reported under ``residual``.

    Cost: 8 landmarks dim flops for each token and 8 iterations landmarks^3 for each head. With
    landmarks >= tokens and the exact inverse it equals ``softmax``. Six steps leave a residual of
    some thousandths; rows do not sum to one exactly.

    Source: Xiong et al., 2021, arXiv 2102.03902, section 3. What differs: the first Z is scaled for
    each matrix alone, where the original takes maxima over the whole batch and a sample's result
    depends on its neighbours. Segments divide each row's own length, which need not be a multiple
    of ``landmarks``, and pads never enter a mean. The convolution starts at zero, because it has no
    part in a pretrained model; sums run in float32 under half precision. On accelerators S(q~, k)
    is multiplied in half precision.
    """

    traits = Traits(
        paper="Nyströmformer: A Nyström-based Algorithm for Self-Attention, arXiv 2102.03902",
        year=2021,
        family="low-rank",
        arm=True,
        cross=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        landmarks: int = 64,
        pinv: str = "iterative",
        iterations: int = 6,
        conv_kernel: int | None = None,
    ) -> None:
        super().__init__(heads)
        _check_options(landmarks, pinv, iterations, conv_kernel)
        self.landmarks = landmarks
        self.pinv = pinv
        self.iterations = iterations
        self.conv_kernel = conv_kernel
        self.traits = dataclasses.replace(type(self).traits, cross=conv_kernel is None)
        self.conv_weight: nn.Parameter | None = None
        if conv_kernel is not None:
            self.conv_weight = nn.Parameter(torch.zeros(heads.count, conv_kernel))

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Landmarks, their pseudo-inverse, and two fused products with all tokens."""
        allowed = mask.opened(q.shape[2], k.shape[2], q.device)
        keep = None if allowed is None else allowed[:, 0, 0]
        of_q = None if mask.is_cross(q.shape[2], k.shape[2]) else keep
        q_means = segment_means(q, self.landmarks, of_q)
        k_means = segment_means(k, self.landmarks, keep)
        return self._completed((wide(q), wide(k), wide(v)), q_means, k_means, allowed).to(q.dtype)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The landmarks' attention to all tokens in the type of the inputs, the rest wider.

        The exact inverse would enlarge what that rounds, so all is wider there.
        """
        q, k, v = streams if self.pinv == "iterative" else map(wide, streams)
        allowed = mask.opened(q.shape[2], k.shape[2], q.device)
        keep = None if allowed is None else allowed[:, 0, 0]
        if mask.is_cross(q.shape[2], k.shape[2]):
            (of_q,), q_filled = means_of_segments([q], self.landmarks, None)
            (of_k,), k_filled = means_of_segments([k], self.landmarks, keep)
        else:
            (of_q, of_k), k_filled = means_of_segments([q, k], self.landmarks, keep)
            q_filled = k_filled
        mixed = self._completed((q, k, v), (of_q, q_filled), (of_k, k_filled), allowed)
        return mixed.to(streams[0].dtype)

    def cost(self, work: Workload) -> Cost:
        """Tokens with landmarks twice, landmarks with landmarks, the steps of the inverse."""
        q_means, k_means = (min(self.landmarks, tokens) for tokens in (work.queries, work.keys))
        pairs = q_means * work.keys + work.queries * k_means
        square = q_means * k_means
        flops = 4 * pairs * work.dim + 4 * square * work.dim
        if self.pinv == "exact":
            other = 20 * square * min(q_means, k_means)  # LAPACK's steps, which no counter sees
        else:
            flops += 4 * self.iterations * (square * q_means + q_means**3)
            other = 2 * self.iterations * (square + 2 * q_means**2)
        if self.conv_kernel is not None:
            flops += 2 * self.conv_kernel * work.keys * work.dim
        other += 4 * (pairs + square) + (work.queries + work.keys) * work.dim
        numbers = (work.queries + q_means + 2 * k_means) * work.dim + 5 * square
        return Cost(
            matmul_flops=work.rows * flops,
            other_flops=work.rows * other,
            peak_bytes=work.rows * numbers * max(4, work.element_bytes),
            params=0 if self.conv_kernel is None else self.heads.count * self.conv_kernel,
        )

    def _completed(
        self,
        streams: tuple[Tensor, Tensor, Tensor],
        q_means: _Means,
        k_means: _Means,
        allowed: Bool[Tensor, "batch 1 1 keys"] | None,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """All tokens through the landmarks, at least in float32.

        ``allowed`` is opened: a row of pads alone sees them, as the zeros that they are.
        """
        q, k, v = streams
        between = self._between(*q_means, *k_means)
        inverse = self._inverse(between)
        if is_logged(self):
            gap = torch.linalg.matrix_norm(between @ inverse @ between - between)
            report(self, "residual", gap / torch.linalg.matrix_norm(between))
        seen = _seen(q_means[0], k, v, allowed)
        mixed = _attention(wide(q), k_means[0], inverse @ seen, attn_mask=k_means[1])
        if self.conv_weight is not None:
            weight = self.conv_weight.to(v.dtype)[:, None, :, None]
            mixed = mixed + F.conv2d(v, weight, padding="same", groups=weight.shape[0])
        return mixed

    def _between(
        self,
        q_means: Float[Tensor, "batch heads rows dim"],
        q_filled: Bool[Tensor, "batch 1 1 rows"] | None,
        k_means: Float[Tensor, "batch heads columns dim"],
        k_filled: Bool[Tensor, "batch 1 1 columns"] | None,
    ) -> Float[Tensor, "batch heads rows columns"]:
        """Attention of landmarks to landmarks; rows and columns of empty segments are zero."""
        scores = q_means @ k_means.mT / math.sqrt(self.heads.dim)
        if k_filled is not None:
            scores = scores.masked_fill(~k_filled, -math.inf)
        weights = scores.softmax(-1)
        return weights if q_filled is None else weights * q_filled.mT

    def _inverse(
        self, between: Float[Tensor, "batch heads rows columns"]
    ) -> Float[Tensor, "batch heads columns rows"]:
        """The pseudo-inverse; zero rows and columns stay zero."""
        if self.pinv == "exact":
            # The inverse of a singular value that is a rounding error would be huge.
            cut = 64 * self.landmarks * torch.finfo(between.dtype).eps
            # NaN makes LAPACK fail without saying where it came from.
            inverse: Tensor = torch.linalg.pinv(between.nan_to_num(), rtol=cut)
            return inverse
        # No weight is negative, and the largest sum of a row is one.
        largest = between.sum(-2).amax(-1)[..., None, None]
        guess = (between.mT / largest).flatten(0, 1)
        return inverse_steps(between.flatten(0, 1), guess, self.iterations).view_as(between.mT)


def _seen(
    means: Float[Tensor, "batch heads means dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    allowed: Bool[Tensor, "batch 1 1 keys"] | None,
) -> Float[Tensor, "batch heads means dim"]:
    """What landmarks see of all tokens, at least in float32.

    The inverse enlarges rounding. So half keys meet each landmark as the sum of two halves, and
    the mean of half values, which all landmarks share, is left out until nothing is rounded.
    """
    if k.dtype not in HALVES:
        return _attention(means, k, v, attn_mask=allowed)
    dim = k.shape[-1]
    mean = _mean(v.detach(), allowed)
    rows = torch.cat(in_parts(means, k.dtype, 2), -1)
    keys, values = torch.cat([k, k], -1), _without(mean, v)
    both = _attention(rows, keys, values, attn_mask=allowed, scale=1 / math.sqrt(dim))
    return torch.unflatten(both, -1, (2, dim)).sum(-2, dtype=torch.float32) + mean


def _without(
    mean: Float[Tensor, "batch heads 1 dim"], v: Float[Tensor, "batch heads keys dim"]
) -> Float[Tensor, "batch heads keys both"]:
    """The values without their mean, rounded, and beside them what that lost.

    The second part is exact where a value is not far below the mean.
    """
    if recorded(v):
        rounded = v - mean
        return torch.cat([rounded, v.detach() - rounded.detach() - mean], -1)
    both = v.new_empty(*v.shape[:-1], 2 * v.shape[-1])
    rounded, lost = both.chunk(2, -1)
    torch.sub(v, mean, out=rounded)
    torch.sub(v, rounded, out=lost).sub_(mean)
    return both


def _mean(
    v: Float[Tensor, "batch heads keys dim"], allowed: Bool[Tensor, "batch 1 1 keys"] | None
) -> Float[Tensor, "batch heads 1 dim"]:
    """The mean of the values that are seen, in their type; pads are zero."""
    if allowed is None:
        return v.mean(2, keepdim=True, dtype=torch.float32).to(v.dtype)
    total = v.sum(2, keepdim=True, dtype=torch.float32)
    return (total / allowed.sum(3, keepdim=True)).to(v.dtype)


def _check_options(landmarks: int, pinv: str, iterations: int, conv_kernel: int | None) -> None:
    for name, number in (("landmarks", landmarks), ("iterations", iterations)):
        if number < 1:
            raise UsageError(f"nystrom: {name} must be at least 1; got {number}")
    require_choice("nystrom", "pinv", pinv, PINV)
    if conv_kernel is not None and (conv_kernel < 1 or conv_kernel % 2 == 0):
        raise UsageError(f"nystrom: conv_kernel must be odd and positive; got {conv_kernel}")
