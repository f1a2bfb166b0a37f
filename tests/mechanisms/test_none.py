"""No attention: a copy of each token's own value, and nothing else."""

from __future__ import annotations

import torch

from sparing import Heads, Mask, mechanism


def streams(tokens, batch=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, batch, 2, tokens, 4, generator=generator, dtype=torch.float64).unbind()


def test_gives_each_token_its_own_value_bit_for_bit():
    made = mechanism("none", Heads(2, 4))
    q, k, v = streams(19)
    for mask in (Mask(), Mask(causal=True)):
        assert torch.equal(made(q, k, v, mask=mask), v)


def test_the_output_is_not_the_input_itself():
    q, k, v = streams(5)
    before = v.clone()
    mechanism("none", Heads(2, 4))(q, k, v).zero_()
    assert torch.equal(v, before)


def test_pads_get_zeros_wherever_they_stand():
    q, k, v = streams(9)
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[0, [0, 4, 8]] = False
    keep[1] = False
    for causal in (False, True):
        out = mechanism("none", Heads(2, 4))(q, k, v, mask=Mask(keep, causal))
        assert torch.equal(out, v.where(keep[:, None, :, None], 0))


def test_decoding_takes_the_last_values():
    q, k, v = streams(9)
    out = mechanism("none", Heads(2, 4))(q[:, :, -2:], k, v, mask=Mask(causal=True))
    assert torch.equal(out, v[:, :, -2:])


def test_is_the_window_that_sees_nothing_else():
    q, k, v = streams(40)
    expected = mechanism("window", Heads(2, 4), radius=0)(q, k, v)
    torch.testing.assert_close(mechanism("none", Heads(2, 4))(q, k, v), expected)
