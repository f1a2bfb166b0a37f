"""linear-attention-transformer and performer-pytorch; their causal form is another mechanism."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Attention, Heads, Mask, mechanism
from tests.witnesses import witness

linear_package = witness("linear_attention_transformer")
performer_package = witness("performer_pytorch")

pytestmark = pytest.mark.slow

HEADS, DIM, TOKENS = 4, 8, 64


def drawn(seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (3, 2, HEADS, TOKENS, DIM)
    return torch.randn(shape, generator=generator, dtype=torch.float64).unbind()


def padded():
    keep = torch.ones(2, TOKENS, dtype=torch.bool)
    keep[1, 41:] = False
    return keep


def efficient(q, k, v, mask=None):
    return mechanism("efficient", Heads(HEADS, DIM))(q, k, v, mask=mask or Mask())


def linear_attn(q, k, v, keep=None):
    code = linear_package.linear_attention_transformer
    return code.linear_attn(q.clone(), k.clone(), v.clone(), kv_mask=keep)


def test_equals_linear_attention_transformer_but_for_a_factor():
    q, k, v = drawn()
    keep = padded()
    torch.testing.assert_close(efficient(q, k, v), linear_attn(q, k, v) * math.sqrt(DIM))
    output, expected = efficient(q, k, v, Mask(keep)), linear_attn(q, k, v, keep) * math.sqrt(DIM)
    real = keep[:, None, :, None].expand_as(output)
    torch.testing.assert_close(output[real], expected[real])


def test_its_factor_shrinks_rows():
    q, k, v = drawn()
    ones = torch.ones_like(v)
    expected = torch.full_like(v, 1 / math.sqrt(DIM))
    torch.testing.assert_close(linear_attn(q, k, ones), expected)
    torch.testing.assert_close(efficient(q, k, ones), ones)


def test_it_writes_into_what_it_is_given():
    q, k, v = drawn()
    before, code = k.clone(), linear_package.linear_attention_transformer
    code.linear_attn(q, k, v, kv_mask=padded())
    assert not torch.equal(k, before)
    q, k, v = drawn()
    efficient(q, k, v, Mask(padded()))
    assert torch.equal(k, before)


@pytest.mark.parametrize("masked", [False, True])
def test_equals_its_whole_layer(masked):
    torch.manual_seed(0)
    width = HEADS * DIM
    reference = linear_package.linear_attention_transformer.SelfAttention(width, HEADS).double()
    layer = Attention(width, HEADS, "efficient").double()
    with torch.no_grad():
        for letter in "qkv":
            projection = getattr(layer, f"{letter}_projection")
            projection.weight.copy_(getattr(reference, f"to_{letter}").weight)
            projection.bias.zero_()
        layer.output_projection.weight.copy_(reference.to_out.weight / math.sqrt(DIM))
        layer.output_projection.bias.copy_(reference.to_out.bias)
    x = torch.randn(2, TOKENS, width, dtype=torch.float64)
    keep = padded() if masked else None
    output, expected = layer(x, mask=Mask(keep)), reference(x, input_mask=keep)
    real = padded() if masked else torch.ones(2, TOKENS, dtype=torch.bool)
    torch.testing.assert_close(output[real], expected[real])


def test_equals_performer_without_projection():
    q, k, v = drawn()
    reference = performer_package.FastAttention(DIM, no_projection=True).double()
    torch.testing.assert_close(reference(q, k, v), efficient(q, k, v))


@pytest.mark.filterwarnings("ignore")
def test_performer_causal_without_projection_is_another_mechanism():
    q, k, v = drawn()
    reference = performer_package.FastAttention(DIM, no_projection=True, causal=True).double()
    whole, past = efficient(q, k, v), reference(q, k, v)
    assert (past - whole)[:, :, -1].abs().max() > 0.01
    torch.testing.assert_close(efficient(q, k, v, Mask(causal=True))[:, :, -1], whole[:, :, -1])


def test_linear_attention_transformer_causal_is_another_mechanism():
    """It leaves out each block's own tokens as well, so that its first rows come out as zeros."""
    q, k, v = drawn()
    code = linear_package.linear_attention_transformer
    past = code.causal_linear_attn(q, k, v, bucket_size=16) * math.sqrt(DIM)
    assert (past[:, :, :16] == 0).all()
    assert (past - efficient(q, k, v))[:, :, -1].abs().max() > 0.01
