"""Difference attention: what is sent, how far it may be off, where rows begin, what is reported."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, UsageError, Workload, mechanism, record
from sparing.core.recording import is_logged
from sparing.measure.dispatched import count_dispatched
from sparing.mechanisms.difference import _received, _sent, _sent_at_once

THRESHOLD = 0.3


def built(**options):
    return mechanism("difference", Heads(2, 4), **options).double()


def walk(tokens, batch=2, step=0.1):
    """Rows whose neighbours are alike, as patches of an image are."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, batch, 2, tokens, 4, generator=generator, dtype=torch.float64)
    return (drawn * step).cumsum(3).unbind()


def received(made, x, keep=None):
    """What arrives of x."""
    return _received(x, _sent(x, keep, made.threshold))


def test_by_hand():
    x = torch.tensor([1.0, 1.2, 1.25, 1.5, 1.5, 0.0]).view(1, 1, 6, 1)
    out = received(mechanism("difference", Heads(1, 1), threshold=0.25), x).flatten()
    torch.testing.assert_close(out, torch.tensor([1.0, 1.0, 1.25, 1.5, 1.5, 0.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("threshold", [0.0, 0.01, 0.3, 1.0, 50.0])
def test_what_is_sent_at_once_is_what_is_sent_one_by_one(threshold, dtype):
    for tokens in (1, 2, 3, 7, 8, 129):
        for stream in walk(tokens):
            stream = (stream.round(decimals=1) if tokens == 129 else stream).to(dtype)
            keep = torch.rand(2, tokens, generator=torch.Generator().manual_seed(tokens)) > 0.4
            keep[1] = False
            for real in (None, keep):
                given = stream if real is None else stream.where(real[:, None, :, None], 0)
                expected = _sent(given, real, threshold)
                assert torch.equal(_sent_at_once(given, real, threshold), expected)


def test_the_operations_of_an_accelerator_grow_with_the_logarithm_of_the_tokens():
    counts = [
        count_dispatched(mechanism("difference", Heads(2, 4)), 1, tokens).count
        for tokens in (255, 511, 4095)
    ]
    step = counts[1] - counts[0]
    assert counts[2] - counts[1] == 3 * step
    assert step <= 44


def test_what_is_left_out_never_adds_up():
    """Small steps in one direction: differences between neighbours would all be dropped."""
    x = torch.linspace(0, 50, 1001, dtype=torch.float64).view(1, 1, 1001, 1)
    made = built(threshold=THRESHOLD)
    assert (received(made, x) - x).abs().max() < THRESHOLD
    for stream in walk(400):
        gap = (received(made, stream) - stream).abs()
        assert 0.05 < gap.max() < THRESHOLD


@pytest.mark.parametrize("causal", [False, True])
def test_threshold_zero_is_softmax_bit_for_bit(causal):
    streams = walk(50)
    keep = torch.ones(2, 50, dtype=torch.bool)
    keep[1, :9] = False
    for mask in (Mask(causal=causal), Mask(keep, causal)):
        expected = mechanism("softmax", Heads(2, 4))(*streams, mask=mask).transpose(1, 2)
        output = built(threshold=0.0)(*streams, mask=mask).transpose(1, 2)
        assert torch.equal(output[keep], expected[keep])


def test_a_small_threshold_is_near_softmax_and_a_large_one_is_not():
    streams = walk(100)
    expected = mechanism("softmax", Heads(2, 4))(*streams)
    gaps = [(built(threshold=t)(*streams) - expected).abs().max() for t in (1e-3, 0.1, 1.0)]
    assert gaps[0] < 1e-2
    assert gaps[0] < gaps[1] < gaps[2]


def test_a_row_starts_at_its_own_first_token():
    """The first real token is sent whole, however small it is and whatever pads stood before."""
    q, k, v = walk(30, batch=1, step=0.01)
    made = built(threshold=5.0)
    keep = torch.arange(41)[None] >= 11
    longer = [torch.nn.functional.pad(t, (0, 0, 11, 0), value=1e3) for t in (q, k, v)]
    for causal in (False, True):
        alone = made(q, k, v, mask=Mask(causal=causal))
        output = made(*longer, mask=Mask(keep, causal))[:, :, 11:]
        torch.testing.assert_close(output, alone)
    assert torch.equal(received(made, k), k[:, :, :1].expand_as(k))


def test_pads_between_tokens_send_nothing():
    x = walk(20, batch=1)[0]
    keep = torch.ones(1, 20, dtype=torch.bool)
    keep[0, 8:12] = False
    made = built(threshold=THRESHOLD)
    output = received(made, x.where(keep[..., None], 0), keep)[:, :, keep[0]]
    torch.testing.assert_close(output, received(made, x[:, :, keep[0]]))


def test_causal_leaves_the_queries_as_they_are():
    q, k, v = walk(40)
    made = built(threshold=THRESHOLD)
    expected = mechanism("softmax", Heads(2, 4))(q, received(made, k), v, mask=Mask(causal=True))
    torch.testing.assert_close(made(q, k, v, mask=Mask(causal=True)), expected)


def test_reports_the_share_that_is_not_sent():
    x = torch.zeros(2, 2, 10, 4, dtype=torch.float64)
    x[:, 1] = torch.arange(10).double()[:, None]
    made = built(threshold=0.5)
    keep = torch.ones(2, 10, dtype=torch.bool)
    keep[1, 5:] = False
    with record(made) as log:
        made(x, x, x)
        made(x, x, x, mask=Mask(keep))
        made(x, x, x, mask=Mask(keep, causal=True))
    plain, padded, causal = log["difference_sparsity"]
    # head 0 never moves and sends its first token; head 1 moves with each token
    torch.testing.assert_close(plain, torch.tensor([[0.9, 0.0], [0.9, 0.0]]))
    torch.testing.assert_close(padded, torch.tensor([[0.9, 0.0], [0.8, 0.0]]))
    torch.testing.assert_close(causal, padded)


def test_equal_neighbours_are_a_saving_without_any_loss():
    x = torch.ones(1, 2, 8, 4, dtype=torch.float64)
    made = built(threshold=0.0)
    with record(made) as log:
        output = made(x, x, x)
    assert torch.equal(output, mechanism("softmax", Heads(2, 4))(x, x, x))
    torch.testing.assert_close(log["difference_sparsity"][0], torch.full((1, 2), 7 / 8))
    assert not is_logged(made)


def test_no_cost_is_claimed_to_be_saved():
    work = Workload(1, 2, 64, 64, 4)
    dense = mechanism("softmax", Heads(2, 4)).cost(work)
    cost = built(threshold=9.0).cost(work)
    assert cost.matmul_flops == dense.matmul_flops
    assert cost.other_flops > dense.other_flops


def test_gradients_go_to_the_token_that_was_sent():
    q, k, v = walk(6, batch=1, step=0.001)
    k.requires_grad_()
    built(threshold=1.0)(q, k, v, mask=Mask(causal=True)).square().sum().backward()
    assert k.grad[:, :, 1:].abs().max() == 0


@pytest.mark.parametrize("threshold", [-0.1, float("inf"), float("nan")])
def test_thresholds_that_cannot_be(threshold):
    with pytest.raises(UsageError, match="threshold"):
        built(threshold=threshold)
