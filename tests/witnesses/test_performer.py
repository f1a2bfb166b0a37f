"""The package performer-pytorch: core against core, layer against layer, and its two leaks."""

from __future__ import annotations

import pytest
import torch

from sparing import Attention, Heads, Mask, mechanism
from tests.witnesses import witness

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.*"),
    pytest.mark.filterwarnings("ignore:.*distutils.*"),
]

WIDTH, COUNT, DIM, FEATURES = 32, 4, 8, 24


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def package():
    return witness("performer_pytorch.performer_pytorch")


@pytest.fixture
def streams():
    return torch.randn(3, 2, COUNT, 130, DIM, dtype=torch.float64)


def with_directions_of(reference, **options):
    """Our mechanism looking along their random directions."""
    made = mechanism("performer", Heads(COUNT, DIM), features=FEATURES, **options).double()
    made.directions.rows.copy_(reference.projection_matrix)
    return made.eval()


def without_epsilon(package, made, q, k):
    rows = made.directions.rows
    return (
        package.softmax_kernel(x, projection_matrix=rows, is_query=is_query, eps=0.0)
        for x, is_query in ((q, True), (k, False))
    )


@pytest.mark.parametrize("scaling", [0, 1])
def test_positive_features_without_their_epsilon(package, streams, scaling):
    reference = package.FastAttention(DIM, FEATURES, ortho_scaling=scaling).double()
    made, (q, k, v) = with_directions_of(reference), streams
    expected = package.linear_attention(*without_epsilon(package, made, q, k), v)
    torch.testing.assert_close(made(q, k, v), expected, rtol=1e-9, atol=1e-9)


def test_positive_features_with_their_epsilon_are_a_little_off(package, streams):
    """1e-4 beside features up to 1 pulls every row towards the mean of all values."""
    reference = package.FastAttention(DIM, FEATURES).double()
    output, expected = with_directions_of(reference)(*streams), reference(*streams)
    gap = (output - expected).abs().max()
    assert 1e-6 < gap < 0.1


def test_relu_features(package, streams):
    reference = package.FastAttention(DIM, FEATURES, generalized_attention=True).double()
    output = with_directions_of(reference, feature_map="relu")(*streams)
    torch.testing.assert_close(output, reference(*streams), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("feature_map", ["positive", "relu"])
def test_causal(package, streams, feature_map):
    reference = package.FastAttention(DIM, FEATURES).double()
    made, (q, k, v) = with_directions_of(reference, feature_map=feature_map), streams
    if feature_map == "positive":
        queries, keys = without_epsilon(package, made, q, k)
    else:
        rows = reference.projection_matrix
        queries, keys = (package.generalized_kernel(x, projection_matrix=rows) for x in (q, k))
    expected = package.causal_linear_attention_noncuda(queries, keys, v, eps=0.0)
    output = made(q, k, v, mask=Mask(causal=True))
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)


def test_their_causal_form_leaks_the_future(package, streams):
    """Why we differ: one large last key moves their maximum, and earlier keys sink below 1e-4."""
    reference = package.FastAttention(DIM, FEATURES, causal=True).double()
    made = with_directions_of(reference)
    q, k, v = streams
    later = k.clone()
    later[:, :, -1] = 3 * reference.projection_matrix[0]
    gaps = []
    for attention in (reference, lambda q, k, v: made(q, k, v, mask=Mask(causal=True))):
        change = attention(q, later, v) - attention(q, k, v)
        gaps.append(change[:, :, :-1].abs().max().item())
    assert gaps[0] > 0.1
    assert gaps[1] < 1e-12


def layers(package):
    """The package's layer and ours with its weights; only our inner projections have biases."""
    reference = package.SelfAttention(WIDTH, heads=COUNT, dim_head=DIM, nb_features=FEATURES)
    reference = reference.double().eval()
    layer = Attention(WIDTH, COUNT, "performer", features=FEATURES).double()
    with torch.no_grad():
        for letter in "qkv":
            projection = getattr(layer, f"{letter}_projection")
            projection.weight.copy_(getattr(reference, f"to_{letter}").weight)
            projection.bias.zero_()
        layer.output_projection.weight.copy_(reference.to_out.weight)
        layer.output_projection.bias.copy_(
            torch.zeros(WIDTH) if reference.to_out.bias is None else reference.to_out.bias
        )
        layer.mechanism.directions.rows.copy_(reference.fast_attention.projection_matrix)
    return reference, layer.eval()


def test_layers(package):
    """Near only, for their layer cannot be built without its epsilon."""
    reference, layer = layers(package)
    x = torch.randn(2, 70, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(layer(x), reference(x), rtol=0, atol=5e-3)


def test_their_padding_stays_in_the_denominator(package):
    """Why we differ: their mask empties padded values only; what padded keys hold still counts."""
    reference, layer = layers(package)
    x = torch.randn(2, 40, WIDTH, dtype=torch.float64)
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[:, 30:] = False
    for attention, padded, leaks in (
        (reference, lambda x: reference(x, mask=keep), True),
        (layer, lambda x: layer(x, mask=Mask(keep)), False),
    ):
        gap = (padded(x)[:, :30] - attention(x[:, :30])).abs().max()
        assert (gap > 1e-2) if leaks else (gap < 1e-9)
