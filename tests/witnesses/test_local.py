"""Blockwise attention beside the package local-attention and torch's flex_attention."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from sparing import Heads, Mask, mechanism
from tests.witnesses import witness

pytestmark = pytest.mark.slow
package = witness("local_attention")

HEADS, DIM = 3, 8


def streams(tokens):
    torch.manual_seed(0)
    return [torch.randn(2, HEADS, tokens, DIM, dtype=torch.float64) for _ in "qkv"]


def package_attention(block, back, ahead, causal, **options):
    return package.LocalAttention(
        window_size=block,
        look_backward=back,
        look_forward=ahead,
        causal=causal,
        use_rotary_pos_emb=False,
        **options,
    ).eval()


@pytest.mark.parametrize(
    ("back", "ahead", "causal"), [(0, 0, False), (0, 0, True), (1, 0, True), (1, 1, False)]
)
@pytest.mark.parametrize("pads", [0, 9])
def test_equals_local_attention(back, ahead, causal, pads):
    q, k, v = streams(96)
    keep = torch.ones(2, 96, dtype=torch.bool)
    keep[1, 96 - pads :] = False
    expected = package_attention(16, back, ahead, causal)(q, k, v, mask=keep if pads else None)
    made = mechanism("local", Heads(HEADS, DIM), block=16, look_back=back, look_ahead=ahead)
    output = made(q, k, v, mask=Mask(keep if pads else None, causal))
    real = keep[:, None, :, None]
    torch.testing.assert_close(output.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_their_exact_window_equals_window(causal):
    q, k, v = streams(96)
    expected = package_attention(16, 1, 0 if causal else 1, causal, exact_windowsize=True)(q, k, v)
    output = mechanism("window", Heads(HEADS, DIM), radius=16)(q, k, v, mask=Mask(causal=causal))
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)


def test_their_padding_to_whole_blocks_is_attended_to():
    """This is why we differ: zeros that they append are keys, unless a mask is given too."""
    q, k, v = streams(90)
    made = mechanism("local", Heads(HEADS, DIM), block=16)
    padding = package_attention(16, 0, 0, False, autopad=True)
    output, wrong = made(q, k, v), padding(q, k, v)
    torch.testing.assert_close(output[:, :, :80], wrong[:, :, :80], rtol=1e-9, atol=1e-9)
    assert (output[:, :, 80:] - wrong[:, :, 80:]).abs().max() > 0.01
    right = padding(q, k, v, mask=torch.ones(2, 90, dtype=torch.bool))
    torch.testing.assert_close(output, right, rtol=1e-9, atol=1e-9)
    with pytest.raises(AssertionError, match="divisible"):
        package_attention(16, 0, 0, False)(q, k, v)


def test_they_count_blocks_from_left_pads():
    """This is why we differ: a row padded left is the row, cut at the same places."""
    q, k, v = streams(96)
    keep = torch.ones(2, 96, dtype=torch.bool)
    keep[:, :5] = False
    wrong = package_attention(16, 0, 0, False)(q, k, v, mask=keep)[:, :, 5:]
    made = mechanism("local", Heads(HEADS, DIM), block=16)
    output, alone = (
        made(q, k, v, mask=Mask(keep))[:, :, 5:],
        made(*(t[:, :, 5:] for t in (q, k, v))),
    )
    torch.testing.assert_close(output, alone, rtol=1e-9, atol=1e-9)
    assert (output - wrong).abs().max() > 0.01


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("shifts", [(0,), (0, 1, 2)])
def test_blocks_equal_flex_attention(shifts):
    block, tokens = 32, 300
    blocks = -(-tokens // block)
    q, k, v = (part.float() for part in streams(tokens))
    shift_of = torch.tensor([shifts[head % len(shifts)] for head in range(HEADS)])

    def pattern(b, h, i, j):
        return j // block == (i // block + shift_of[h]) % blocks

    mask = create_block_mask(pattern, None, HEADS, tokens, tokens, device="cpu")
    expected = flex_attention(q, k, v, block_mask=mask)
    output = mechanism("local", Heads(HEADS, DIM), block=block, shifts=shifts)(q, k, v)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
