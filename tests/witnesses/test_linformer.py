"""The package linformer, module against module; it takes masks and ignores them."""

from __future__ import annotations

import pytest
import torch

from sparing import Attention, Mask
from tests.witnesses import witness

linformer = witness("linformer")

pytestmark = pytest.mark.slow

WIDTH, COUNT, LONGEST, SLOTS = 32, 4, 48, 10


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def package_layer(**options):
    module = linformer.LinformerSelfAttention(WIDTH, LONGEST, k=SLOTS, heads=COUNT, **options)
    return module.double().eval()


def sparing_layer(witness, sharing):
    """Our layer with the package's weights, whose inner projections have no biases."""
    layer = Attention(
        WIDTH, COUNT, "linformer", tokens=LONGEST, slots=SLOTS, sharing=sharing
    ).double()
    value = witness.to_k if witness.share_kv else witness.to_v
    with torch.no_grad():
        for projection, given in (
            (layer.q_projection, witness.to_q),
            (layer.k_projection, witness.to_k),
            (layer.v_projection, value),
        ):
            projection.weight.copy_(given.weight)
            projection.bias.zero_()
        layer.output_projection.load_state_dict(witness.to_out.state_dict())
        mechanism = layer.mechanism
        if mechanism.key_projection is not None:
            mechanism.key_projection.copy_(witness.proj_k.T)
        if mechanism.value_projection is not None:
            mechanism.value_projection.copy_(witness.proj_v.T)
    return layer.eval()


@pytest.mark.parametrize("tokens", [SLOTS, 31, LONGEST])
@pytest.mark.parametrize(("share_kv", "sharing"), [(False, "headwise"), (True, "kv")])
def test_equals_the_package_with_its_gradients(share_kv, sharing, tokens):
    witness = package_layer(share_kv=share_kv)
    layer = sparing_layer(witness, sharing)
    x = torch.randn(3, tokens, WIDTH, dtype=torch.float64, requires_grad=True)
    output, expected = layer(x), witness(x)
    torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-11)
    slopes = [torch.autograd.grad(out.square().sum(), x)[0] for out in (output, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-10)


def test_equals_the_package_in_cross_attention():
    witness = package_layer()
    x, context = (torch.randn(2, n, WIDTH, dtype=torch.float64) for n in (7, 40))
    torch.testing.assert_close(
        sparing_layer(witness, "headwise")(x, context),
        witness(x, context=context),
        rtol=1e-11,
        atol=1e-11,
    )


def test_layers_that_share_equal_packages_that_share():
    first, second = package_layer(share_kv=True), package_layer(share_kv=True)
    second.proj_k = first.proj_k
    layers = [sparing_layer(witness, "layerwise") for witness in (first, second)]
    layers[1].mechanism.share_projections(layers[0].mechanism)
    x = torch.randn(2, 33, WIDTH, dtype=torch.float64)
    output, expected = layers[1](layers[0](x)), second(first(x))
    torch.testing.assert_close(output, expected, rtol=1e-11, atol=1e-11)


def test_matrices_of_each_head_equal_packages_of_one_head():
    layer = Attention(
        WIDTH, COUNT, "linformer", bias=False, tokens=LONGEST, slots=SLOTS, sharing="none"
    )
    layer = layer.double().eval()
    x, dim = torch.randn(2, 33, WIDTH, dtype=torch.float64), WIDTH // COUNT
    expected = torch.zeros_like(x)
    for head in range(COUNT):
        alone = linformer.LinformerSelfAttention(WIDTH, LONGEST, k=SLOTS, heads=1, dim_head=dim)
        alone = alone.double().eval()
        rows = slice(head * dim, (head + 1) * dim)
        with torch.no_grad():
            for letter in "qkv":
                weight = getattr(layer, f"{letter}_projection").weight
                getattr(alone, f"to_{letter}").weight.copy_(weight[rows])
            alone.proj_k.copy_(layer.mechanism.key_projection[head].T)
            alone.proj_v.copy_(layer.mechanism.value_projection[head].T)
            alone.to_out.weight.copy_(layer.output_projection.weight[:, rows])
            alone.to_out.bias.zero_()
        expected = expected + alone(x)
    torch.testing.assert_close(layer(x), expected, rtol=1e-11, atol=1e-11)


def test_why_we_differ_the_package_ignores_masks_in_silence():
    witness = package_layer()
    x = torch.randn(1, 30, WIDTH, dtype=torch.float64)
    keep = torch.arange(30)[None] < 20
    changed = x.masked_fill(~keep[..., None], 5.0)
    assert torch.equal(witness(x, mask=keep), witness(x))
    assert (witness(changed, mask=keep) - witness(x, mask=keep))[:, :20].abs().max() > 1e-3
    layer = sparing_layer(witness, "headwise")
    cropped = layer(x[:, :20])
    for inputs in (x, changed):
        torch.testing.assert_close(layer(inputs, mask=Mask(keep))[:, :20], cropped)
    torch.testing.assert_close(cropped, witness(x[:, :20]), rtol=1e-11, atol=1e-11)
