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
from sparing.mechanisms.shared.products import HALVES, exp_in, recorded, split_rows, wide_type
from sparing.mechanisms.shared.sums.past import Past, Weights, mix_past

_LEAST_EXPONENT = -80.0
"""Causal features of a key are at least exp(-80) = 2e-35 times its largest."""

_PARTS = 3
"""Coordinates of a number that is added to a score, in half precision."""

_FARTHEST = -6e4
"""The least number added to a score: finite in float16."""


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
    past: Past = mix_past,
) -> Float[Tensor, "batch heads queries dim"]:
    """Attention with the features exp(scale rows . x) and the weights exp(logs), without a loop.

    Not causal, ``rows`` are rounded to q's type; causal, ``past`` sums over earlier keys.
    """
    wide = wide_type(q.dtype)
    if not causal:
        return summary_attention(q, k, v, rows, logs, scale)
    if scale != 1:
        rows = rows.to(wide) * scale
    dtype = wide if q.dtype == torch.float16 else q.dtype  # float16 has no exp(-80)
    scores, exponents = split_rows(rows, q, k)
    queries = scores.softmax(-1).to(dtype)
    del scores
    relative = exponents.log_softmax(-1)
    logs = logs + exponents[..., 0] - relative[..., 0]
    keys = exp_in(relative, dtype)
    least = math.exp(_LEAST_EXPONENT)
    keys = keys.clamp(min=least) if recorded(keys) else keys.clamp_(min=least)
    return past(queries, keys, v, Weights(logs)).to(q.dtype)


def summary_attention(
    q: Float[Tensor, "batch heads queries inner"],
    k: Float[Tensor, "batch heads keys inner"],
    v: Float[Tensor, "batch heads keys dim"],
    rows: Float[Tensor, "count inner"],
    logs: Float[Tensor, "batch _ keys"],
    scale: float,
) -> Float[Tensor, "batch heads queries dim"]:
    """out_i = sum_jr exp(f_ir + e_jr) v_j over the same sum without v_j: nothing can overflow.

    f_ir = scale rows_r . q_i and e_jr = scale rows_r . k_j + logs_j. That is attention of queries
    to ``rows``, with a value and a weight for each. The value is attention of row r to the keys,
    and the weight sum_j exp(e_jr). Numbers added to scores are more coordinates of both sides.
    """
    dim, dtype = q.shape[3], q.dtype
    more = _more(dim)
    logs = (logs - logs.detach().amax(-1, keepdim=True)).to(wide_type(dtype))
    keys = F.pad(k, (0, more, 0, 1))  # and a key of known score
    _write_parts(keys[:, :, :-1, dim : dim + _PARTS], logs / scale)
    keys[:, :, -1, dim + _PARTS : dim + 2 * _PARTS].fill_(1)
    marked = F.pad(v, (0, keys.shape[3] - v.shape[3], 0, 1))
    marked[:, :, -1, v.shape[3]].fill_(1)
    values, weights = _summaries(rows.to(dtype), keys, marked, v.shape[3], scale)
    summaries = F.pad(rows.to(dtype), (0, more)).repeat(*q.shape[:2], 1, 1)
    weights = (weights - weights.detach().amax(-1, keepdim=True)) / scale
    _write_parts(summaries[..., dim : dim + _PARTS], weights)
    queries = F.pad(q, (0, more), value=1)
    mixed = F.scaled_dot_product_attention(queries, summaries, values, scale=scale)
    return mixed[..., : v.shape[3]]


def _summaries(
    rows: Tensor, keys: Tensor, values: Tensor, mark: int, scale: float
) -> tuple[Float[Tensor, "batch heads count wide"], Float[Tensor, "batch heads count"]]:
    """Each row's mean of the values, and the logarithm of its weight.

    The last key gets a score just below the logarithm of the others' weight: the mean of their
    scores, which is lower by at most the logarithm of their number. Its share of the row's weight,
    the value ``mark``, shows that weight.
    """
    dim = rows.shape[1]
    batch, heads, _, width = keys.shape
    with torch.no_grad():
        queries = F.pad(rows, (0, width - dim)).repeat(batch, heads, 1, 1)
        queries[..., dim : dim + _PARTS].fill_(1)
        tokens = keys[:, :, :-1]
        mean = F.scaled_dot_product_attention(queries, tokens, tokens, scale=scale)
        wide = wide_type(rows.dtype)
        known = (mean.to(wide) * queries).sum(-1)  # a score without its scale
        _write_parts(queries[..., dim + _PARTS : dim + 2 * _PARTS], known)
        known = known * scale
    mixed = F.scaled_dot_product_attention(queries, keys, values, scale=scale)
    share = mixed[..., mark].to(wide)
    means = (mixed.to(wide) / (1 - share)[..., None]).to(mixed.dtype)
    return means, known - share.logit()


def _more(dim: int) -> int:
    """Coordinates added to a head: two numbers, and up to a multiple of eight."""
    return 2 * _PARTS + -(dim + 2 * _PARTS) % 8


def _write_parts(zeros: Float[Tensor, "*shape parts"], x: Float[Tensor, "*shape"]) -> None:
    """Write parts of a number into zeros, as coordinates: their sum is the number."""
    x = x.clamp(min=_FARTHEST) if zeros.dtype == torch.float16 else x
    zeros[..., 0] = x
    if zeros.dtype not in HALVES:
        return
    for part in range(1, _PARTS):
        x = x - zeros[..., part - 1]
        zeros[..., part] = x


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
