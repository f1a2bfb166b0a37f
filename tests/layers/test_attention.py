from __future__ import annotations

import pytest
import torch

from sparing import Attention, Mask, Unsupported, UsageError


def _twins(width=12, heads=3):
    attention = Attention(width, heads).double()
    torch_attention = torch.nn.MultiheadAttention(width, heads, batch_first=True).double()
    projections = (attention.q_projection, attention.k_projection, attention.v_projection)
    with torch.no_grad():
        torch_attention.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        torch_attention.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        torch_attention.out_proj.weight.copy_(attention.output_projection.weight)
        torch_attention.out_proj.bias.copy_(attention.output_projection.bias)
    return attention, torch_attention


def test_equals_torch_multi_head_attention():
    attention, torch_attention = _twins()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[1, 5:] = False
    expected, _ = torch_attention(x, x, x, key_padding_mask=~keep, need_weights=False)
    torch.testing.assert_close(
        attention(x, mask=Mask(keep))[keep], expected[keep], rtol=0, atol=1e-12
    )


def test_cross_attention_equals_torch():
    attention, torch_attention = _twins()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    context = torch.randn(2, 5, 12, dtype=torch.float64)
    keep = torch.tensor([[True] * 5, [True, False, True, False, True]])
    expected, _ = torch_attention(x, context, context, key_padding_mask=~keep, need_weights=False)
    torch.testing.assert_close(attention(x, context, mask=Mask(keep)), expected, rtol=0, atol=1e-12)


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(UsageError, match="5 heads do not divide a width of 12"):
        Attention(12, 5)


def test_wrong_width_is_named():
    with pytest.raises(UsageError, match=r"\(batch, tokens, 12\)"):
        Attention(12, 3)(torch.zeros(2, 4, 11))


def test_unknown_mechanism_and_option_suggest_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        Attention(12, 3, "sofmax")
    with pytest.raises(UsageError, match="no option 'drop_out'; did you mean 'dropout'"):
        Attention(12, 3, "softmax", drop_out=0.1)


def test_cross_attention_refuses_causality():
    layer = Attention(12, 3)
    with pytest.raises(UsageError, match="exclude each other"):
        layer(torch.zeros(1, 4, 12), torch.zeros(1, 4, 12), mask=Mask(causal=True))


def test_a_mechanism_that_cannot_cross_says_so():
    layer = Attention(12, 3, "window", radius=2)
    with pytest.raises(Unsupported, match="cross"):
        layer(torch.zeros(1, 4, 12), torch.zeros(1, 6, 12))


def test_mechanisms_that_read_x_work_in_mixed_precision():
    built = Attention(16, 2, "adaptive")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert built(torch.randn(2, 5, 16)).dtype == torch.bfloat16
