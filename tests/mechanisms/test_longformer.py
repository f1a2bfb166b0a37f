"""Longformer against two dense squares, its projections, and which tokens are global."""

from __future__ import annotations

import pytest
import torch

from sparing import Attention, Heads, Mask, UsageError, mechanism
from sparing.testing.entries.longformer import dense_longformer

HEADS = Heads(2, 4)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def make(**options):
    made = mechanism("longformer", HEADS, **options).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def streams(batch, tokens):
    return [
        *(torch.randn(batch, 2, tokens, 4).double() for _ in "qkv"),
        torch.randn(batch, tokens, 8).double(),
    ]


def padded(kind, batch, tokens):
    keep = torch.ones(batch, tokens, dtype=torch.bool)
    if kind == "right":
        keep[0, max(1, tokens * 2 // 3) :] = False
    elif kind == "left":
        keep[-1, : tokens // 2] = False
    elif kind == "between":
        keep = torch.rand(batch, tokens, generator=torch.Generator().manual_seed(3)) > 0.4
        keep[:, tokens // 2] = True
    return None if kind == "none" else keep


def close(output, expected, mask):
    if mask.keep is not None:
        real = mask.keep[:, None, :, None]
        output, expected = output.where(real, 0), expected.where(real, 0)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("radius", [0, 31, 64])
@pytest.mark.parametrize("kind", ["none", "right", "left", "between"])
@pytest.mark.filterwarnings("ignore:longformer. no row")
def test_equals_the_dense_squares(radius, kind):
    for own_projections, chosen in ((True, (0, 40, -3)), (False, (250, 1, -1))):
        made = make(radius=radius, global_tokens=chosen, own_projections=own_projections)
        for batch, tokens in ((1, 1), (2, 97), (2, 331)):
            tensors = streams(batch, tokens)
            for causal in (False, True):
                mask = Mask(padded(kind, batch, tokens), causal)
                expected = dense_longformer(made, *tensors, mask=mask)
                with torch.no_grad():
                    close(made(*tensors, mask=mask), expected, mask)
                close(made(*(t.requires_grad_() for t in tensors), mask=mask), expected, mask)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_through_many_blocks(causal):
    made = make(radius=20, global_tokens=(0, 333, -1))
    mask = Mask(padded("left", 2, 700), causal)
    tensors = [t.requires_grad_() for t in streams(2, 700)]
    leaves = [*tensors, *made.parameters()]
    real = mask.keep[:, None, :, None]
    fast, slow = (
        torch.autograd.grad(out.where(real, 0).square().sum(), leaves)
        for out in (made(*tensors, mask=mask), dense_longformer(made, *tensors, mask=mask))
    )
    for gradient, expected in zip(fast[4:], slow[4:], strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)
    for gradient, expected in zip(fast[:4], slow[:4], strict=True):
        keep = real if gradient.ndim == 4 else real[:, 0]
        torch.testing.assert_close(
            gradient.where(keep, 0), expected.where(keep, 0), rtol=1e-9, atol=1e-9
        )


def test_limits_equal_window_and_softmax():
    *tensors, x = streams(2, 300)
    window = mechanism("window", HEADS, radius=17)
    assert torch.equal(make(radius=17, global_tokens=())(*tensors, x), window(*tensors))
    for radius in (300, 3):
        made = make(radius=radius, global_tokens=range(300), own_projections=False)
        torch.testing.assert_close(made(*tensors, x), mechanism("softmax", HEADS)(*tensors))


def test_a_key_in_the_window_and_global_counts_once():
    made = make(radius=3, global_tokens=(0, 4, -1))
    q, k, v, x = streams(1, 8)
    output = made(q, k, torch.ones_like(v), x)[:, :, [1, 2, 3, 5, 6]]
    torch.testing.assert_close(output, torch.ones_like(output))
    once = make(radius=2, global_tokens=(0,), own_projections=False)
    twice = make(radius=2, global_tokens=(0, -20), own_projections=False)
    tensors = streams(1, 20)
    torch.testing.assert_close(twice(*tensors), once(*tensors))


@pytest.mark.usefixtures("way")
def test_globals_are_counted_in_each_row_and_pads_are_none():
    made = make(radius=1, global_tokens=(2, -1))
    tensors = streams(2, 50)
    keep = torch.ones(2, 50, dtype=torch.bool)
    keep[0, :10] = keep[1, 40:] = keep[1, 2] = False
    whole = made(*tensors, mask=Mask(keep))
    alone = made(*(t[:1, ..., 10:, :] for t in tensors))
    torch.testing.assert_close(whole[:1, :, 10:], alone)
    only_last = make(radius=1, global_tokens=(-1,))
    only_last.load_state_dict(made.state_dict())
    cropped = tuple(t[1:, ..., :40, :] for t in tensors)
    output = only_last(*cropped, mask=Mask(keep[1:, :40]))
    real = keep[1, :40]
    torch.testing.assert_close(whole[1:, :, :40][:, :, real], output[:, :, real])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("recorded", [False, True])
def test_decoding_gives_the_last_rows(recorded):
    made = make(radius=9, global_tokens=(0, 60, -1)).requires_grad_(recorded)
    q, k, v, x = streams(2, 100)
    for keep in (None, padded("left", 2, 100)):
        mask = Mask(keep, causal=True)
        whole = made(q, k, v, x, mask=mask)
        for queries in (1, 39, 40, 99):
            output = made(q[:, :, -queries:], k, v, x, mask=mask)
            torch.testing.assert_close(output, whole[:, :, -queries:])
    with pytest.raises(UsageError, match="x must have a token for each key"):
        made(q[:, :, -1:], k, v, x[:, -1:], mask=Mask(causal=True))


def test_projections_start_as_those_of_the_layer():
    layer = Attention(24, 3, "longformer", radius=2, global_tokens=(0, 5)).eval()
    made = layer.mechanism
    for name in ("q", "k", "v"):
        projection = getattr(layer, f"{name}_projection")
        assert torch.equal(getattr(made, f"global_{name}"), projection.weight)
        if name != "k":
            assert torch.equal(getattr(made, f"global_{name}_bias"), projection.bias)
    shared = Attention(24, 3, "longformer", radius=2, global_tokens=(0, 5), own_projections=False)
    missing, _ = shared.load_state_dict(layer.state_dict(), strict=False)
    assert not missing
    x = torch.randn(2, 30, 24)
    torch.testing.assert_close(layer(x), shared(x))
    with torch.no_grad():
        made.global_v.mul_(2)
    changed = (layer(x) - shared(x)).abs().amax(2) > 1e-6
    assert changed[:, [0, 5]].all()
    assert changed.sum() == 4


def test_a_layer_without_biases_starts_with_zeros():
    made = Attention(8, 2, "longformer", bias=False).mechanism
    assert not made.global_q_bias.any()
    assert not made.global_v_bias.any()


def test_warns_of_a_global_token_that_no_row_has():
    made = make(radius=2, global_tokens=(0, 12, -15))
    q, k, v, x = streams(2, 20)
    keep = torch.ones(2, 20, dtype=torch.bool)
    keep[0, 10:] = False
    made(q, k, v, x, mask=Mask(keep))
    keep[1, 12:] = False
    with pytest.warns(UserWarning, match=r"token\(s\) \[12, -15\]: the longest has 12"):
        made(q, k, v, x, mask=Mask(keep))
    made(q, k, v, x, mask=Mask(torch.zeros_like(keep)))


def test_dropout_drops_in_training_only():
    plain, made = make(radius=4), mechanism("longformer", HEADS, radius=4, dropout=0.5).double()
    made.load_state_dict(plain.state_dict())
    tensors = streams(1, 100)
    assert not torch.equal(made.train()(*tensors), made(*tensors))
    torch.testing.assert_close(made.eval()(*tensors), plain(*tensors))


def test_wrong_options_are_refused():
    with pytest.raises(UsageError, match="radius"):
        make(radius=-1)
    with pytest.raises(UsageError, match="global_tokens"):
        make(global_tokens=(0, 0))


def test_causal_rows_do_not_know_their_end():
    made = make(radius=2, global_tokens=(0, -1))
    tensors = streams(1, 30)
    whole = made(*tensors, mask=Mask(causal=True))
    start = [tensor[..., :20, :] for tensor in tensors]
    torch.testing.assert_close(made(*start, mask=Mask(causal=True)), whole[:, :, :20])
