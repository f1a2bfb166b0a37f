"""From a head's score to the coordinates it uses, and attention over only those."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.mechanisms.shared.arithmetic import wide

# A score that is a whole number of coordinates, up to rounding, counts as that number.
_ROUNDING = 1e-4
_SCORES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Cut:
    """Maps scores to widths of a head of ``dim`` coordinates.

    A score above ``threshold`` (if there is one) gives all coordinates. Any other score gives dim x
    score of them, at least 1: rounded up to one of ``levels`` halvings of dim or, with 0 levels,
    down to a whole number. ``temperature`` is that of the sigmoid that passes gradients through the
    threshold.
    """

    dim: int
    threshold: float | None
    levels: int
    temperature: float

    def sizes(self) -> list[int]:
        """The widths that heads are rounded up to, smallest first."""
        return sorted({max(1, -(-self.dim // 2**step)) for step in range(self.levels)})

    def widths(self, score: Float[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        """How many coordinates are used: whole numbers, without gradients."""
        exact = self.dim * score.detach()
        if self.levels:
            *smaller, largest = self.sizes()
            width = torch.full_like(exact, largest, dtype=torch.long)
            for size in reversed(smaller):  # as numbers: a tensor of them would be copied over
                width = torch.where(exact - _ROUNDING <= size, size, width)
        else:
            width = (exact + _ROUNDING).floor().clamp(1, self.dim).long()
        if self.threshold is None:
            return width
        return torch.where(score.detach() > self.threshold, self.dim, width)

    def hard(self, score: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows dim"]:
        """1 for the coordinates that are used, 0 for the rest."""
        places = torch.arange(self.dim, device=score.device)
        return (places < self.widths(score).unsqueeze(-1)).to(score.dtype)

    def soft(self, score: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows dim"]:
        """clamp(dim x score - c, 0, 1) for coordinate c, so that the last one fades out.

        Above the threshold all are 1; gradients pass it as a sigmoid (straight-through). Gradients
        ignore the minimum width of 1.
        """
        width = self.dim * score
        width = width + (width.clamp(min=1) - width).detach()
        places = torch.arange(self.dim, device=score.device, dtype=score.dtype)
        fade = width.unsqueeze(-1) - places
        # The least widths are on the bounds, where releases of torch differ in clamp's gradient.
        passing = (fade - fade.detach()).where((fade >= 0) & (fade <= 1), 0)
        shares = fade.detach().clamp(0, 1) + passing
        if self.threshold is None:
            return shares
        smooth = ((score - self.threshold) / self.temperature).sigmoid()
        full = (score > self.threshold).to(score.dtype) + (smooth - smooth.detach())
        return shares + full.unsqueeze(-1) * (1 - shares)


@dataclass(frozen=True)
class Reach:
    """The keys that the queries may see: ``allowed`` where it is not all of them, or ``causal``."""

    allowed: Bool[Tensor, "batch_or_1 1 queries_or_1 keys"] | None
    causal: bool

    def of(self, samples: Tensor) -> Reach:
        """The same for chosen rows, each of which is a head of one of the samples."""
        if self.allowed is None or self.allowed.shape[0] == 1:
            return self
        return Reach(self.allowed[samples], self.causal)


def attend_by_width(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    widths: Int[Tensor, "batch heads"],
    reach: Reach,
    *,
    values: bool,
    rescale: bool,
) -> Float[Tensor, "batch heads queries dim"]:
    """Attention over each head's first coordinates; the heads of one width are one call.

    ``values`` cuts the values too and leaves zeros behind. ``rescale`` divides by the root of the
    width instead of that of dim. It reads the widths, so it cannot be traced.
    """
    dim, out = q.shape[3], None
    for width in sorted(set(widths.flatten().tolist())):
        scale = 1 / math.sqrt(width if rescale else dim)
        value_dim = width if values else dim
        rows = widths == width
        if bool(rows.all()):
            parts = q[..., :width], k[..., :width], v[..., :value_dim]
            return F.pad(_attend(*parts, reach, scale), (0, dim - value_dim))
        samples, heads = rows.nonzero(as_tuple=True)
        picked = (t[samples, heads, :, :d] for t, d in ((q, width), (k, width), (v, value_dim)))
        own_q, own_k, own_v = (part.unsqueeze(1) for part in picked)
        mixed = _attend(own_q, own_k, own_v, reach.of(samples), scale)
        out = torch.zeros_like(q) if out is None else out
        out[samples, heads, :, :value_dim] = mixed.squeeze(1)
    assert out is not None
    return out


def _attend(q: Tensor, k: Tensor, v: Tensor, reach: Reach, scale: float) -> Tensor:
    """softmax(scale q k^T) v. Kernels fuse it only where q and v are of one width."""
    if q.shape[3] == v.shape[3]:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=reach.allowed, is_causal=reach.causal, scale=scale
        )
    allowed, queries, keys = reach.allowed, q.shape[2], k.shape[2]
    step = max(16, _SCORES_AT_ONCE // (q.shape[0] * q.shape[1] * keys))
    out, keys_wide = v.new_empty(*q.shape[:3], v.shape[3]), wide(k)
    for start in range(0, queries, step):
        part = slice(start, start + step)
        scores = (wide(q[:, :, part]) * scale) @ keys_wide.mT
        if reach.causal:
            rows = torch.arange(queries, device=q.device)[part, None]
            scores.masked_fill_(torch.arange(keys, device=q.device) > rows, -torch.inf)
        if allowed is not None:
            visible = allowed if allowed.shape[2] == 1 else allowed[:, :, part]
            scores.masked_fill_(~visible, -torch.inf)
        out[:, :, part] = scores.softmax(-1).to(v.dtype) @ v
    return out
