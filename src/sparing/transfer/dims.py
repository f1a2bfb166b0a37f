"""Narrower heads: leave out the coordinates of queries, keys and values that the data use least."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from sparing.core.errors import UsageError
from sparing.layers.elastic import ElasticLayer
from sparing.layers.plan import LayerSizes, full_plan
from sparing.layers.rotation import bases
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing.transfer.importance import still
from sparing.transfer.registry import NAME

LAYERS = "encoder.layers"


@dataclass(frozen=True, eq=False)
class Moments:
    """A layer's means and covariances of queries (not centred), keys and values, by head."""

    queries: Float[Tensor, "heads dim dim"]
    keys: Float[Tensor, "heads dim dim"]
    values: Float[Tensor, "heads dim_v dim_v"]
    key_means: Float[Tensor, "heads dim"]
    value_means: Float[Tensor, "heads dim_v"]


@torch.no_grad()
def narrow_heads(
    model: AdaptiveClassifier,
    batches: Iterable[Mapping[str, Tensor]],
    *,
    query_dim: int,
    value_dim: int,
) -> AdaptiveClassifier:
    """A model with narrower queries and keys, and narrower values, in its heads.

    Formula: q k^T = (q A)(k B)^T with A B^T = 1; only the first ``query_dim`` columns of A and B
    are kept, which loses least of the scores' mean square over ``batches`` (inputs of the model).
    Values and the output projection are treated alike. Everything is folded into the weights, so
    the model computes nothing extra; at the full widths nothing changes. Two means go into biases
    first: that of keys, which cancels in a softmax, and that of values, which mixing keeps.

    Raises ``UsageError`` for widths outside 1 to the model's own and without batches. The given
    model does not change.
    """
    sizes = model.encoder.sizes
    for name, dim, most in (
        ("query_dim", query_dim, min(size.query_dim for size in sizes)),
        ("value_dim", value_dim, min(size.value_dim for size in sizes)),
    ):
        if not 1 <= dim <= most:
            raise UsageError(f"{name} must be from 1 to {most}; got {dim}")
    moments = moments_of(model, batches)
    smaller = _empty(model, query_dim, value_dim)
    state = {name: tensor for name, tensor in model.state_dict().items() if LAYERS not in name}
    unknown = smaller.load_state_dict(state, strict=False).unexpected_keys
    assert not unknown, unknown
    for ours, theirs, layer_moments in zip(
        smaller.encoder.layers, model.encoder.layers, moments, strict=True
    ):
        assert isinstance(ours, ElasticLayer)
        assert isinstance(theirs, ElasticLayer)
        _fold(ours, theirs, layer_moments)
    smaller.train(model.training)
    return smaller


def moments_of(model: AdaptiveClassifier, batches: Iterable[Mapping[str, Tensor]]) -> list[Moments]:
    """Each layer's moments over the real tokens of the batches, in float64."""
    sums: list[list[Tensor]] = []
    count = 0
    plan = full_plan(model.encoder.sizes)
    with still(model):
        for batch in batches:
            rows, layout = model.embed(**batch)
            states = model.encoder.trace(rows, layout, plan).states
            count += len(rows)
            for number, layer in enumerate(model.encoder.layers):
                assert isinstance(layer, ElasticLayer)
                batch_sums = _sums(_streams(layer, states[number]))
                if len(sums) <= number:
                    sums.append(batch_sums)
                else:
                    sums[number] = [a + b for a, b in zip(sums[number], batch_sums, strict=True)]
    if not count:
        raise UsageError("narrowing heads needs at least one batch of inputs")
    return [_moments(layer_sums, count) for layer_sums in sums]


def _streams(layer: ElasticLayer, rows: Tensor) -> list[Tensor]:
    """Queries, keys and values of real tokens as (heads, rows, dim)."""
    x = layer.attention_norm(rows) if layer.form.norm_first else rows
    projected = F.linear(x, layer.projection.weight, layer.projection.bias).double()
    by_head = projected.view(len(rows), layer.sizes.heads, layer.head_rows).transpose(0, 1)
    dim = layer.sizes.query_dim
    return [by_head[..., :dim], by_head[..., dim : 2 * dim], by_head[..., 2 * dim :]]


def _sums(streams: list[Tensor]) -> list[Tensor]:
    squares = [stream.mT @ stream for stream in streams]
    return [*squares, streams[1].sum(1), streams[2].sum(1)]


def _moments(sums: list[Tensor], count: int) -> Moments:
    queries, keys, values, key_means, value_means = (one / count for one in sums)
    keys = keys - key_means[:, :, None] * key_means[:, None, :]
    values = values - value_means[:, :, None] * value_means[:, None, :]
    return Moments(queries, keys, values, key_means, value_means)


def _empty(model: AdaptiveClassifier, query_dim: int, value_dim: int) -> AdaptiveClassifier:
    """A model of the same form with narrower heads and weights still to be filled."""
    model._write_entry()  # gates and confidence heads that were added later
    config = copy.deepcopy(model.config)
    sizes = [
        LayerSizes(size.heads, query_dim, value_dim, size.neurons) for size in model.encoder.sizes
    ]
    entry = getattr(config, NAME)
    changed = {**entry["adaptive"], "sizes": [size.to_list() for size in sizes], "frontier": []}
    setattr(config, NAME, {**entry, "adaptive": changed})
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten
        smaller = AdaptiveClassifier(config)
    smaller.to(device=model.device, dtype=model.dtype)
    return smaller


def _fold(ours: ElasticLayer, theirs: ElasticLayer, moments: Moments) -> None:
    old_sizes, sizes = theirs.sizes, ours.sizes
    weight = theirs.projection.weight.double().view(old_sizes.heads, theirs.head_rows, -1)
    bias = theirs.projection.bias.double().view(old_sizes.heads, theirs.head_rows, 1)
    output = (
        theirs.output.weight.double().view(-1, old_sizes.heads, old_sizes.value_dim).transpose(0, 1)
    )
    dim = old_sizes.query_dim
    for_q, for_k = bases(moments.queries, moments.keys)
    for_v, for_output = bases(moments.values, output.mT @ output)
    bias = bias.clone()
    bias[:, dim : 2 * dim, 0] -= moments.key_means
    bias[:, 2 * dim :, 0] -= moments.value_means
    folds = (
        (slice(0, dim), for_q[..., : sizes.query_dim]),
        (slice(dim, 2 * dim), for_k[..., : sizes.query_dim]),
        (slice(2 * dim, None), for_v[..., : sizes.value_dim]),
    )
    for target, source in ((ours.projection.weight, weight), (ours.projection.bias, bias)):
        parts = [basis.mT @ source[:, rows] for rows, basis in folds]
        target.copy_(torch.cat(parts, 1).reshape(target.shape))
    narrowed = output @ for_output[..., : sizes.value_dim]
    ours.output.weight.copy_(narrowed.transpose(0, 1).flatten(1))
    shift = (output @ moments.value_means[..., None]).sum((0, 2))
    ours.output.bias.copy_(theirs.output.bias + shift)
    for name in ("rise", "fall", "attention_norm", "feed_forward_norm"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
