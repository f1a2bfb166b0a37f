"""BigBird's blocks against a dense mask; its random pattern; its causal form."""

from __future__ import annotations

import pytest
import torch

from sparing import Heads, Mask, UsageError, Workload, mechanism
from sparing.mechanisms._seen_blocks import NONE
from sparing.testing.entries.bigbird import dense_bigbird, seen_blocks


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def streams(batch, tokens, heads=2, dim=4):
    return [torch.randn(batch, heads, tokens, dim, dtype=torch.float64) for _ in "qkv"]


def padded(kind, tokens):
    keep = torch.ones(2, tokens, dtype=torch.bool)
    if kind == "outside":
        keep[0, tokens * 2 // 3 :] = False
        keep[1, : tokens // 3] = False
    else:
        keep = torch.rand(2, tokens, generator=torch.Generator().manual_seed(3)) > 0.3
    return keep


def blocks_of(made, blocks, causal=False):
    """Per head and block, the blocks it sees, as stored in the table."""
    rows = torch.arange(blocks)
    table = made._seen.chosen(made.draws, rows, torch.tensor([blocks]), causal)[0]
    return [[[j for j in row if j < NONE] for row in head] for head in table.tolist()]


@pytest.mark.parametrize("learning", range(3))
def test_one_stream_alone_may_be_learned(learning):
    tensors = streams(1, 200)
    made = mechanism("bigbird", Heads(2, 4), block=8, random_blocks=1).double()
    all_learned = [tensor.clone().requires_grad_() for tensor in tensors]
    made(*all_learned).square().sum().backward()
    tensors[learning].requires_grad_()
    made(*tensors).square().sum().backward()
    torch.testing.assert_close(tensors[learning].grad, all_learned[learning].grad)


OPTIONS = (
    {},
    {"random_blocks": 0},
    {"window_blocks": 1, "global_blocks": (2, -3, 2), "random_blocks": 5},
    {"global_blocks": ()},
)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [64, 127, 130])
def test_equals_the_dense_mask_at_block_borders(options, causal, tokens):
    made = mechanism("bigbird", Heads(2, 4), **{"block": 8, **options}).eval()
    q, k, v = streams(1, tokens)
    output = made(q, k, v, mask=Mask(causal=causal))
    expected = dense_bigbird(made, q, k, v, mask=Mask(causal=causal))
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["outside", "between"])
@pytest.mark.parametrize("causal", [False, True])
def test_padded_rows_have_blocks_of_their_own(kind, causal):
    made = mechanism("bigbird", Heads(2, 4), block=5).eval()
    mask = Mask(padded(kind, 123), causal)
    q, k, v = streams(2, 123)
    real = mask.keep[:, None, :, None]
    output = made(q, k, v, mask=mask).where(real, 0)
    expected = dense_bigbird(made, q, k, v, mask=mask).where(real, 0)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_gathered_blocks_add_up(causal):
    made = mechanism("bigbird", Heads(2, 4), block=4, random_blocks=2)
    leaves = [stream.requires_grad_() for stream in streams(2, 66)]
    mask = Mask(padded("between", 66), causal)
    real = mask.keep[:, None, :, None]
    fast, slow = (
        torch.autograd.grad(out.where(real, 0).square().sum(), leaves)
        for out in (made(*leaves, mask=mask), dense_bigbird(made, *leaves, mask=mask))
    )
    for gradient, expected in zip(fast, slow, strict=True):
        torch.testing.assert_close(
            gradient.where(real, 0), expected.where(real, 0), rtol=1e-9, atol=1e-9
        )


def test_chunks_of_heads_and_blocks_change_nothing(monkeypatch):
    made = mechanism("bigbird", Heads(3, 4), block=8).eval()
    q, k, v = streams(1, 333, heads=3)
    expected = made(q, k, v)
    for elements in (1, 1000, 5000):
        monkeypatch.setattr("sparing.mechanisms._sparse.CACHED_ELEMENTS", elements)
        monkeypatch.setattr("sparing.mechanisms._sparse._HEAD_ELEMENTS", elements)
        torch.testing.assert_close(made(q, k, v), expected, rtol=1e-12, atol=1e-12)


def test_random_blocks_differ_from_each_other_and_from_what_is_seen_anyway():
    made = mechanism("bigbird", Heads(12, 4), random_blocks=3)
    for head, rows in enumerate(blocks_of(made, 40)):
        assert [set(row) for row in rows[1:-1]] == seen_blocks(made, head, 40, False)[1:-1]
        for number, row in enumerate(rows):
            assert row == sorted(set(row)), "a block counted twice"
            known = {0, 39} | {j for j in (number - 1, number, number + 1) if 0 <= j < 40}
            assert known <= set(row)
            assert len(row) == len(known) + 3


def test_random_blocks_run_out_in_short_rows():
    made = mechanism("bigbird", Heads(2, 4), random_blocks=3)
    for blocks in (1, 2, 5, 7, 8):
        for rows in blocks_of(made, blocks):
            assert all(len(row) == min(blocks, len(set(row))) for row in rows)
            assert all(max(row) < blocks for row in rows)
    assert all(len(row) == 7 for row in blocks_of(made, 7)[0][2:5])


def test_random_blocks_are_spread_evenly_and_differ_by_head():
    made = mechanism("bigbird", Heads(64, 4), random_blocks=3)
    table = blocks_of(made, 34)
    drawn = [j for rows in table for row in rows[5:16] for j in row if 17 <= j < 33]
    counts = torch.tensor(drawn).bincount(minlength=34)[17:33].double()
    assert counts.std() / counts.mean() < 0.2
    assert table[0] != table[1]


def test_causal_prefix_does_not_depend_on_how_many_tokens_follow():
    made = mechanism("bigbird", Heads(2, 4), block=4, global_blocks=(0, 3, -1, -4)).eval()
    q, k, v = streams(1, 150)
    whole = made(q, k, v, mask=Mask(causal=True))
    for tokens in (1, 4, 37, 90, 149):
        part = made(*(s[:, :, :tokens] for s in (q, k, v)), mask=Mask(causal=True))
        torch.testing.assert_close(part, whole[:, :, :tokens], rtol=1e-10, atol=1e-10)


def test_causal_sees_random_and_global_blocks_of_the_past_only():
    made = mechanism("bigbird", Heads(4, 4), global_blocks=(0, 20))
    for rows in blocks_of(made, 40, causal=True):
        for number, row in enumerate(rows):
            assert max(row) == number
            assert {0, number - 1, number} - {-1} <= set(row)
            assert (20 in row) or number < 20
            assert len(row) >= min(number + 1, 6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("queries", [1, 3, 8, 50, 129])
def test_decoding_with_few_queries(queries):
    made = mechanism("bigbird", Heads(2, 4), block=8).eval()
    q, k, v = streams(2, 130)
    mask = Mask(padded("between", 130), True)
    whole = made(q, k, v, mask=mask)[:, :, -queries:]
    torch.testing.assert_close(made(q[:, :, -queries:], k, v, mask=mask), whole)


def test_full_pattern_is_softmax():
    q, k, v = streams(1, 70)
    expected = mechanism("softmax", Heads(2, 4))(q, k, v)
    for options in ({"window_blocks": 35}, {"random_blocks": 40}, {"block": 70}):
        made = mechanism("bigbird", Heads(2, 4), **{"block": 4, **options})
        torch.testing.assert_close(made(q, k, v), expected, rtol=1e-12, atol=1e-12)


def test_cost_grows_linearly_and_stays_near_the_pattern():
    made = mechanism("bigbird", Heads(1, 1))
    pairs = made.cost(Workload(1, 1, 4096, 4096, 1)).matmul_flops / 4
    assert pairs == 64 * (2 * 4096 + 60 * 512 + 2 * 448)
    twice = made.cost(Workload(1, 1, 8192, 8192, 1)).matmul_flops / 4
    assert twice / pairs < 2.1


def test_the_pattern_is_stored_not_the_seed():
    made, other = (mechanism("bigbird", Heads(2, 4), block=2, seed=seed) for seed in (1, 2))
    q, k, v = streams(1, 90)
    assert not torch.allclose(made(q, k, v), other(q, k, v))
    other.load_state_dict(made.state_dict())
    assert torch.equal(made(q, k, v), other(q, k, v))


def test_dropout_drops_in_training_only():
    made = mechanism("bigbird", Heads(2, 4), block=4, dropout=0.5)
    q, k, v = streams(1, 100)
    assert not torch.equal(made.train()(q, k, v), made(q, k, v))
    made.eval()
    torch.testing.assert_close(made(q, k, v), mechanism("bigbird", Heads(2, 4), block=4)(q, k, v))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("block", 0),
        ("window_blocks", 2),
        ("window_blocks", -1),
        ("random_blocks", -1),
    ],
)
def test_wrong_options_are_named(option, value):
    with pytest.raises(UsageError, match=option):
        mechanism("bigbird", Heads(2, 4), **{option: value})
