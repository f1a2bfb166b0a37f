"""Skyformer: a Gaussian kernel instead of softmax, completed from a few sampled rows."""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sparing.core.errors import UsageError, require_choice
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.tracing import is_traced
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._kernel import in_cache, rows_at_once
from sparing.mechanisms.shared.arithmetic import stable_order, wide
from sparing.mechanisms.shared.lowrank.gaussians import gaussian_sums
from sparing.mechanisms.shared.lowrank.inverse import inverse_steps

INVERSE = ("exact", "iterative")
_PLACE_BITS = 31


class Skyformer(Mechanism):
    """Sums of values weighted by a Gaussian of query and key, through a sample of both.

    Formula: out = G(q, s) (G(s, s) + ridge 1)^-1 G(s, k) v with
    G(a, b)_ij = exp(-|a_i - b_j|^2 / (2 sqrt(dim))).

    Symbols: s is a sample of ``landmarks`` rows of the queries and keys together, the same
    positions in all heads; ``inverse="exact"`` solves the system; ``"iterative"`` takes
    ``iterations`` steps Z <- Z (13 - A Z (15 - A Z (7 - A Z))) / 4 from Z = 1. A is the matrix with
    rows and columns divided by the square roots of its row sums.

    Cost: 8 landmarks dim flops for each token and landmarks^3 for each head. Weights are not
    divided by their sum: for values of one the output is not one. With landmarks = queries + keys
    and a vanishing ridge it equals G(q, k) v; there is no setting in which it equals softmax.

    Source: Chen et al., 2021, arXiv 2111.00035, section 4. What differs: queries and keys are
    divided by dim^(1/4), where the authors' code has the number that is right for heads of 32. The
    system is solved, where the paper takes six steps (``inverse="iterative"``). The sample is taken
    once with ``seed``: one row from each of ``landmarks`` equal parts of a row's own tokens,
    queries before keys. So pads change nothing and no row is sampled twice. A row with fewer
    queries and keys than ``landmarks`` uses them all. On accelerators G(s, k) v is computed in
    bfloat16 for bfloat16 inputs.
    """

    places: Tensor
    traits = Traits(
        paper="Skyformer: Remodel Self-Attention with Gaussian Kernel and Nyström Method, "
        "arXiv 2111.00035",
        year=2021,
        family="low-rank",
        cross=True,
        random=True,
        onnx=False,
    )
    accelerated = ("accelerator",)

    def __init__(
        self,
        heads: Heads,
        *,
        landmarks: int = 128,
        ridge: float = 0.1,
        inverse: str = "exact",
        iterations: int = 6,
        seed: int = 0,
    ) -> None:
        super().__init__(heads)
        _check_options(landmarks, ridge, inverse, iterations)
        self.landmarks = landmarks
        self.ridge = ridge
        self.inverse = inverse
        self.traits = dataclasses.replace(type(self).traits, onnx=inverse != "exact")
        self.iterations = iterations
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        # Whole numbers: half precision would change a fraction.
        places = torch.randint(2**_PLACE_BITS, (landmarks,), generator=generator, device="cpu")
        self.register_buffer("places", places)

    def mix(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Sample, then three products with the sample for a few heads at a time."""
        cross = mask.is_cross(q.shape[2], k.shape[2])

        def mix_rows(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
            q, k, v = wide(q), wide(k), wide(v)
            sample, filled = self._sample(q, k, None if cross else keep, keep)
            # Pads have values of zero, so they add nothing.
            seen = _gaussian(sample, k) @ v
            return _gaussian(q, sample) @ self._through_sample(sample, seen, filled)

        return in_cache(mix_rows, q, k, v, mask.keep)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Two fused calls: the sample meets half keys as they are, queries meet it in float32."""
        q, k, v = streams
        cross = mask.is_cross(q.shape[2], k.shape[2])
        sample, filled = self._sample(q, k, None if cross else mask.keep, mask.keep)
        solved = self._through_sample(wide(sample), gaussian_sums(sample, k, v), filled)
        return gaussian_sums(wide(q), wide(sample), solved).to(q.dtype)

    def cost(self, work: Workload) -> Cost:
        """The sample with itself, with the keys, and with the queries; the inverse of the first."""
        count, tokens = min(self.landmarks, work.queries + work.keys), work.queries + work.keys
        flops = 2 * work.dim * count * (count + 2 * tokens)
        other = 6 * count * (count + tokens) + 4 * work.dim * tokens
        if self.inverse == "exact":
            other += 2 * count**3 // 3 + 2 * count * count * work.dim  # LAPACK's, not counted
        else:
            flops += 8 * self.iterations * count**3 + 2 * count * count * work.dim
            other += 3 * self.iterations * count * count
        longest = max(work.queries, work.keys)
        together = min(work.rows, rows_at_once(longest, work.dim))
        held = count * (2 * longest + 3 * count) + work.queries * work.dim
        output = work.rows * work.queries * work.dim * work.element_bytes
        return Cost(
            matmul_flops=work.rows * flops,
            other_flops=work.rows * other,
            peak_bytes=output + together * held * max(4, work.element_bytes),
        )

    def _sample(
        self,
        q: Float[Tensor, "batch heads queries dim"],
        k: Float[Tensor, "batch heads keys dim"],
        keep_queries: Bool[Tensor, "batch queries"] | None,
        keep: Bool[Tensor, "batch keys"] | None,
    ) -> tuple[Float[Tensor, "batch heads sample dim"], Bool[Tensor, "batch sample"] | None]:
        """One real token of each part of a row; and which parts there are (None: all)."""
        compiling = is_traced()
        size = self.landmarks if compiling else min(self.landmarks, q.shape[2] + k.shape[2])
        queries, keys = _real_count(q, keep_queries), _real_count(k, keep)
        total = (queries + keys).unsqueeze(1)
        parts = total.clamp(1, self.landmarks)
        part = torch.arange(size, device=q.device)
        start, stop = part * total // parts, (part + 1) * total // parts
        rank = start + ((stop - start) * self.places[:size] >> _PLACE_BITS)
        of_queries = _at_rank(q, rank, keep_queries)
        of_keys = _at_rank(k, rank - queries.unsqueeze(1), keep)
        sample = of_queries.where((rank < queries.unsqueeze(1))[:, None, :, None], of_keys)
        filled = part < total
        return sample, None if keep is None and not compiling else filled

    def _through_sample(
        self,
        sample: Float[Tensor, "batch heads sample dim"],
        seen: Float[Tensor, "batch heads sample dim"],
        filled: Bool[Tensor, "batch sample"] | None,
    ) -> Float[Tensor, "batch heads sample dim"]:
        """What the sample sees, times the inverse of its kernel; zero where it is not filled."""
        between = _gaussian(sample, sample)
        diagonal = torch.full_like(between[..., 0], self.ridge)
        if filled is not None:
            filled = filled[:, None, :, None]
            between, seen = between.where(filled & filled.mT, 0), seen.where(filled, 0)
            diagonal = diagonal.where(filled[..., 0], 1)
        return self._solved(between + diagonal.diag_embed(), seen)

    def _solved(
        self,
        between: Float[Tensor, "batch heads sample sample"],
        seen: Float[Tensor, "batch heads sample dim"],
    ) -> Float[Tensor, "batch heads sample dim"]:
        """The inverse of ``between`` times ``seen``."""
        if self.inverse == "exact":
            solved: Tensor = torch.linalg.solve_ex(between, seen).result
            return solved
        scale = between.sum(-1, keepdim=True).rsqrt()
        flat = (between * scale * scale.mT).flatten(0, 1)
        guess = torch.eye(flat.shape[-1], dtype=flat.dtype, device=flat.device).expand_as(flat)
        guess = inverse_steps(flat, guess, self.iterations)
        return scale * (guess.view_as(between) @ (scale * seen))


def _gaussian(
    a: Float[Tensor, "batch heads rows dim"], b: Float[Tensor, "batch heads columns dim"]
) -> Float[Tensor, "batch heads rows columns"]:
    """exp(-|a - b|^2 / (2 sqrt(dim))), at most one: rounding must not exceed it."""
    norms = a.square().sum(-1)[..., None] + b.square().sum(-1)[:, :, None]
    exponents = (a @ b.mT - norms / 2) / math.sqrt(a.shape[-1])
    return exponents.clamp_max(0).exp()


def _real_count(
    stream: Float[Tensor, "batch heads tokens dim"], keep: Bool[Tensor, "batch tokens"] | None
) -> Int[Tensor, " batch"]:
    """How many real tokens each row has."""
    if keep is not None:
        return keep.sum(1)
    return torch.zeros(stream.shape[0], dtype=torch.long, device=stream.device) + stream.shape[2]


def _at_rank(
    stream: Float[Tensor, "batch heads tokens dim"],
    rank: Int[Tensor, "batch sample"],
    keep: Bool[Tensor, "batch tokens"] | None,
) -> Float[Tensor, "batch heads sample dim"]:
    """The real tokens at these positions of their order; any other where there is none."""
    position = rank.clamp(0, stream.shape[2] - 1)
    if keep is not None:
        position = stable_order((~keep).int()).gather(1, position)
    index = position[:, None, :, None].expand(-1, stream.shape[1], -1, stream.shape[3])
    return stream.gather(2, index)


def _check_options(landmarks: int, ridge: float, inverse: str, iterations: int) -> None:
    for name, number in (("landmarks", landmarks), ("iterations", iterations)):
        if number < 1:
            raise UsageError(f"skyformer: {name} must be at least 1; got {number}")
    if not 0 < ridge < math.inf:
        raise UsageError(f"skyformer: ridge must be above 0; got {ridge}")
    require_choice("skyformer", "inverse", inverse, INVERSE)
