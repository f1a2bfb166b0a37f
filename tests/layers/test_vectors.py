"""The head of a vector: pooling without pads, linear layers, a length of 1."""

from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.packing import Padded, pack
from sparing.layers.vectors import VectorForm

WIDTH = 6


@pytest.fixture
def padded():
    torch.manual_seed(0)
    keep = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    return torch.randn(3, 3, WIDTH, dtype=torch.float64), keep


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pads_do_not_count_in_either_layout(padded, pooling):
    rows, keep = padded
    head = VectorForm(WIDTH, pooling).build().double()
    expected = torch.stack(
        [
            row[real].mean(0) if pooling == "mean" else row[0]
            for row, real in zip(*padded, strict=True)
        ]
    )
    packed, layout = pack(rows, keep)
    for given, where in ((rows, Padded(keep)), (packed, layout)):
        torch.testing.assert_close(head(head.pool(given, where)), expected, rtol=0, atol=1e-14)


def test_without_pads_the_mean_is_of_all_tokens(padded):
    rows, _ = padded
    head = VectorForm(WIDTH).build().double()
    torch.testing.assert_close(head.pool(rows, Padded()), rows.mean(1), rtol=0, atol=1e-14)


def test_layers_follow_in_their_order_and_a_unit_vector_has_length_1(padded):
    rows, keep = padded
    form = VectorForm(WIDTH, "mean", ((4, "tanh", True), (3, "identity", False)), unit=True)
    head = form.build().double()
    pooled = head.pool(rows, Padded(keep))
    first, second = head.linears
    assert second.bias is None
    expected = torch.tanh(pooled @ first.weight.T + first.bias) @ second.weight.T
    expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(head(pooled), expected, rtol=0, atol=1e-12)
    assert form.classes == 3
    assert head.flops == 2 * (WIDTH * WIDTH + WIDTH * 4 + 4 * 3)


def test_a_form_is_read_back_as_it_was_written():
    form = VectorForm(WIDTH, "cls", ((4, "tanh", True),), unit=True)
    assert VectorForm.from_dict(form.entry["vector"], WIDTH) == form


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pooling": "max"}, "mean or cls; got 'max'"),
        ({"layers": ((4, "gelu", True),)}, "identity, tanh; got gelu"),
    ],
)
def test_other_poolings_and_activations_are_named(change, words):
    with pytest.raises(UsageError, match=words):
        VectorForm(WIDTH, **change)
