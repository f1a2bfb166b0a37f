"""YOSO: weights are probabilities that two tokens hash alike, computed exactly or by hashing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._hashing import by_heads, coarse_normal
from sparing.mechanisms._kernel import in_cache, rows_at_once
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.memory import by_parts, parts_of
from sparing.mechanisms.shared.products import HALVES, in_parts, recorded, wide_product

_NEAREST = 1 - 1e-6
"""The largest cosine: at 1 the slope of the angle is infinite."""
_AT_ONCE = 8
"""Hashes in one group of codes."""
_BLOCK = 256
"""Queries that the backward pass compares with all keys at a time."""


class Yoso(Mechanism):
    """Attention without softmax: a pair's weight is its probability to share a hash bucket.

    Formula: out_i = l2(sum_j e_ij v_j) + C(v)_i with e_ij = (1 - angle(q_i, k_j) / pi)^bits and
    l2(x) = x / |x|; expectation=False: e_ij is the share of ``hashes`` hashes, ``bits`` random
    signs each, in which i and j are equal.

    Symbols: i runs over queries, j over the keys that i may see. The sampled form takes random
    planes for each head with ``seed``. C is a convolution over the tokens, one kernel of odd size
    ``conv_kernel`` for each head, or nothing.

    Cost: 4 keys dim flops for each query; sampled 2 bits hashes dim for each query and key, and no
    square. Values are added up by their keys' buckets and looked up by the queries'. With more
    hashes the sampled form tends to the expectation, its error as 1 / sqrt(hashes).

    Source: Zeng et al., 2021, arXiv 2111.09714, sections 3 and 4. What differs: gradients of the
    expectation are the true ones, with cosines clamped at 1 - 1e-6; the paper takes bits e_ij / 2
    for the slope. The sampled form takes that slope (its own is zero) with e_ij of the expectation,
    in blocks of queries. That has less noise and linear memory, but the backward pass takes
    quadratic time. Pads have no weight, and queries are hashed as queries: a known implementation
    ignores pads and confuses queries with keys. The convolution starts at zero, because it has no
    part in a pretrained model. Planes are rounded to eight bits of precision: a model cast to half
    precision hashes as before. Accelerators hold the square of the expectation in parts that fit
    their memory, and a table of values for each hash.
    """

    planes: Tensor
    traits = Traits(
        paper="You Only Sample (Almost) Once, arXiv 2111.09714",
        year=2021,
        family="hashing",
        cross=True,
        permutable=True,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        expectation: bool = True,
        bits: int = 9,
        hashes: int = 64,
        conv_kernel: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        for name, number in (("bits", bits), ("hashes", hashes)):
            if number < 1:
                raise UsageError(f"yoso: {name} must be at least 1; got {number}")
        if conv_kernel is not None and (conv_kernel < 1 or conv_kernel % 2 == 0):
            raise UsageError(f"yoso: conv_kernel must be odd and positive; got {conv_kernel}")
        self.expectation = expectation
        self.bits = bits
        self.hashes = hashes
        self.conv_kernel = conv_kernel
        self.seed = seed
        self.traits = dataclasses.replace(
            type(self).traits,
            cross=conv_kernel is None,
            permutable=conv_kernel is None,
            random=not expectation,
            differentiable=expectation,
        )
        if not expectation:
            shape = (heads.count, hashes, heads.dim, bits)
            self.register_buffer("planes", coarse_normal(shape, seed))
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
        """Pads have values of zero, so no other mask is needed."""
        if self.expectation:
            mixed = in_cache(self._expected, q, k, v, mask.keep)
        else:
            mixed = by_heads(self._sampled, (q, k, v), mask.keep, self.planes)
        if self.conv_weight is not None:
            mixed = (mixed + self._convolved(wide(v))).to(q.dtype)
        return mixed

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """The square in as few parts as memory takes, or tables for all hashes at once."""
        q, k, v = streams
        if self.expectation:
            mixed = self._expected_at_once(q, k, v)
        else:
            planes = self.planes.to(q.dtype)
            mixed = _Sampled.apply(  # type: ignore[no-untyped-call]
                _unit(wide(q)), _unit(wide(k)), wide(v), planes.to(wide(q).dtype), True
            )
            mixed = _unit(mixed)
        if self.conv_weight is not None:
            mixed = mixed + self._convolved(v)
        return mixed.to(q.dtype)

    def _convolved(self, v: Tensor) -> Tensor:
        assert self.conv_weight is not None
        weight = self.conv_weight[:, None, :, None].to(v.dtype)
        return F.conv2d(v, weight, padding="same", groups=weight.shape[0])

    def _expected_at_once(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = _unit(wide(q)), -_unit(wide(k))  # acos(-x) = pi - acos(x)
        if v.dtype in HALVES:  # unit vectors in two parts of float16, which tensor cores multiply
            (high, low), (other_high, other_low) = (in_parts(x, torch.float16, 2) for x in (q, k))
            q = torch.cat([high, low, high], -1)
            k = torch.cat([other_high, other_high, other_low], -1)
        squares = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]

        def rows(part: slice) -> Tensor:
            return wide_product(_powers(wide_product(q[:, :, part], k.mT), self.bits, v.dtype), v)

        return _unit(by_parts(rows, q.shape[2], 3 * 4 * squares, q.device))

    def cost(self, work: Workload) -> Cost:
        """Two products of the square; or the hashes, a sum and a look-up for each."""
        tokens = work.queries + work.keys
        rows = min(work.rows, rows_at_once(max(work.queries, work.keys), work.dim))
        if self.expectation:
            flops = 4 * work.queries * work.keys * work.dim
            other = (4 + self.bits.bit_length()) * work.queries * work.keys
            held = 3 * work.queries * work.keys
        else:
            flops = 2 * tokens * work.dim * self.hashes * self.bits
            other = tokens * self.hashes * (work.dim + 2 * self.bits)
            held = tokens * 2 * _AT_ONCE * self.bits + 2**self.bits * work.dim
        if self.conv_kernel is not None:
            flops += 2 * self.conv_kernel * work.keys * work.dim
        held += 2 * tokens * work.dim
        output = work.rows * work.queries * work.dim * work.element_bytes
        return Cost(
            matmul_flops=work.rows * flops,
            other_flops=work.rows * (other + 6 * tokens * work.dim),
            peak_bytes=output + rows * held * max(4, work.element_bytes),
            params=0 if self.conv_kernel is None else self.heads.count * self.conv_kernel,
        )

    def _expected(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        del keep
        return _unit(_chances(_unit(wide(q)), _unit(wide(k)), self.bits) @ wide(v))

    def _sampled(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, planes: Tensor
    ) -> Tensor:
        del keep
        q, k, v = _unit(wide(q)), _unit(wide(k)), wide(v)
        mixed: Tensor = _Sampled.apply(q, k, v, planes.to(q.dtype), False)  # type: ignore[no-untyped-call]
        return _unit(mixed)


def _unit(x: Tensor) -> Tensor:
    """Each vector divided by its length; zeros stay zeros, with finite gradients."""
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1)
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    unit: Tensor = x / norms.masked_fill(norms == 0, 1)
    return unit


def _chances(
    q: Float[Tensor, "*rows queries dim"], k: Float[Tensor, "*rows keys dim"], bits: int
) -> Float[Tensor, "*rows queries keys"]:
    """The probability that unit vectors agree in ``bits`` random signs."""
    cosines = (q @ k.mT).clamp(-_NEAREST, _NEAREST)
    return (1 - cosines.acos() / math.pi) ** bits


def _powers(
    opposite: Float[Tensor, "*rows queries keys"], bits: int, dtype: torch.dtype
) -> Float[Tensor, "*rows queries keys"]:
    """``_chances`` of the cosines' negatives, without the factor 1 / pi^bits."""
    if recorded(opposite):
        angles = opposite.clamp(-_NEAREST, _NEAREST).acos()
        return (angles**bits).to(dtype)
    angles = opposite.clamp_(-_NEAREST, _NEAREST).acos_()
    if dtype == angles.dtype:
        return angles.pow_(bits)
    return torch.pow(angles, bits, out=torch.empty_like(angles, dtype=dtype))


class _Sampled(torch.autograd.Function):
    """sum_j e_ij v_j with sampled e_ij; its gradients are those of ``Yoso``'s docstring."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, planes: Tensor, at_once: bool) -> Tensor:
        """The mean over the hashes, of all of them ``at_once`` or a few after the other."""
        ctx.save_for_backward(q, k, v, planes)
        ctx.at_once = at_once
        return (_looked_up_at_once if at_once else _looked_up)(q, k, v, planes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of values use the same hashes, with queries and keys exchanged."""
        q, k, v, planes = ctx.saved_tensors
        (gradient,) = gradients
        bits = planes.shape[-1]
        k_gradient = torch.zeros_like(k)
        parts, step, look_up = [], _BLOCK, _looked_up
        if ctx.at_once:
            squares = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
            step = -(-q.shape[2] // parts_of(5 * 4 * squares, q.device))
            look_up = _looked_up_at_once
        for start in range(0, q.shape[2], step):
            block = q[:, :, start : start + step]
            weights = gradient[:, :, start : start + step] @ v.mT
            weights = weights * _chances(block, k, bits) * (bits / 2)
            parts.append(weights @ k)
            k_gradient += weights.mT @ block
        return torch.cat(parts, 2), k_gradient, look_up(k, q, gradient, planes), None, None


def _looked_up(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    planes: Float[Tensor, "heads hashes dim bits"],
) -> Float[Tensor, "batch heads queries dim"]:
    """Values summed in their keys' buckets and read from the queries' buckets; mean over hashes."""
    batch, heads, queries, dim = q.shape
    hashes, buckets = planes.shape[1], 2 ** planes.shape[3]
    flat = v.reshape(-1, dim)
    total = q.new_zeros(batch * heads * queries, dim)
    rows = torch.arange(batch * heads, device=q.device).view(batch, heads, 1) * buckets
    for start in range(0, hashes, _AT_ONCE):
        some = planes[:, start : start + _AT_ONCE]
        q_codes, k_codes = (_codes(stream, some) for stream in (q, k))
        for q_code, k_code in zip(q_codes.unbind(-1), k_codes.unbind(-1), strict=True):
            table = flat.new_zeros(batch * heads * buckets, dim)
            table = table.index_add(0, (rows + k_code).flatten(), flat)
            total = total + table.index_select(0, (rows + q_code).flatten())
    return total.view(q.shape) / hashes


def _looked_up_at_once(
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    planes: Float[Tensor, "heads hashes dim bits"],
) -> Float[Tensor, "batch heads queries dim"]:
    """``_looked_up`` with tables for all hashes: each is a sum and a look-up of one operation."""
    hashes, buckets = planes.shape[1], 2 ** planes.shape[3]
    tables = v.new_zeros(*v.shape[:2], hashes * buckets, v.shape[3])
    starts = torch.arange(hashes, device=v.device) * buckets
    q_codes, k_codes = (_codes(stream, planes) + starts for stream in (q, k))
    rows = k_codes.transpose(2, 3).flatten(2)[..., None].expand(-1, -1, -1, v.shape[3])
    copies = v[:, :, None].expand(-1, -1, hashes, -1, -1).flatten(2, 3)
    tables.scatter_add_(2, rows, copies)
    heads = torch.arange(v.shape[0] * v.shape[1], device=v.device) * tables.shape[2]
    bags = q_codes.flatten(0, 1) + heads[:, None, None]
    mixed = F.embedding_bag(bags.flatten(0, 1), tables.flatten(0, 2), mode="mean")
    return mixed.view(q.shape)


def _codes(
    stream: Float[Tensor, "batch heads tokens dim"],
    planes: Float[Tensor, "heads hashes dim bits"],
) -> Int[Tensor, "batch heads tokens hashes"]:
    """The bucket of each token in each hash: its side of each plane, as a number."""
    hashes, dim, bits = planes.shape[1:]
    side = stream @ planes.transpose(1, 2).reshape(-1, dim, hashes * bits)
    powers = 2 ** torch.arange(bits, device=stream.device)
    return ((side > 0).view(*stream.shape[:3], hashes, bits) * powers).sum(-1)
