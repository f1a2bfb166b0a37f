"""DCT-Former: waves of a row's own length, both ways to take them, and what they cost to keep."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.mechanisms import dct
from sparing.testing.entries.dct import cosines, dense_dct


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def qkv(tokens, keys=None, batch=2):
    sizes = (tokens, keys or tokens, keys or tokens)
    return tuple(torch.randn(batch, 2, n, 4).double() for n in sizes)


def built(frequencies=6):
    return mechanism("dct", Heads(2, 4), frequencies=frequencies)


def padded():
    keep = torch.zeros(4, 40, dtype=torch.bool)
    for sample, (first, last) in enumerate(((0, 40), (0, 23), (9, 40), (30, 33))):
        keep[sample, first:last] = True
    keep[0, 5:8] = False
    return Mask(keep)


@pytest.mark.parametrize("frequencies", [1, 2, 6, 31, 64])
@pytest.mark.parametrize("tokens", [1, 2, 31, 700])
def test_equals_its_formula_in_either_memory_layout(tokens, frequencies):
    made, streams = built(frequencies), qkv(tokens)
    expected = dense_dct(made, *streams, mask=Mask())
    token_major = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in streams]
    for inputs in (streams, token_major):
        output = made(*inputs)
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
        assert output.stride() == inputs[0].stride()


def test_one_frequency_is_the_mean_of_the_values():
    q, k, v = qkv(17)
    torch.testing.assert_close(built(1)(q, k, v), v.mean(2, keepdim=True).expand_as(v))


def test_all_frequencies_are_not_softmax_attention():
    streams = qkv(12)
    gap = built(12)(*streams) - mechanism("softmax", Heads(2, 4))(*streams)
    assert gap.abs().max() > 0.1


def test_padded_rows_with_and_without_gradients_equal_the_reference():
    made, mask = built(), padded()
    streams = qkv(40, batch=4)
    expected = dense_dct(made, *streams, mask=mask)
    leaves = [part.clone().requires_grad_() for part in streams]
    real = mask.keep[:, None, :, None]
    for output in (made(*streams, mask=mask), made(*leaves, mask=mask)):
        torch.testing.assert_close(
            output.where(real, 0), expected.where(real, 0), rtol=1e-10, atol=1e-10
        )


def test_a_padded_row_keeps_its_waves_where_those_of_the_batch_would_stretch():
    q, k, v = qkv(20, batch=1)
    longer = [torch.nn.functional.pad(part, (0, 0, 0, 12)) for part in (q, k, v)]
    alone = built()(q, k, v)
    keep = torch.arange(32)[None] < 20
    torch.testing.assert_close(built()(*longer, mask=Mask(keep))[:, :, :20], alone)
    stretched = built()(*longer)[:, :, :20]  # zeros at pads, and waves over all 32
    assert (stretched - alone).abs().max() > 0.1


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 31), (40, 9), (3, 2), (17, 17)])
def test_other_queries_have_waves_of_their_own(queries, keys, grad):
    made, (q, k, v) = built(), qkv(queries, keys)
    q.requires_grad_(grad)
    keep = torch.ones(2, keys, dtype=torch.bool)
    keep[1, keys // 2 + 1 :] = False
    output = made(q, k, v, mask=Mask(keep, cross=True))
    for sample, length in enumerate((keys, keys // 2 + 1)):
        q_waves, k_waves = cosines(min(6, queries), queries), cosines(min(6, length), length)
        slots_q, slots_k = q_waves @ q[sample], k_waves @ k[sample, :, :length]
        weights = (slots_q @ slots_k.mT / math.sqrt(4)).softmax(-1)
        expected = q_waves.T @ weights @ k_waves @ v[sample, :, :length]
        torch.testing.assert_close(output[sample], expected, rtol=1e-10, atol=1e-10)


def test_projecting_frequencies_or_tokens_differs_by_the_bias_alone():
    x, weight, bias = torch.randn(20, 8).double(), torch.randn(8, 8).double(), torch.ones(8)
    waves = cosines(6, 20)
    torch.testing.assert_close(waves @ (x @ weight), waves @ x @ weight)
    share = waves @ (x @ weight + bias) - waves @ x @ weight
    lowest = torch.zeros(6, 8).double()
    lowest[0] = math.sqrt(20)
    torch.testing.assert_close(share, lowest)


def test_waves_are_accurate_far_out():
    waves = dct._kept_waves(65_536, 64, torch.float32, torch.device("cpu"))
    far = [
        math.sqrt(2 / 65_536) * math.cos(math.pi * (2 * t + 1) * 63 / (2 * 65_536))
        for t in (65_535, 40_000, 1)
    ]
    torch.testing.assert_close(waves[63, [65_535, 40_000, 1]], torch.tensor(far), rtol=1e-5, atol=0)


def test_kept_waves_are_no_state_and_serve_training_after_inference():
    made, streams = built(), qkv(33)
    dct._kept_waves.cache_clear()
    with torch.inference_mode():
        made(*streams)
    leaves = [part.clone().requires_grad_() for part in streams]
    made(*leaves).sum().backward()
    assert all(leaf.grad is not None for leaf in leaves)
    assert dct._kept_waves.cache_info().currsize == 1
    assert not made.state_dict()
    assert len(pickle.dumps(made)) < 10_000


def test_waves_of_a_trace_are_not_kept():
    dct._kept_waves.cache_clear()
    with FakeTensorMode():
        dct._waves(torch.zeros(1, 1, 33, 4), 6)
    assert dct._kept_waves.cache_info().currsize == 0


def test_causality_is_refused():
    with pytest.raises(Unsupported, match="causal"):
        built()(*qkv(5), mask=Mask(causal=True))


def test_frequencies_must_be_positive():
    with pytest.raises(UsageError, match="frequencies"):
        built(0)
