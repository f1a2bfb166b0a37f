"""EcoFormer: linear attention over binary codes, from a kernelised hash of shared projections."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sparing.core.errors import Unsupported, UsageError
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.mechanism import Mechanism
from sparing.core.traits import Traits
from sparing.core.workload import Cost, Workload
from sparing.mechanisms._codes import hard_signs, learned_bits, pair_labels
from sparing.mechanisms._hashing import by_heads, coarse_normal
from sparing.mechanisms._kernel import BLOCK, feature_sums, rows_at_once
from sparing.mechanisms.shared.arithmetic import wide
from sparing.mechanisms.shared.products import recorded, wide_product, wide_type
from sparing.mechanisms.shared.sums.past import Weights, mix_all, mix_past

_LABELLED = 256


class Ecoformer(Mechanism):
    """Attention with the number of shared hash bits of two tokens as their weight.

    Formula: out_i = sum_j s_ij v_j / sum_j s_ij with s_ij = h_i . h_j + bits + 1 and
    h_i = sign(A (kappa(x_i) - m)), kappa(x)_a = exp(-|x - anchor_a|^2 / (2 sigma)),
    x_i = q_i / |q_i|.

    Symbols: i runs over queries, j over the tokens that i may see; a over ``anchors``, A is
    (bits, anchors), m the mean of kappa, sigma the mean squared distance to the anchors: one set
    for each head, buffers, not trained by gradients. A fresh instance has random unit vectors for
    anchors and a normal A, sampled with ``seed``; ``fit_hashes`` learns all from tokens, and may be
    called again while training.

    Cost: 2 dim anchors + 2 anchors bits + 4 dim (bits + 1) flops for each token and no square,
    causal or not. There is no setting in which it equals softmax; it equals its own square form.
    The paper models its saving of energy: products with signs would be additions. PyTorch
    multiplies, and a measurement here shows those products.

    Source: Liu et al., 2022, arXiv 2209.09004, section 4; queries and keys share a projection, so
    there is no k. What differs: the authors' code adds (bits + 1) v_i to the sum in place of (bits
    + 1) sum_j v_j, so rows do not sum to 1. It takes sigma from each batch as it comes, pads
    included; here it stays as fitted. Bits are fitted by ascent in steps of one length, from the
    leading eigenvector. They are rounded to eight bits of precision: a model cast to half precision
    hashes as before, on accelerators from products in float32. Gradients go straight through the
    sign where its argument is in [-1, 1]. Decoding from cached keys is refused: the keys are
    computed from queries.
    """

    centres: Tensor
    directions: Tensor
    means: Tensor
    sigmas: Tensor
    streams = ("q", "v")
    traits = Traits(
        paper="EcoFormer: Energy-Saving Attention with Linear Complexity, arXiv 2209.09004",
        year=2022,
        family="hashing",
        causal=True,
        permutable=True,
        random=True,
        differentiable=False,
    )
    accelerated = ("accelerator",)

    def __init__(self, heads: Heads, *, bits: int = 16, anchors: int = 25, seed: int = 0) -> None:
        super().__init__(heads)
        for name, number in (("bits", bits), ("anchors", anchors)):
            if number < 1:
                raise UsageError(f"ecoformer: {name} must be at least 1; got {number}")
        self.bits = bits
        self.anchors = anchors
        self.seed = seed
        count, dim = heads.count, heads.dim
        drawn = coarse_normal((count, anchors * (dim + bits) + _LABELLED * dim), seed)
        sizes = [anchors * dim, anchors * bits, _LABELLED * dim]
        centres, directions, others = torch.split(drawn, sizes, 1)
        centres = _unit(centres.reshape(count, anchors, dim))
        others = _unit(others.reshape(count, _LABELLED, dim))
        sigmas = torch.full((count,), 2.0)  # of independent unit vectors
        self.register_buffer("centres", _coarse(centres))
        self.register_buffer("directions", directions.reshape(count, bits, anchors).clone())
        self.register_buffer("means", _coarse(_kernels(others, centres, sigmas).mean(1)))
        self.register_buffer("sigmas", sigmas)

    def mix(  # type: ignore[override]  # keys are the queries
        self,
        q: Float[Tensor, "batch heads queries dim"],
        v: Float[Tensor, "batch heads keys dim"],
        *,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Codes of all tokens, then sums over them."""
        self._require_queries(q, v)
        beta = self.bits + 1

        def mix_rows(q: Tensor, v: Tensor, keep: Tensor | None, parameters: Tensor) -> Tensor:
            codes = _codes(wide(q), parameters.to(wide(q).dtype), self.bits)
            ones = torch.ones_like(codes[..., :1])
            queries, keys = torch.cat([codes, ones * beta], -1), torch.cat([codes, ones], -1)
            weights = None if keep is None else keep[:, None].to(codes.dtype)
            mixed, totals = feature_sums(queries, keys, wide(v), weights, causal=mask.causal)
            return mixed / totals.clamp_min(1)[..., None]  # each weight is at least 1

        parts = (self.centres, self.directions.mT, self.means[..., None])
        parameters = torch.cat([*parts, self.sigmas[:, None, None].expand_as(parts[2])], -1)
        return by_heads(mix_rows, (q, v), mask.keep, parameters)

    def mix_accelerator(self, *streams: Tensor, mask: Mask) -> Tensor:
        """Codes and sums of all heads at once."""
        q, v = streams
        self._require_queries(q, v)
        codes = self._codes_at_once(q).to(v.dtype)
        # The constant is a product of eight features: half precision multiplies by eights.
        queries = F.pad(codes, (0, 8), value=(self.bits + 1) / 8)
        keys = F.pad(codes, (0, 8), value=1)
        if mask.causal:
            return mix_past(queries, keys, v, Weights(keep=mask.keep))
        return mix_all(queries, keys, v, Weights(keep=mask.keep), exact=True)

    def cost(self, work: Workload) -> Cost:
        """Distances to the anchors, bits, and two products with a (bits + 1) x dim state."""
        tokens, dim, features = work.keys, work.dim, self.bits + 1
        flops = 2 * tokens * self.anchors * (dim + self.bits)
        flops += 2 * features * (2 * tokens * dim + tokens)
        other = tokens * (4 * dim + 6 * self.anchors + 3 * features)
        held = tokens * (3 * dim + 3 * self.anchors + 5 * features)
        if work.causal:
            size = min(BLOCK, tokens)
            blocks = -(-tokens // size)
            flops += 2 * features * (2 * dim + 1) * (blocks * size - tokens)  # the last is whole
            flops += 2 * size * size * blocks * (features + dim)
            held += blocks * (2 * features * dim + size * size)
        rows = min(work.rows, rows_at_once(tokens, dim))
        output = work.rows * tokens * dim * work.element_bytes
        return Cost(
            matmul_flops=work.rows * flops,
            other_flops=work.rows * other,
            peak_bytes=output + rows * held * max(4, work.element_bytes),
        )

    def _require_queries(self, q: Tensor, v: Tensor) -> None:
        if q.shape[2] != v.shape[2]:
            raise Unsupported(
                "ecoformer: keys are computed from queries, so every token needs its query; got "
                f"{q.shape[2]} queries and {v.shape[2]} values"
            )

    def _codes_at_once(
        self, q: Float[Tensor, "batch heads tokens dim"]
    ) -> Float[Tensor, "batch heads tokens {self.bits}"]:
        """``_codes``, from products with q itself: dividing by its length comes after them."""
        wide = wide_type(q.dtype)
        centres, means, directions = (
            part.to(wide) for part in (self.centres, self.means, self.directions)
        )
        twice = -2 * self.sigmas.to(wide)[:, None, None]
        lengths = torch.linalg.vector_norm(q, dim=-1, keepdim=True, dtype=wide)
        products = wide_product(q, self.centres.to(q.dtype).mT)
        ends = centres.square().sum(-1)[:, None] / twice
        exponents = torch.addcmul(ends, products, -2 / (lengths.clamp_min(1e-12) * twice))
        kernels = (exponents + (lengths > 0) / twice).clamp_(max=0).exp_()
        arguments: Tensor = (kernels - means[:, None]) @ directions.mT
        codes = hard_signs(arguments)
        if not recorded(arguments):
            return codes
        soft = arguments.clamp(-1, 1)
        return codes + (soft - soft.detach())

    @torch.no_grad()
    def fit_hashes(
        self,
        tokens: Float[Tensor, "batch heads tokens dim"],
        keep: Bool[Tensor, "batch tokens"] | None = None,
        *,
        neighbours: int = 10,
        steps: int = 100,
    ) -> None:
        """Learn anchors, sigma, means and bits from the queries that the layer computes.

        Up to 256 real tokens, sampled with ``seed``, are labelled: each with its nearest and
        farthest ``neighbours``. The same tokens always give the same hashes.
        """
        if tokens.ndim != 4 or (tokens.shape[1], tokens.shape[3]) != self.centres.shape[::2]:
            raise UsageError(
                f"ecoformer: fit_hashes takes (batch, {self.heads.count}, tokens, "
                f"{self.heads.dim}); got {tuple(tokens.shape)}"
            )
        if keep is None:
            keep = torch.ones_like(tokens[:, 0, :, 0], dtype=torch.bool)
        if not bool(keep.any()) or neighbours < 1 or steps < 0:
            raise UsageError(
                "ecoformer: fit_hashes needs a real token, neighbours of at least 1 and steps of "
                "at least 0"
            )
        for head in range(self.heads.count):
            self._fit_head(head, _unit(tokens[:, head][keep].double().cpu()), neighbours, steps)

    def _fit_head(
        self, head: int, rows: Float[Tensor, "tokens dim"], neighbours: int, steps: int
    ) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        chosen = rows[torch.randperm(len(rows), generator=generator, device="cpu")[:_LABELLED]]
        centres = _coarse(chosen[torch.arange(self.anchors) % len(chosen)])
        sigma = _coarse(_distances(rows, centres).mean())
        sigma = sigma.where(sigma > 0, 1.0)
        means = _coarse(_kernels(rows[None], centres[None], sigma[None])[0].mean(0))
        kernels = _kernels(chosen[None], centres[None], sigma[None])[0] - means
        directions = learned_bits(kernels, pair_labels(chosen, neighbours), self.bits, steps)
        self.centres[head] = centres.to(self.centres)
        self.sigmas[head] = sigma.to(self.sigmas)
        self.means[head] = means.to(self.means)
        self.directions[head] = _coarse(directions).to(self.directions)


def _unit(x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
    """x / |x|, zero where x is."""
    return F.normalize(x, dim=-1)


def _coarse(x: Tensor) -> Tensor:
    """Rounded to eight bits of precision, which casts to half precision keep."""
    return x.bfloat16().to(x.dtype)


def _distances(
    x: Float[Tensor, "... tokens dim"], centres: Float[Tensor, "... anchors dim"]
) -> Float[Tensor, "... tokens anchors"]:
    """Squared distances of tokens from the anchors, at least zero."""
    squares = x.square().sum(-1, keepdim=True) + centres.square().sum(-1)[..., None, :]
    return (squares - 2 * (x @ centres.transpose(-1, -2))).clamp_min(0)


def _kernels(
    x: Float[Tensor, "... heads tokens dim"],
    centres: Float[Tensor, "heads anchors dim"],
    sigmas: Float[Tensor, " heads"],
) -> Float[Tensor, "... heads tokens anchors"]:
    """kappa of each token."""
    return (_distances(x, centres) / (-2 * sigmas[:, None, None])).exp()


def _codes(
    q: Float[Tensor, "batch heads tokens dim"],
    parameters: Float[Tensor, "heads anchors packed"],
    bits: int,
) -> Float[Tensor, "batch heads tokens {bits}"]:
    """h: signs, with the gradient of their argument where it is in [-1, 1]."""
    centres, directions, means, sigmas = torch.split(parameters, [q.shape[-1], bits, 1, 1], -1)
    kernels = _kernels(_unit(q), centres, sigmas[:, 0, 0])
    arguments = (kernels - means[:, None, :, 0]) @ directions
    soft = arguments.clamp(-1, 1)
    return hard_signs(arguments) + (soft - soft.detach())
