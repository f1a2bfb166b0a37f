"""Blockwise attention against dense masks, and how rows are cut into blocks."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, Unsupported, UsageError, Workload, mechanism
from sparing.mechanisms.local import _shifted
from sparing.testing.entries.local import dense_local

OPTIONS = (
    {"block": 1},
    {"block": 16},
    {"block": 7, "look_back": 1, "look_ahead": 2},
    {"block": 30, "look_back": 4},
    {"block": 100, "look_ahead": 1},
    {"block": 16, "shifts": (0, 3, 1)},
    {"block": 40, "shifts": (2,)},
)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def streams(batch, queries, keys):
    return [torch.randn(batch, 3, n, 4).double() for n in (queries, keys, keys)]


def padded(kind, batch, keys):
    keep = torch.ones(batch, keys, dtype=torch.bool)
    if kind == "right":
        keep[0, max(1, keys * 2 // 3) :] = False
    elif kind == "left":
        keep[-1, : keys // 2] = False
    elif kind == "between":
        keep = torch.rand(batch, keys, generator=torch.Generator().manual_seed(3)) > 0.4
        keep[:, keys // 2] = True
    return None if kind == "none" else keep


def close(output, expected, mask):
    if mask.keep is not None:
        real = mask.keep[:, None, :, None]
        output, expected = output.where(real, 0), expected.where(real, 0)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_the_dense_blocks(options):
    made = mechanism("local", Heads(3, 4), **options)
    for batch, tokens in ((1, 1), (2, 64), (2, 119)):
        tensors = streams(batch, tokens, tokens)
        for kind in ("none", "right", "left", "between"):
            for causal in (False, True) if made.traits.causal else (False,):
                mask = Mask(padded(kind, batch, tokens), causal)
                expected = dense_local(made, *tensors, mask=mask)
                close(made(*tensors, mask=mask), expected, mask)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("options", OPTIONS[:5], ids=str)
def test_decoding_keeps_the_blocks(options):
    made = mechanism("local", Heads(3, 4), **options)
    q, k, v = streams(2, 119, 119)
    for keep in (None, padded("left", 2, 119)):
        mask = Mask(keep, causal=True)
        whole = made(q, k, v, mask=mask)
        for queries in (1, 20, 59, 118):
            output = made(q[:, :, -queries:], k, v, mask=mask)
            torch.testing.assert_close(output, whole[:, :, -queries:])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)
def test_gradients_through_many_blocks(options):
    made = mechanism("local", Heads(3, 4), **options)
    mask = Mask(padded("left", 2, 119))
    leaves = [t.requires_grad_() for t in streams(2, 119, 119)]
    real = mask.keep[:, None, :, None]
    fast, slow = (
        torch.autograd.grad(out.where(real, 0).square().sum(), leaves)
        for out in (made(*leaves, mask=mask), dense_local(made, *leaves, mask=mask))
    )
    for gradient, expected in zip(fast, slow, strict=True):
        torch.testing.assert_close(
            gradient.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("shift", [0, 1, 2, 6, 7, 50])
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 96, 97, 111])
def test_every_block_meets_the_one_that_its_shift_names(tokens, shift):
    blocks = -(-tokens // 16)
    keys_of_block, at = {}, 0
    for piece in _shifted(tokens, 16, shift):
        assert piece.start == at
        at = piece.stop
        for number in range(piece.blocks):
            start = piece.key_start + number * piece.size
            keys_of_block[piece.start // 16 + number] = (start, start + piece.window)
    assert at == tokens
    for block in range(blocks):
        other = (block + shift) % blocks
        assert keys_of_block[block] == (16 * other, min(16 * other + 16, tokens))


def test_whole_blocks_make_few_pieces():
    made = mechanism("local", Heads(1, 4), block=16, look_back=1, look_ahead=1)
    assert len(made._looking(16000, 16000, False)) == 3
    assert len(made._looking(16001, 16001, True)) == 3
    assert len(_shifted(16000, 16, 3)) == 2


def test_cost_is_the_pairs_inside():
    for options, width in (({}, 64), ({"look_back": 1}, 128), ({"shifts": (0, 1)}, 64)):
        made = mechanism("local", Heads(2, 1), block=64, **options)
        flops = made.cost(Workload(1, 2, 65536, 65536, 1)).matmul_flops
        assert flops == pytest.approx(2 * 4 * 65536 * width, rel=1e-3)


def test_blocks_follow_the_rows_own_tokens():
    made = mechanism("local", Heads(3, 4), block=10, shifts=(0, 1, 2))
    q, k, v = streams(2, 64, 64)
    keep = torch.ones(2, 64, dtype=torch.bool)
    keep[0, :13] = keep[1, 40:] = False
    whole = made(q, k, v, mask=Mask(keep))
    for row, span in ((0, slice(13, 64)), (1, slice(0, 40))):
        alone = made(*(t[row : row + 1, :, span] for t in (q, k, v)))
        torch.testing.assert_close(whole[row : row + 1, :, span], alone)


def test_dropout_drops_in_training_only():
    made = mechanism("local", Heads(1, 4), block=8, dropout=0.5)
    q, k, v = (torch.randn(1, 1, 100, 4) for _ in "qkv")
    assert not torch.equal(made.train()(q, k, v), made(q, k, v))
    made.eval()
    torch.testing.assert_close(made(q, k, v), mechanism("local", Heads(1, 4), block=8)(q, k, v))


def test_wrong_options_are_refused():
    for options, word in (
        ({"block": 0}, "block"),
        ({"look_back": -1}, "look_back"),
        ({"look_ahead": -1}, "look_ahead"),
        ({"shifts": ()}, "shifts"),
        ({"shifts": (-1,)}, "shifts"),
        ({"shifts": (0, 1, 2)}, "2 heads"),
        ({"shifts": (0, 1), "look_back": 1}, "must be 0"),
    ):
        with pytest.raises(UsageError, match=word):
            mechanism("local", Heads(2, 4), **options)


def test_a_shifted_head_cannot_be_causal():
    made = mechanism("local", Heads(3, 4), block=4, shifts=(0, 0, 1))
    with pytest.raises(Unsupported, match="causal"):
        made(*streams(1, 9, 9), mask=Mask(causal=True))
