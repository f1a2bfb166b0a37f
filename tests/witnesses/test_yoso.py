"""YOSO against transformers, without pads, convolution and hashes: there it errs."""

from __future__ import annotations

import importlib

import pytest
import torch

from sparing import Heads, Mask, mechanism

pytestmark = pytest.mark.slow

HEADS, DIM, TOKENS = 2, 8, 30


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def modeling():
    return importlib.import_module("transformers.models.yoso.modeling_yoso")


def hugging_face():
    """Its attention in the form of expectations, and how it is called with 1 at real tokens."""
    config = importlib.import_module("transformers").YosoConfig(
        hidden_size=HEADS * DIM,
        num_attention_heads=HEADS,
        use_expectation=True,
        conv_window=None,
        hash_code_len=5,
    )
    layer = modeling().YosoSelfAttention(config).double().eval()
    return lambda x, keep: layer(x, keep)[0], layer


def sparing_output(layer, x, mask=None):
    streams = (
        part(x).view(len(x), -1, HEADS, DIM).transpose(1, 2)
        for part in (layer.query, layer.key, layer.value)
    )
    made = mechanism("yoso", Heads(HEADS, DIM), bits=5).double().eval()
    return made(*streams, mask=mask or Mask()).transpose(1, 2).flatten(2)


def test_equals_transformers():
    call, layer = hugging_face()
    x = torch.randn(2, TOKENS, HEADS * DIM, dtype=torch.float64)
    expected = call(x, torch.ones(2, TOKENS).double())
    torch.testing.assert_close(sparing_output(layer, x), expected, rtol=1e-9, atol=1e-9)


def test_transformers_ignores_pads_in_silence():
    call, layer = hugging_face()
    x = torch.randn(1, TOKENS, HEADS * DIM, dtype=torch.float64)
    keep = torch.arange(TOKENS)[None] < 20
    assert torch.equal(call(x, keep.double()), call(x, torch.ones_like(keep).double()))
    cropped = call(x[:, :20], torch.ones(1, 20).double())
    output = sparing_output(layer, x, Mask(keep))[:, :20]
    torch.testing.assert_close(output, cropped, rtol=1e-9, atol=1e-9)


def test_transformers_hashes_queries_as_if_they_were_keys():
    q, k = torch.randn(1, TOKENS, DIM), torch.randn(1, TOKENS, DIM)
    hashes, other = modeling().hashing(q, k, 4, 5)
    assert torch.equal(hashes, other)


def test_the_slope_of_transformers_is_not_the_true_one():
    cumulation = modeling().YosoCumulation
    q, k, v = (torch.randn(1, 6, DIM, dtype=torch.float64) for _ in "qkv")
    q, k = (torch.nn.functional.normalize(part, dim=-1).requires_grad_() for part in (q, k))
    ones = torch.ones(1, 6, dtype=torch.float64)
    passed = torch.autograd.gradcheck(
        lambda q: cumulation.apply(ones, ones, q, k, v, {"hash_code_len": 5}),
        q,
        raise_exception=False,
    )
    assert not passed
