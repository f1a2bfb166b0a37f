"""Positive random features without causality: two fused attentions, and no tensor of features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sparing.mechanisms.shared.products import in_parts, wide_type

_PARTS = 3
"""Coordinates of a number that is added to a score, in half precision."""

_FARTHEST = -6e4
"""The least number added to a score: finite in float16."""


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
    keys[:, :, :-1, dim : dim + _PARTS] = _coordinates(logs / scale, dtype)
    keys[:, :, -1, dim + _PARTS : dim + 2 * _PARTS] = 1
    marked = F.pad(v, (0, keys.shape[3] - v.shape[3], 0, 1))
    marked[:, :, -1, v.shape[3]] = 1
    values, weights = _summaries(rows.to(dtype), keys, marked, v.shape[3], scale)
    count = len(rows)
    summaries = F.pad(rows.to(dtype), (0, more)).expand(*q.shape[:2], count, -1)
    weights = (weights - weights.detach().amax(-1, keepdim=True)) / scale
    added = _coordinates(weights, dtype)
    summaries = torch.cat([summaries[..., :dim], added, summaries[..., dim + _PARTS :]], -1)
    queries = F.pad(q, (0, more), value=1)
    mixed = F.scaled_dot_product_attention(queries, summaries, values, scale=scale)
    return mixed[..., : v.shape[3]]


def _summaries(
    rows: Tensor, keys: Tensor, values: Tensor, mark: int, scale: float
) -> tuple[Float[Tensor, "batch heads count wide"], Float[Tensor, "batch heads count"]]:
    """Each row's mean of the values, and the logarithm of its weight.

    The last key gets a score just below the logarithm of the others' weight: the mean of their
    scores, which is lower by at most the logarithm of their number. Its share of the row's weight,
    the value ``mark``, shows theirs.
    """
    dim = rows.shape[1]
    batch, heads, _, width = keys.shape
    with torch.no_grad():
        queries = F.pad(rows, (0, width - dim)).expand(batch, heads, -1, -1).contiguous()
        queries[..., dim : dim + _PARTS] = 1
        tokens = keys[:, :, :-1]
        mean = F.scaled_dot_product_attention(queries, tokens, tokens, scale=scale)
        wide = wide_type(rows.dtype)
        known = (mean.to(wide) * queries.to(wide)).sum(-1)  # a score without its scale
        queries[..., dim + _PARTS : dim + 2 * _PARTS] = _coordinates(known, rows.dtype)
        known = known * scale
    mixed = F.scaled_dot_product_attention(queries, keys, values, scale=scale)
    share = mixed[..., mark].to(wide)
    means = (mixed.to(wide) / (1 - share)[..., None]).to(mixed.dtype)
    return means, known + torch.log1p(-share) - share.log()


def _more(dim: int) -> int:
    """Coordinates added to a head: two numbers, and up to a multiple of eight."""
    return 2 * _PARTS + -(dim + 2 * _PARTS) % 8


def _coordinates(x: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape parts"]:
    """Parts of a number as coordinates, so that their sum is it."""
    parts = in_parts(x.clamp(min=_FARTHEST) if dtype == torch.float16 else x, dtype)
    missing = [torch.zeros_like(parts[0])] * (_PARTS - len(parts))
    return torch.stack(parts + missing, -1)
