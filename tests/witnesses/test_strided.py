"""The Sparse Transformer's patterns beside torch's flex_attention."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from sparing import Heads, Mask, mechanism

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
]

HEADS, DIM = 3, 8


def compared(sets, tokens, causal, combine, **options):
    """Output, and flex attention's; ``sets`` are a query's two sets of keys before causality."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, HEADS, tokens, DIM) for _ in "qkv")
    first, second = sets

    def pattern(b, h, i, j):
        near, far = first(i, j), second(i, j)
        if combine == "heads":
            sees = (near & (h < 2)) | (far & (h >= 2))
        else:
            sees = {"merged": near | far, "first": near, "second": far}[combine]
        return sees & (j <= i) if causal else sees

    mask = create_block_mask(pattern, None, HEADS, tokens, tokens, device="cpu")
    expected = flex_attention(q, k, v, block_mask=mask)
    made = mechanism("strided", Heads(HEADS, DIM), combine=combine, **options)
    return made(q, k, v, mask=Mask(causal=causal)), expected


@pytest.mark.parametrize("combine", ["merged", "heads", "first", "second"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [289, 300])
def test_strided_equals_flex_attention(tokens, causal, combine):
    stride = 17
    sets = (
        lambda i, j: (i - j).abs() < stride,
        lambda i, j: (i - j) % stride == 0,
    )
    output, expected = compared(sets, tokens, causal, combine, stride=stride)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("combine", ["merged", "heads", "first", "second"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [288, 300])
def test_fixed_equals_flex_attention(tokens, causal, combine):
    """Flex gives zeros to queries that see nothing, where ours see themselves."""
    stride, summary = 16, 3
    sets = (
        lambda i, j: i // stride == j // stride,
        lambda i, j: j % stride >= stride - summary,
    )
    options = {"pattern": "fixed", "stride": stride, "summary": summary}
    output, expected = compared(sets, tokens, causal, combine, **options)
    blind = stride - summary if causal and combine in ("heads", "second") else 0
    second = slice(2, None) if combine == "heads" else slice(None)
    if blind:
        assert not expected[:, second, :blind].any()
        expected[:, second, :blind] = output[:, second, :blind]
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
