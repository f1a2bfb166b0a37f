"""Positive random features: their mean product is the exponential of a dot product."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparing.core.workload import Cost, Workload
from sparing.mechanisms._features import CHUNK, head_groups, spans
from sparing.mechanisms.shared.past import Weights, mix_past
from sparing.mechanisms.shared.products import exp_in, recorded, split_rows, wide_type
from sparing.mechanisms.shared.summaries import summary_attention

_LEAST_EXPONENT = -80.0
"""Causal features of a key are at least exp(-80) = 2e-35 times its largest."""


@dataclass(frozen=True)
class Positive:
    """Features exp(rows . x - scale |x|^2 / 2), one for each of the ``rows``.

    A query's factor exp(-scale |q|^2 / 2) cancels when its weights are divided by their sum, so it
    is left out.
    """

    rows: Float[Tensor, "count dim"]
    scale: float

    def queries(self, q: Float[Tensor, "*rows tokens dim"]) -> Float[Tensor, "*rows tokens count"]:
        """Features of queries, the largest of each query being 1."""
        exponents = q @ self.rows.t()
        return exponents.sub_(exponents.detach().amax(-1, keepdim=True)).exp_()

    def keys(
        self, k: Float[Tensor, "*rows tokens dim"]
    ) -> tuple[Float[Tensor, "*rows tokens count"], Float[Tensor, "*rows tokens"]]:
        """Features of keys, the largest of each key being 1, and the logarithm of its factor."""
        exponents = k @ self.rows.t()
        largest = exponents.detach().amax(-1, keepdim=True)
        features = exponents.sub_(largest).clamp(min=_LEAST_EXPONENT).exp_()
        return features, largest[..., 0] + self.norms(k)

    def norms(self, k: Float[Tensor, "*rows tokens dim"]) -> Float[Tensor, "*rows tokens"]:
        """-scale |k|^2 / 2."""
        return k.square().sum(-1) * (-self.scale / 2)


def positive_attention(
    maps: Positive,
    q: Float[Tensor, "batch heads queries dim"],
    k: Float[Tensor, "batch heads keys dim"],
    v: Float[Tensor, "batch heads keys dim"],
    logs: Float[Tensor, "batch _ keys"],
    *,
    chunked: bool,
) -> Float[Tensor, "batch heads queries dim"]:
    """Every query over all keys: two softmaxes, so nothing can overflow or vanish.

    Let f_ir = rows_r . q_i and e_jr be the exponents of keys. Then sum_j sum_r exp(f_ir + e_jr) v_j
    over the same sum without v_j equals softmax_r(f_ir + L_r) applied to means_r. Here means_r =
    softmax_j(e_jr) v_j and L_r = logsumexp_j(e_jr). This is attention to one summary of the keys
    for each feature.
    """
    logs = (logs - logs.detach().amax(-1, keepdim=True)).to(q.dtype)
    biases = maps.norms(k) + logs
    if chunked:
        means, totals = _summaries_in_chunks(maps, k, v, biases)
    else:
        exponents = maps.rows @ k.transpose(-1, -2) + biases[:, :, None]
        means, totals = exponents.softmax(-1) @ v, exponents.logsumexp(-1)
    rows = maps.rows.expand(*q.shape[:2], -1, -1)
    return F.scaled_dot_product_attention(q, rows, means, attn_mask=totals[:, :, None], scale=1.0)


def positive_at_once(
    rows: Float[Tensor, "count inner"],
    q: Float[Tensor, "batch heads queries inner"],
    k: Float[Tensor, "batch heads keys inner"],
    v: Float[Tensor, "batch heads keys dim"],
    logs: Float[Tensor, "batch _ keys"],
    *,
    scale: float,
    causal: bool,
) -> Float[Tensor, "batch heads queries dim"]:
    """Attention with the features exp(scale rows . x) and the weights exp(logs), without a loop.

    Not causal, ``rows`` are rounded to q's type.
    """
    wide = wide_type(q.dtype)
    if not causal:
        return summary_attention(q, k, v, rows, logs, scale)
    if scale != 1:
        rows = rows.to(wide) * scale
    dtype = wide if q.dtype == torch.float16 else q.dtype  # float16 has no exp(-80)
    queries = split_rows(rows, q).softmax(-1).to(dtype)
    exponents = split_rows(rows, k)
    relative = exponents.log_softmax(-1)
    logs = logs + exponents[..., 0] - relative[..., 0]
    keys = exp_in(relative, dtype)
    least = math.exp(_LEAST_EXPONENT)
    keys = keys.clamp(min=least) if recorded(keys) else keys.clamp_(min=least)
    return mix_past(queries, keys, v, Weights(logs)).to(q.dtype)


def _summaries_in_chunks(
    maps: Positive, k: Tensor, v: Tensor, biases: Tensor
) -> tuple[Float[Tensor, "batch heads count dim"], Float[Tensor, "batch heads count"]]:
    """The means and their logarithmic weights, some tokens of some heads at a time."""
    count = maps.rows.shape[0]
    means = k.new_empty(*k.shape[:2], count, k.shape[3])
    totals = k.new_empty(*k.shape[:2], count)
    for sample in range(k.shape[0]):
        for heads in head_groups(k.shape[1], min(CHUNK, k.shape[2]), count):
            part = (sample, heads)
            _summarise(maps, k[part], v[part], biases[part], means[part], totals[part])
    return means, totals


def _summarise(
    maps: Positive, k: Tensor, v: Tensor, biases: Tensor, means: Tensor, totals: Tensor
) -> None:
    """Write the summaries of some heads; each feature keeps its own largest exponent so far."""
    rows = maps.rows.expand(k.shape[0], -1, -1)
    sums, weights = torch.zeros_like(means), torch.zeros_like(totals)[..., None]
    reference = torch.full_like(weights, torch.finfo(k.dtype).min)
    for span in spans(k.shape[1], CHUNK):
        features = torch.baddbmm(biases[:, None, span], rows, k[:, span].transpose(1, 2))
        larger = torch.maximum(reference, features.amax(-1, keepdim=True))
        scale, reference = (reference - larger).exp_(), larger
        features.sub_(larger).exp_()
        weights = weights.mul_(scale).add_(features.sum(-1, keepdim=True))
        sums = torch.baddbmm(sums.mul_(scale), features, v[:, span])
    torch.div(sums, weights, out=means)
    totals.copy_((reference + weights.log_())[..., 0])


def positive_cost(work: Workload, count: int, *, other_flops: int = 0, params: int = 0) -> Cost:
    """The cost of ``positive_attention`` in chunks: four products of tokens, features and dim.

    The peak is the output, the summaries, and one chunk of features with the sums of its heads.
    """
    chunk = min(CHUNK, work.keys)
    group = next(head_groups(work.heads, chunk, count))
    summaries = work.rows * count * (work.dim + 1) + work.rows * work.keys
    held = 2 * chunk * count + 2 * count * (work.dim + 1)
    output = work.rows * work.queries * work.dim * work.element_bytes
    elements = summaries + (group.stop - group.start) * held
    return Cost(
        matmul_flops=4 * work.rows * (work.queries + work.keys) * count * work.dim,
        other_flops=5 * work.rows * (work.queries + work.keys) * count + other_flops,
        peak_bytes=output + elements * max(4, work.element_bytes),
        params=params,
    )
