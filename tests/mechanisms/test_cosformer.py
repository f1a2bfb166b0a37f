"""cosFormer: by hand, whose length counts, rows without weights, and how it ends."""

from __future__ import annotations

import math

import pytest
import torch

from sparing import Heads, Mask, Unsupported, UsageError, mechanism
from sparing.mechanisms import _kernel
from sparing.testing.entries.cosformer import dense_cosformer
from sparing.testing.references import normalised

CAUSAL = Mask(causal=True)


def built(tokens=300, **options):
    return mechanism("cosformer", Heads(2, 8, tokens=tokens), **options)


def drawn(tokens=40, *, batch=1, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(3, batch, 2, tokens, 8, generator=generator, dtype=torch.float64)
    return made.to(dtype).unbind()


def with_length(q, k, v, length):
    """The paper's square form for one row, L given."""
    positions = torch.arange(k.shape[2], dtype=k.dtype)
    falloff = torch.cos((positions[:, None] - positions) * math.pi / 2 / length)
    return normalised(q.relu() @ k.relu().transpose(-1, -2) * falloff, v, mask=Mask())


def test_by_hand():
    q = torch.ones(1, 1, 2, 1)
    out = mechanism("cosformer", Heads(1, 1))(q, q, torch.tensor([1.0, 3.0]).view(1, 1, 2, 1))
    # two tokens at a distance of half the length: weights 1 and cos(pi / 4)
    near, far = 1.0, math.sqrt(0.5)
    expected = torch.tensor([near + 3 * far, far + 3 * near]) / (near + far)
    torch.testing.assert_close(out.flatten(), expected)


@pytest.mark.parametrize("activation", ["relu", "elu"])
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_equals_the_square_form(tokens, activation):
    q, k, v = drawn(tokens, batch=2)
    keep = torch.ones(2, tokens, dtype=torch.bool)
    keep[1, : tokens // 3] = False
    for length in ("own", "fixed"):
        made = built(activation=activation, length=length)
        for mask in (Mask(), CAUSAL, Mask(keep), Mask(keep, causal=True)):
            expected = dense_cosformer(made, q, k, v, mask=mask)
            real = torch.ones(2, tokens).bool() if mask.keep is None else keep
            real = real[:, None, :, None].expand_as(expected)
            output = made(q, k, v, mask=mask)
            torch.testing.assert_close(output[real], expected[real])


@pytest.mark.parametrize("mask", [Mask(), CAUSAL], ids=["whole", "causal"])
def test_an_endless_length_is_linear_attention(mask):
    q, k, v = drawn()
    endless = {"tokens": 10**9, "length": "fixed"}
    expected = normalised(q.relu() @ k.relu().transpose(-1, -2), v, mask=mask)
    torch.testing.assert_close(built(**endless)(q, k, v, mask=mask), expected)
    linear = mechanism("linear", Heads(2, 8))(q, k, v, mask=mask)
    output = built(**endless, activation="elu")(q, k, v, mask=mask)
    torch.testing.assert_close(output, linear)


def test_the_padded_length_of_the_batch_does_not_matter():
    """With L from the padded batch a row of 16 tokens changes once it is padded to 64."""
    q, k, v = drawn(16)
    alone, in_a_batch = with_length(q, k, v, 16), with_length(q, k, v, 64)
    assert (alone - in_a_batch).abs().max() > 0.1
    longer = [torch.nn.functional.pad(tensor, (0, 0, 20, 28)) for tensor in (q, k, v)]
    keep = torch.zeros(1, 64, dtype=torch.bool)
    keep[:, 20:36] = True
    padded = built()(*longer, mask=Mask(keep))[:, :, 20:36]
    torch.testing.assert_close(padded, alone)
    torch.testing.assert_close(built()(q, k, v), alone)


def test_cached_keys_serve_longer_rows():
    """Causal, a row's answers stay when tokens are added: L does not grow with the row."""
    q, k, v = drawn(200)
    long = built()(q, k, v, mask=CAUSAL)
    short = built()(*(tensor[:, :, :90] for tensor in (q, k, v)), mask=CAUSAL)
    torch.testing.assert_close(long[:, :, :90], short)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("stream", [0, 1])
def test_rows_without_weights_are_zero_with_finite_gradients(stream, causal):
    tensors = list(drawn(dtype=torch.float32))
    tensors[stream][:, :, :7] = -tensors[stream][:, :, :7].abs()
    if stream == 1:
        tensors[1] = -tensors[1].abs()
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = built()(*leaves, mask=Mask(causal=causal))
    assert (out[:, :, :7] == 0).all()
    (out * torch.linspace(5, 50, 8)).sum().backward()
    assert all(torch.isfinite(leaf.grad).all() for leaf in leaves)


@pytest.mark.parametrize("causal", [False, True])
def test_small_features_keep_rows_that_sum_to_one(causal):
    """A denominator that is held above 1e-6 would shrink these rows by a thousand."""
    q, k, _ = drawn(50, dtype=torch.float32)
    out = built(activation="relu")(
        q.abs() * 1e-5, k.abs() * 1e-5, torch.ones_like(q), mask=Mask(causal=causal)
    )
    torch.testing.assert_close(out, torch.ones_like(out))


def test_weights_are_never_negative_at_any_distance():
    made, tokens = built(tokens=200), 200
    q = torch.ones(1, 2, tokens, 8)
    for mask in (Mask(), CAUSAL):
        v = torch.zeros_like(q)
        v[:, :, 0] = 1
        assert (made(q, q, v, mask=mask) >= 0).all()


@pytest.mark.parametrize("length", ["own", "fixed"])
def test_causal_rows_longer_than_the_length_are_refused(length):
    made = built(tokens=32, length=length)
    with pytest.raises(Unsupported, match="up to 32 tokens; got 33"):
        made(*drawn(33), mask=CAUSAL)
    made(*drawn(32), mask=CAUSAL)
    if length == "own":
        made(*drawn(33))


def test_pads_do_not_count_as_length():
    made, keep = built(tokens=32), torch.zeros(1, 60, dtype=torch.bool)
    keep[:, 15:47] = True
    tensors = drawn(60)
    padded = made(*tensors, mask=Mask(keep, causal=True))[:, :, 15:47]
    cropped = made(*(tensor[:, :, 15:47] for tensor in tensors), mask=CAUSAL)
    torch.testing.assert_close(padded, cropped)


@pytest.mark.parametrize("causal", [False, True])
def test_groups_of_rows_equal_one_piece(monkeypatch, causal):
    q, k, v = drawn(33, batch=3)
    keep = torch.ones(3, 33, dtype=torch.bool)
    keep[1, 20:] = keep[2, :5] = False
    for mask in (Mask(keep, causal), Mask(causal=causal)):
        with monkeypatch.context() as patched:
            whole = built()(q.clone().requires_grad_(), k, v, mask=mask)
            patched.setattr(_kernel, "rows_at_once", lambda tokens, dim: 1)
            torch.testing.assert_close(built()(q, k, v, mask=mask), whole)


def test_options_that_cannot_be():
    with pytest.raises(UsageError, match="one of relu, elu"):
        built(activation="gelu")
    with pytest.raises(UsageError, match="one of own, fixed"):
        built(length="padded")
    with pytest.raises(UsageError, match="length='fixed' needs Heads"):
        built(tokens=None, length="fixed")
    with pytest.raises(UsageError, match="causal needs Heads"):
        built(tokens=None)(*drawn(), mask=CAUSAL)
