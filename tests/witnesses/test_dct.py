"""SciPy's cosine transform: there, attention between frequencies, and back again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import fft

from sparing import Heads, Mask, mechanism
from sparing.mechanisms.dct import _cosines

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def drawn(*sizes, batch=2):
    return tuple(torch.randn(batch, 3, n, 8, dtype=torch.float64) for n in sizes)


def through_scipy(q, k, v, frequencies):
    """One sample or more without pads; frequencies left out are zero on the way back."""

    def lowest(stream):
        return fft.dct(stream.numpy(), norm="ortho", axis=-2)[..., :frequencies, :]

    scores = lowest(q) @ lowest(k).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    slots = weights / weights.sum(-1, keepdims=True) @ lowest(v)
    return torch.from_numpy(fft.idct(slots, n=q.shape[-2], norm="ortho", axis=-2))


@pytest.mark.parametrize("tokens", [1, 2, 3, 64, 65, 127, 1000])
@pytest.mark.parametrize("frequencies", [1, 16, 64])
def test_equals_scipy_at_any_length(tokens, frequencies):
    made, streams = mechanism("dct", Heads(3, 8), frequencies=frequencies), drawn(*[tokens] * 3)
    expected = through_scipy(*streams, frequencies)
    torch.testing.assert_close(made(*streams), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("queries", "keys"), [(5, 200), (200, 5), (90, 91)])
def test_cross_attention_equals_scipy(queries, keys):
    streams = drawn(queries, keys, keys)
    output = mechanism("dct", Heads(3, 8), frequencies=16)(*streams)
    torch.testing.assert_close(output, through_scipy(*streams, 16), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("grad", [False, True])
def test_padded_rows_equal_scipy_on_each_row_alone(grad):
    spans = ((0, 150), (0, 97), (31, 150), (60, 70))
    streams = drawn(150, 150, 150, batch=4)
    keep = torch.zeros(4, 150, dtype=torch.bool)
    for sample, (first, last) in enumerate(spans):
        keep[sample, first:last] = True
    made = mechanism("dct", Heads(3, 8), frequencies=16)
    leaves = [part.clone().requires_grad_(grad) for part in streams]
    output = made(*leaves, mask=Mask(keep)).detach()
    for sample, (first, last) in enumerate(spans):
        expected = through_scipy(*(part[sample, :, first:last] for part in streams), 16)
        torch.testing.assert_close(output[sample, :, first:last], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("tokens", [1, 7, 4096, 16_384])
def test_waves_are_scipys_transform_of_single_tokens(tokens):
    count = min(64, tokens)
    some = sorted({0, tokens // 3, tokens - 1})
    single = np.zeros((tokens, len(some)))
    single[some, range(len(some))] = 1
    expected = torch.from_numpy(fft.dct(single, norm="ortho", axis=0)[:count])
    waves = _cosines(tokens, count, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(waves[:, some], expected, rtol=0, atol=1e-14)
