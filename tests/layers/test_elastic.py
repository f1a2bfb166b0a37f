"""One layer and all the smaller ones inside it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from sparing.layers.elastic import ElasticLayer, LayerForm
from sparing.layers.packing import Packed, Padded, pack
from sparing.layers.plan import LayerSizes
from sparing.measure.flops import count_flops
from tests.layers.stacks import SIZES, WIDTH, layer, near, packed

ORDERS = pytest.mark.parametrize("norm_first", [False, True])
RAGGED = [5, 1, 7, 3]
ALL = (SIZES.heads, SIZES.neurons)


def slow(built, sequence):
    """The layer written out: one sequence, head by head; gives the output and the weights."""
    x = built.attention_norm(sequence) if built.form.norm_first else sequence
    mixed, every = built.output.bias, []
    widths = (SIZES.query_dim, SIZES.query_dim, SIZES.value_dim)
    for head in range(SIZES.heads):
        rows = slice(head * built.head_rows, (head + 1) * built.head_rows)
        weight, bias = built.projection.weight[rows], built.projection.bias[rows]
        q, k, v = (x @ weight.T + bias).split(widths, 1)
        weights = (q @ k.T * built.form.scale).softmax(-1)
        columns = slice(head * SIZES.value_dim, (head + 1) * SIZES.value_dim)
        mixed = mixed + weights @ v @ built.output.weight[:, columns].T
        every.append(weights)
    sequence = sequence + mixed
    if not built.form.norm_first:
        sequence = built.attention_norm(sequence)
    inner = built.feed_forward_norm(sequence) if built.form.norm_first else sequence
    sequence = sequence + built.fall(F.gelu(built.rise(inner)))
    if not built.form.norm_first:
        sequence = built.feed_forward_norm(sequence)
    return sequence, torch.stack(every)


@ORDERS
@torch.no_grad()
def test_the_layer_written_out(norm_first):
    built = layer(norm_first)
    rows, layout = packed(RAGGED)
    output = built(rows, layout, *ALL)
    expected = torch.cat([slow(built, part)[0] for part in rows.split(RAGGED)])
    near(output, expected)


@ORDERS
@torch.no_grad()
def test_packed_and_padded_rows_agree(norm_first):
    built = layer(norm_first)
    padded = torch.randn(4, 7, WIDTH, dtype=torch.float64)
    keep = torch.tensor(
        [[1] * 7, [1, 0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 0, 0]]
    ).bool()
    rows, layout = pack(padded, keep)
    for heads, neurons in (ALL, (2, 8), (1, 1)):
        standing = built(padded, Padded(keep), heads, neurons)
        near(built(rows, layout, heads, neurons), standing[keep])
    even = built(padded, Padded(), *ALL)
    near(built(*pack(padded, None), *ALL), even.flatten(0, 1))


@ORDERS
@pytest.mark.parametrize(("heads", "neurons"), [(1, 16), (3, 16), (4, 1), (4, 9), (2, 8), (1, 1)])
@torch.no_grad()
def test_what_is_not_kept_is_as_if_its_output_were_zero(norm_first, heads, neurons):
    built = layer(norm_first)
    masked = copy.deepcopy(built)
    masked.output.weight[:, heads * SIZES.value_dim :] = 0
    masked.fall.weight[:, neurons:] = 0
    rows, layout = packed(RAGGED)
    output = built(rows, layout, heads, neurons)
    near(output, masked(rows, layout, *ALL))
    near(built.forward_scored(rows, layout, heads, neurons)[0], output)
    assert (output - built(rows, layout, *ALL)).abs().max() > (
        0 if (heads, neurons) == ALL else 0.1
    )


@ORDERS
@torch.no_grad()
def test_received_attention_against_a_loop(norm_first):
    built = layer(norm_first)
    for lengths in (RAGGED, [4, 4], [6]):
        rows, layout = packed(lengths)
        output, received = built.forward_scored(rows, layout, *ALL)
        near(output, built(rows, layout, *ALL))
        near(received.sum(1), torch.ones(len(lengths), dtype=torch.float64))
        for number, part in enumerate(rows.split(lengths)):
            weights = slow(built, part)[1]
            for key in range(len(part)):
                share = weights[:, :, key].sum() / (SIZES.heads * len(part))
                near(received[number, key], share)
            assert bool((received[number, len(part) :] == 0).all())


@torch.no_grad()
def test_the_kept_heads_alone_are_asked_who_is_attended():
    built = layer()
    rows, layout = packed([6])
    received = built.forward_scored(rows, layout, 2, 16)[1]
    near(received[0], slow(built, rows)[1][:2].mean((0, 1)))


@pytest.mark.parametrize(("heads", "neurons"), [(4, 16), (3, 16), (4, 8), (1, 1)])
def test_arithmetic_is_what_is_counted_and_falls(heads, neurons):
    built = layer()
    for tokens in (1, 6):
        rows, layout = packed([tokens])
        count = torch.tensor([tokens], dtype=torch.float64)
        formula = built.flops(count, heads, neurons)
        with torch.no_grad():
            counted = count_flops(lambda: built(rows, layout, heads, neurons))  # noqa: B023
            scored = count_flops(lambda: built.forward_scored(rows, layout, heads, neurons))  # noqa: B023
        assert float(formula) == counted == scored
        assert (counted < float(built.flops(count, *ALL))) == ((heads, neurons) != ALL)


def test_gradients_reach_what_is_kept_and_nothing_else():
    built = layer()
    rows, layout = packed(RAGGED)
    built(rows, layout, 3, 10).square().sum().backward()
    wide, tall = 3 * built.head_rows, 3 * SIZES.value_dim
    parts = [
        (built.projection.weight.grad, wide),
        (built.projection.bias.grad, wide),
        (built.output.weight.grad.T, tall),
        (built.rise.weight.grad, 10),
        (built.rise.bias.grad, 10),
        (built.fall.weight.grad.T, 10),
    ]
    for gradient, width in parts:
        assert bool((gradient[width:] == 0).all())
    for weight in (parts[0][0], parts[2][0], parts[3][0], parts[5][0]):
        assert weight.abs().flatten(1).sum(1).count_nonzero() in (wide, tall, 10)
    assert built.output.bias.grad.count_nonzero() == WIDTH


@pytest.mark.parametrize("changes", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_dropout_in_training_alone_and_in_both_forms(changes):
    built = layer(**changes)
    rows, layout = packed(RAGGED)

    def compute(scored):
        torch.manual_seed(0)
        return (built.forward_scored if scored else built)(rows, layout, *ALL)

    calm = compute(scored=False)
    near(calm, layer()(rows, layout, *ALL))
    built.train()
    assert (compute(scored=False) - calm).abs().max() > 0.1
    assert (compute(scored=True)[0] - calm).abs().max() > 0.1


@torch.no_grad()
def test_a_sequence_that_is_not_a_number_spoils_no_other():
    built = layer()
    rows, layout = packed(RAGGED)
    clean = built(rows, layout, *ALL)
    rows[8, 2] = torch.nan
    for output in (built(rows, layout, *ALL), built.forward_scored(rows, layout, *ALL)[0]):
        spoiled = layout.owner == 2
        assert bool(output[spoiled].isnan().all())
        near(output[~spoiled], clean[~spoiled])


@pytest.mark.parametrize("weighed", [False, True])
def test_sequences_scored_one_by_one_give_what_the_batch_gives(monkeypatch, weighed):
    torch.manual_seed(0)
    layer = ElasticLayer(
        LayerSizes(4, 8, 8, 32), LayerForm(32, 8**-0.5, False, 1e-12, F.gelu)
    ).double()
    layout = Packed(torch.tensor([7, 3, 5]))
    rows = torch.randn(15, 32, dtype=torch.float64)
    paid = torch.rand(3, 7, dtype=torch.float64) * layout.keep if weighed else None
    with torch.no_grad():
        whole = layer.forward_scored(rows, layout, 3, 24, paid)
        monkeypatch.setattr("sparing.layers.elastic.LARGE_SQUARE", 0)
        calls = []
        scored = layer._scored
        monkeypatch.setattr(layer, "_scored", lambda *given: calls.append(1) or scored(*given))
        parts = layer.forward_scored(rows, layout, 3, 24, paid)
    assert len(calls) == 3
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
