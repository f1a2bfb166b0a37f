"""Linformer: against its matrices written out, sharing, limits, and the pooled forms."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from sparing import Heads, Mask, Unsupported, UsageError, mechanism

HEADS = Heads(2, 4, tokens=40)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def qkv(tokens, batch=2, keys=None):
    return tuple(
        torch.randn(batch, 2, n, 4).double() for n in (tokens, keys or tokens, keys or tokens)
    )


def written_out(made, q, k, v):
    """One row at a time, each head with its own matrix."""
    keys, slots = k.shape[2], min(made.slots, k.shape[2])
    key, value = made._projections()
    out = torch.zeros_like(q)
    for sample in range(len(q)):
        for head in range(q.shape[1]):
            e, f = (m[head] if m.ndim == 3 else m for m in (key, value))
            slot_k, slot_v = e[:slots, :keys] @ k[sample, head], f[:slots, :keys] @ v[sample, head]
            scores = q[sample, head] @ slot_k.T / math.sqrt(q.shape[-1])
            out[sample, head] = scores.softmax(-1) @ slot_v
    return out


@pytest.mark.parametrize("sharing", ["none", "headwise", "kv", "layerwise"])
@pytest.mark.parametrize("projection", ["learned", "random"])
def test_equals_its_matrices_written_out(sharing, projection):
    made = mechanism("linformer", HEADS, slots=9, sharing=sharing, projection=projection).double()
    for streams in (qkv(40), qkv(12), qkv(5), qkv(7, keys=30)):
        with torch.no_grad():
            torch.testing.assert_close(
                made(*streams), written_out(made, *streams), rtol=1e-10, atol=1e-10
            )


@pytest.mark.parametrize("sharing", ["none", "headwise"])
def test_memory_layout_does_not_matter(sharing):
    made = mechanism("linformer", HEADS, slots=9, sharing=sharing).double()
    streams = qkv(30)
    token_major = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in streams]
    with torch.no_grad():
        torch.testing.assert_close(made(*token_major), made(*streams), rtol=1e-10, atol=1e-10)


def test_sharing_counts_matrices():
    sizes = {
        sharing: sum(
            p.numel() for p in mechanism("linformer", HEADS, slots=9, sharing=sharing).parameters()
        )
        for sharing in ("none", "headwise", "kv", "layerwise")
    }
    assert sizes == {"none": 4 * 360, "headwise": 2 * 360, "kv": 360, "layerwise": 360}
    assert not list(mechanism("linformer", HEADS, projection="random").parameters())


def two_layers(**options):
    layers = nn.ModuleList(
        mechanism("linformer", HEADS, sharing="layerwise", seed=7, slots=9, **options) for _ in "ab"
    ).double()
    layers[1].share_projections(layers[0])
    return layers


@pytest.mark.parametrize("projection", ["learned", "random", "convolution"])
def test_layers_share_one_matrix_registered_once(projection):
    layers, streams = two_layers(projection=projection), qkv(20)
    assert list(layers.state_dict()) == ["0.key_projection"]
    assert torch.equal(layers[0](*streams), layers[1](*streams))
    twin = copy.deepcopy(layers)
    with torch.no_grad():
        twin[0].key_projection.mul_(2)
    assert torch.equal(twin[0](*streams), twin[1](*streams))
    assert not torch.equal(twin[1](*streams), layers[1](*streams))


def test_a_shared_matrix_learns_from_both_layers():
    layers, streams = two_layers(), qkv(20)
    layers[1](*streams).sum().backward()
    assert layers[0].key_projection.grad is not None


def test_what_does_not_fit_is_not_shared():
    first = mechanism("linformer", HEADS, sharing="layerwise")
    for other in (
        mechanism("linformer", HEADS, sharing="kv"),
        mechanism("linformer", HEADS, sharing="layerwise", slots=3),
        mechanism("linformer", Heads(2, 4, tokens=41), sharing="layerwise"),
        first,
    ):
        with pytest.raises(UsageError, match="shar"):
            other.share_projections(first)


def test_padding_beyond_the_limit_is_cut():
    made = mechanism("linformer", HEADS, slots=9).double()
    q, k, v = qkv(60, batch=1)
    keep = torch.zeros(1, 60, dtype=torch.bool)
    keep[:, 15:55] = True
    alone = made(*(t[:, :, 15:55] for t in (q, k, v)))
    torch.testing.assert_close(made(q, k, v, mask=Mask(keep))[:, :, 15:55], alone)
    keep[:, 55] = True
    with pytest.raises(Unsupported, match="40"):
        made(q, k, v, mask=Mask(keep))


def test_matrices_need_the_longest_length():
    for projection in ("learned", "random"):
        with pytest.raises(UsageError, match="tokens"):
            mechanism("linformer", Heads(2, 4), projection=projection)
    for projection in ("mean_pool", "convolution"):
        made = mechanism("linformer", Heads(2, 4), projection=projection).double()
        assert made.traits.any_length
        assert not made.traits.random
        assert made(*qkv(1000)).shape == (2, 2, 1000, 4)


def test_mean_pool_by_hand_with_a_short_last_group_and_a_pad_between():
    made = mechanism("linformer", Heads(2, 4), projection="mean_pool", stride=3).double()
    q, k, v = qkv(7, batch=1)
    keep = torch.tensor([[True, True, True, True, False, True, True]])
    groups = [[0, 1, 2], [3, 5], [6]]
    means = [torch.stack([t[:, :, group].mean(2) for group in groups], 2) for t in (k, v)]
    weights = (q @ means[0].mT / 2).softmax(-1)
    output = made(q, k, v, mask=Mask(keep))
    real = keep[0]
    torch.testing.assert_close(output[:, :, real], (weights @ means[1])[:, :, real])


@pytest.mark.parametrize("sharing", ["none", "headwise", "kv"])
def test_the_convolution_starts_as_the_mean(sharing):
    options = {"stride": 4, "sharing": sharing}
    made = mechanism("linformer", Heads(2, 4), projection="convolution", **options).double()
    mean = mechanism("linformer", Heads(2, 4), projection="mean_pool", stride=4)
    streams = qkv(14)
    torch.testing.assert_close(made(*streams), mean(*streams), rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        made.key_projection[..., 0, :] += 1
    assert not torch.allclose(made(*streams), mean(*streams))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"slots": 0}, "slots"),
        ({"stride": 0}, "stride"),
        ({"sharing": "headwize"}, "'headwise'"),
        ({"projection": "mean"}, "mean_pool"),
    ],
)
def test_impossible_options_are_refused(options, named):
    with pytest.raises(UsageError, match=named):
        mechanism("linformer", HEADS, **options)
