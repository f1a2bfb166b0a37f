"""Strided and fixed patterns against explicit sets of keys; parts, decoding and empty sets."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from sparing import Heads, Mask, UsageError, Workload, mechanism
from sparing.testing.entries.strided import dense_strided

COMBINATIONS = ("merged", "heads", "first", "second")
SHAPES = (
    {"stride": 7},
    {"stride": 1},
    {"stride": 16},
    {"pattern": "fixed", "stride": 7, "summary": 2},
    {"pattern": "fixed", "stride": 1, "summary": 1},
    {"pattern": "fixed", "stride": 6, "summary": 6},
    {"pattern": "fixed", "stride": 16, "summary": 3},
)
PATTERNS = (SHAPES[0], SHAPES[3])


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def streams(batch, tokens, heads=2, dim=4):
    return [torch.randn(batch, heads, tokens, dim, dtype=torch.float64) for _ in "qkv"]


def padded(kind, tokens):
    keep = torch.ones(2, tokens, dtype=torch.bool)
    if kind == "right":
        keep[0, tokens * 2 // 3 :] = False
    elif kind == "left":
        keep[1, : tokens // 2] = False
    elif kind == "between":
        keep = torch.rand(2, tokens, generator=torch.Generator().manual_seed(3)) > 0.4
        keep[:, tokens // 2] = True
    return None if kind == "none" else keep


def close(output, expected, mask):
    if mask.keep is not None:
        real = mask.keep[:, None, -output.shape[2] :, None]
        output, expected = output.where(real, 0), expected.where(real, 0)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


def visible_keys(tokens, causal, **options):
    """Which keys get a weight: values are the rows of the identity."""
    made = mechanism("strided", Heads(1, tokens), **options)
    q = k = torch.zeros(1, 1, tokens, tokens)
    return made(q, k, torch.eye(tokens)[None, None], mask=Mask(causal=causal))[0, 0] > 0


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_equals_the_explicit_sets(options, combine):
    made = mechanism("strided", Heads(2, 4), combine=combine, **options)
    for tokens in (1, 6, 7, 30):
        tensors = streams(1, tokens)
        for causal in (False, True):
            mask = Mask(causal=causal)
            close(made(*tensors, mask=mask), dense_strided(made, *tensors, mask=mask), mask)


@pytest.mark.parametrize("kind", ["right", "left", "between"])
@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_sets_are_counted_from_the_rows_first_token(options, combine, kind):
    made = mechanism("strided", Heads(2, 4), combine=combine, **options)
    tensors = streams(2, 23)
    for causal in (False, True):
        mask = Mask(padded(kind, 23), causal)
        close(made(*tensors, mask=mask), dense_strided(made, *tensors, mask=mask), mask)


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("options", SHAPES, ids=str)
def test_decoding_with_few_queries(options, combine):
    made = mechanism("strided", Heads(2, 4), combine=combine, **options)
    q, k, v = streams(2, 45)
    for kind in ("left", "between"):
        mask = Mask(padded(kind, 45), causal=True)
        whole = made(q, k, v, mask=mask)
        for queries in (1, 7, 22):
            output = made(q[:, :, -queries:], k, v, mask=mask)
            close(output, whole[:, :, -queries:], mask)


@pytest.mark.parametrize("queries", [203, 100, 5])
@pytest.mark.parametrize("combine", ["merged", "second"])
@pytest.mark.parametrize("options", PATTERNS, ids=str)
def test_parts_change_nothing(options, combine, queries, monkeypatch):
    made = mechanism("strided", Heads(2, 4), combine=combine, **options)
    q, k, v = streams(2, 203)
    q = q[:, :, -queries:]
    masks = [Mask(padded(kind, 203), causal=True) for kind in ("none", "between")]
    if queries == 203:
        masks += [Mask(mask.keep) for mask in masks]
    expected = [made(q, k, v, mask=mask) for mask in masks]
    for elements in (1, 3000):
        monkeypatch.setattr("sparing.mechanisms._columns.CACHED_ELEMENTS", elements)
        monkeypatch.setattr("sparing.mechanisms._summaries._CACHED_ELEMENTS", elements)
        for mask, result in zip(masks, expected, strict=True):
            close(made(q, k, v, mask=mask), result, mask)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [7, 49, 50, 62])
def test_lines_at_the_ends_of_a_row_are_parts_of_their_own(tokens, causal, monkeypatch):
    made = mechanism("strided", Heads(2, 4), stride=7)
    tensors, mask = streams(1, tokens), Mask(causal=causal)
    monkeypatch.setattr("sparing.mechanisms._columns.CACHED_ELEMENTS", 1)
    close(made(*tensors, mask=mask), dense_strided(made, *tensors, mask=mask), mask)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("options", PATTERNS, ids=str)
def test_with_gradients(options, combine, causal):
    made = mechanism("strided", Heads(2, 4), combine=combine, **options)
    for kind in ("none", "left", "between"):
        mask = Mask(padded(kind, 25), causal)
        leaves = [stream.requires_grad_() for stream in streams(2, 25)]
        recorded, slow = made(*leaves, mask=mask), dense_strided(made, *leaves, mask=mask)
        with torch.no_grad():
            close(made(*leaves, mask=mask), recorded, mask)
        real = torch.ones(()).bool() if mask.keep is None else mask.keep[:, None, :, None]
        for gradient, expected in zip(
            *(
                torch.autograd.grad(
                    out.where(real, 0).square().sum(), leaves, materialize_grads=True
                )
                for out in (recorded, slow)
            ),
            strict=True,
        ):
            close(gradient, expected, mask)


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("options", PATTERNS, ids=str)
def test_halves_come_out_wide_enough(options, combine):
    """Scores of std 100 overflow nothing, and sums of weights are in float32."""
    made = mechanism("strided", Heads(2, 4), combine=combine, **options)
    tensors = [10 * stream for stream in streams(1, 60)]
    output = made(*(stream.bfloat16() for stream in tensors))
    expected = made(*(stream.bfloat16().double() for stream in tensors))
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), expected, rtol=0.02, atol=0.1)


def test_a_query_whose_set_is_empty_sees_itself():
    made = mechanism("strided", Heads(2, 4), pattern="fixed", stride=8, summary=2, combine="second")
    q, k, v = streams(2, 20)
    output = made(q, k, v, mask=Mask(causal=True))
    assert torch.equal(output[:, :, :6], v[:, :, :6])
    assert not torch.isclose(output[:, :, 7:], v[:, :, 7:]).any()
    assert torch.equal(made(q[:, :, :6], k[:, :, :6], v[:, :, :6]), v[:, :, :6])
    keep = torch.ones(2, 20, dtype=torch.bool)
    keep[1, [6, 7]] = False
    masked = made(q, k, v, mask=Mask(keep, causal=True))
    torch.testing.assert_close(masked[0], output[0])
    assert torch.equal(masked[1, :, 8:14], v[1, :, 8:14])


def test_the_sets_of_the_paper():
    first, second = (visible_keys(12, True, stride=4, combine=kind) for kind in ("first", "second"))
    assert first[10].nonzero()[:, 0].tolist() == [7, 8, 9, 10]
    assert second[10].nonzero()[:, 0].tolist() == [2, 6, 10]
    assert torch.equal(visible_keys(12, True, stride=4), first | second)
    options = {"pattern": "fixed", "stride": 4, "summary": 2}
    first, second = (
        visible_keys(12, True, combine=kind, **options) for kind in ("first", "second")
    )
    assert first[9].nonzero()[:, 0].tolist() == [8, 9]
    assert second[9].nonzero()[:, 0].tolist() == [2, 3, 6, 7]
    assert torch.equal(visible_keys(12, True, **options), first | second)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tokens", "stride"), [(30, 6), (31, 7), (20, 1), (9, 20)])
def test_two_layers_reach_every_earlier_token(tokens, stride, causal):
    """Section 4.2: the sets' product is full, for strided in either order of the layers."""
    expected = torch.ones(tokens, tokens).tril() if causal else torch.ones(tokens, tokens)
    first, second = (
        visible_keys(tokens, causal, stride=stride, combine=kind).float()
        for kind in ("first", "second")
    )
    for reached in (second @ first, first @ second):
        assert torch.equal((reached > 0).float(), expected)


def test_fixed_layers_reach_every_earlier_token_in_one_order():
    """A block's last token has seen all of it, so that others may look at that alone.

    Within a block what the first layer found stays where it is, for which a block of a model has
    its residual.
    """
    options = {"pattern": "fixed", "stride": 6, "summary": 1}
    first, second = (
        visible_keys(33, True, combine=kind, **options).float() + torch.eye(33)
        for kind in ("first", "second")
    )
    expected = torch.ones(33, 33).tril()
    assert torch.equal((second @ first > 0).float(), expected)
    assert not torch.equal((first @ second > 0).float(), expected)


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize("options", PATTERNS, ids=str)
def test_half_of_the_heads_have_each_set(options, heads):
    first, second, mixed = (
        mechanism("strided", Heads(heads, 4), combine=kind, **options)(*tensors)
        for tensors in [streams(1, 40, heads)]
        for kind in ("first", "second", "heads")
    )
    border = (heads + 1) // 2
    torch.testing.assert_close(mixed[:, :border], first[:, :border])
    torch.testing.assert_close(mixed[:, border:], second[:, border:])
    assert not torch.isclose(first, second).all(-1).any()


def test_stride_of_one_and_summaries_of_whole_blocks_see_all():
    tensors, mask = streams(2, 40), Mask(padded("left", 40), causal=True)
    expected = mechanism("softmax", Heads(2, 4))(*tensors, mask=mask)
    for options in (
        {"stride": 1},
        {"stride": 1, "combine": "second"},
        {"stride": 40, "combine": "first"},
        {"pattern": "fixed", "stride": 9, "summary": 9},
        {"pattern": "fixed", "stride": 9, "summary": 9, "combine": "second"},
    ):
        close(mechanism("strided", Heads(2, 4), **options)(*tensors, mask=mask), expected, mask)


def test_cost_is_the_pairs_of_the_sets():
    def pairs(tokens, **options):
        made = mechanism("strided", Heads(1, 1), **options)
        return made.cost(Workload(1, 1, tokens, tokens, 1)).matmul_flops / 4

    assert pairs(4096) == 4096 * (3 * 64 + 64)
    assert pairs(4096, combine="second") == 4096 * 64
    assert pairs(4096, pattern="fixed") == 4096 * (64 - 8 + 8 * 64)
    assert pairs(4096, pattern="fixed", combine="first") == 4096 * 64
    assert pairs(65536, stride=256) / pairs(4096) == 64


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", PATTERNS, ids=str)
def test_kernels_stay_fused_under_masks(options, causal):
    """PyTorch writes all scores down where a mask has three dimensions."""
    made = mechanism("strided", Heads(2, 4), combine="second", **options)
    merged = mechanism("strided", Heads(2, 4), **options)
    q, k, v = (stream.float() for stream in streams(2, 50))
    with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for kind in ("none", "left", "between"):
            for layer in (made, merged):
                layer(q, k, v, mask=Mask(padded(kind, 50), causal))
                if causal:
                    layer(q[:, :, -9:], k, v, mask=Mask(padded(kind, 50), causal))


def test_dropout_drops_in_training_only():
    for options in PATTERNS:
        for combine in COMBINATIONS:
            made = mechanism("strided", Heads(2, 4), combine=combine, dropout=0.5, **options)
            tensors = streams(1, 50)
            assert not torch.equal(made.train()(*tensors), made(*tensors))
            plain = mechanism("strided", Heads(2, 4), combine=combine, **options)
            torch.testing.assert_close(made.eval()(*tensors), plain(*tensors))


def test_wrong_options_are_named():
    for options, word in (
        ({"pattern": "stride"}, "pattern is .stride., not one of strided, fixed"),
        ({"combine": "both"}, "combine is .both., not one of merged, heads, first, second"),
        ({"stride": 0}, "stride must be at least 1; got 0"),
        ({"pattern": "fixed", "summary": 0}, "summary must be from 1 to stride = 64; got 0"),
        ({"pattern": "fixed", "stride": 4}, "summary must be from 1 to stride = 4; got 8"),
    ):
        with pytest.raises(UsageError, match=word):
            mechanism("strided", Heads(2, 4), **options)
    assert mechanism("strided", Heads(2, 4), stride=4).summary == 8


@pytest.mark.parametrize("causal", [False, True])
def test_a_short_row_as_one_square_equals_its_lines(causal, monkeypatch):
    made = mechanism("strided", Heads(2, 8), stride=16).double().eval()
    keep = torch.ones(2, 63, dtype=torch.bool)
    keep[0, :9] = keep[1, 30:33] = keep[1, 50:] = False
    q, k, v = (torch.randn(2, 2, 63, 8, dtype=torch.float64) for _ in range(3))
    calls = [(q, None), (q, keep)]
    if causal:
        calls.append((q[:, :, -5:], None))
    results = []
    for lines in (4, 0):
        monkeypatch.setattr("sparing.mechanisms.strided._LINES_AS_SQUARE", lines)
        with torch.no_grad():
            mixed = [
                made(queries, k, v, mask=Mask(row_keep, causal)) for queries, row_keep in calls
            ]
        results.append(mixed)
    for square, cut in zip(*results, strict=True):
        torch.testing.assert_close(square, cut, rtol=1e-10, atol=1e-10)
