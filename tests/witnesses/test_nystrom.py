"""The package nystrom-attention and transformers' Nystromformer; both mix what should be apart."""

from __future__ import annotations

import importlib

import pytest
import torch

from sparing import Attention, Mask
from tests.witnesses import witness

package = witness("nystrom_attention")
transformers = importlib.import_module("transformers")

pytestmark = pytest.mark.slow

WIDTH, COUNT, LANDMARKS = 32, 4, 6


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def of_package(heads=COUNT, **options):
    module = package.NystromAttention(
        WIDTH, dim_head=WIDTH // heads, heads=heads, num_landmarks=LANDMARKS, **options
    )
    return module.double().eval()


def of_transformers(tokens, heads=COUNT, *, convolution=False, **options):
    # segment_means_seq_len is the length it divides; the default equals the number of landmarks,
    # which makes it plain softmax attention. A kernel of None cannot be set: it is zero instead.
    settings = {"segment_means_seq_len": tokens, "conv_kernel_size": 5, **options}
    config = transformers.NystromformerConfig(
        hidden_size=WIDTH, num_attention_heads=heads, num_landmarks=LANDMARKS, **settings
    )
    code = transformers.models.nystromformer.modeling_nystromformer
    module = code.NystromformerSelfAttention(config).double().eval()
    with torch.no_grad():
        module.conv.weight.mul_(convolution)
    return module


def layer_like(projections, output=None, convolution=None, heads=COUNT, **options):
    """Our layer with q, k, v projections (weight, bias or None) copied."""
    kernel = None if convolution is None else convolution.weight.shape[2]
    layer = Attention(
        WIDTH, heads, "nystrom", landmarks=LANDMARKS, conv_kernel=kernel, **options
    ).double()
    with torch.no_grad():
        for letter, (weight, bias) in zip("qkv", projections, strict=True):
            projection = getattr(layer, f"{letter}_projection")
            projection.weight.copy_(weight)
            projection.bias.copy_(torch.zeros_like(projection.bias) if bias is None else bias)
        if output is None:
            torch.nn.init.eye_(layer.output_projection.weight)
            layer.output_projection.bias.zero_()
        else:
            layer.output_projection.load_state_dict(output.state_dict())
        if convolution is not None:
            layer.mechanism.conv_weight.copy_(convolution.weight[:, 0, :, 0])
    return layer.eval()


def like_package(witness, **options):
    weights = [(weight, None) for weight in witness.to_qkv.weight.chunk(3)]
    convolution = witness.res_conv if witness.residual else None
    return layer_like(weights, witness.to_out[0], convolution, witness.heads, **options)


def like_transformers(witness, **options):
    linears = (witness.query, witness.key, witness.value)
    weights = [(linear.weight, linear.bias) for linear in linears]
    return layer_like(weights, None, witness.conv, witness.num_attention_heads, **options)


def drawn(tokens, batch=2):
    return 3 * torch.randn(batch, tokens, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("iterations", [2, 6])
def test_one_head_of_one_sample_equals_the_package_step_by_step(iterations, residual):
    # One matrix alone: the package's batch-wide constant is then the right one.
    witness = of_package(1, pinv_iterations=iterations, residual=residual, residual_conv_kernel=5)
    x = drawn(24, batch=1).requires_grad_()
    output, expected = like_package(witness, iterations=iterations)(x), witness(x)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)
    slopes = [torch.autograd.grad(out.square().sum(), x)[0] for out in (output, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("convolution", [False, True])
def test_one_head_of_one_sample_equals_transformers_step_by_step(convolution):
    witness = of_transformers(24, heads=1, convolution=convolution)
    x = drawn(24, batch=1)
    torch.testing.assert_close(like_transformers(witness)(x), witness(x)[0], rtol=1e-9, atol=1e-9)


def test_many_heads_equal_the_package_once_the_inverse_has_converged():
    witness = of_package(pinv_iterations=40, residual_conv_kernel=5)
    x = drawn(30)
    for options in ({"iterations": 40}, {"pinv": "exact"}):
        output = like_package(witness, **options)(x)
        torch.testing.assert_close(output, witness(x), rtol=1e-7, atol=1e-7)


def test_masked_multiples_equal_the_package():
    witness = of_package(pinv_iterations=40, residual=False)
    x = drawn(30)
    keep = torch.ones(2, 30, dtype=torch.bool)
    keep[1, [3, 4, 16]] = False  # in segments that stay filled: both mean over what is real
    output = like_package(witness, pinv="exact")(x, mask=Mask(keep))
    torch.testing.assert_close(output[keep], witness(x, mask=keep)[keep], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["package", "transformers"])
def test_why_we_differ_a_neighbour_in_the_batch_changes_their_result(name):
    x = drawn(24)
    x[1] *= 5  # its landmarks attend to one column, whose sum is then the largest of the batch
    if name == "package":
        module = of_package(residual=False)
        layer, witness = like_package(module), module
    else:
        module = of_transformers(24)
        layer = like_transformers(module)

        def witness(x):
            return module(x)[0]

    assert (witness(x)[:1] - witness(x[:1])).abs().max() > 1e-4
    torch.testing.assert_close(layer(x)[:1], layer(x[:1]), rtol=1e-11, atol=1e-11)


def test_why_we_differ_the_default_of_transformers_is_plain_softmax():
    config = transformers.NystromformerConfig()
    assert config.segment_means_seq_len == config.num_landmarks
    witness = of_transformers(LANDMARKS)
    x = drawn(24)
    q, k, v = (
        linear(x).unflatten(-1, (COUNT, -1)).transpose(1, 2)
        for linear in (witness.query, witness.key, witness.value)
    )
    softmax = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(witness(x)[0], softmax.transpose(1, 2).flatten(2))
    assert (like_transformers(witness)(x) - witness(x)[0]).abs().max() > 1e-3


def test_why_we_differ_transformers_averages_pads_into_landmarks():
    witness = of_transformers(24)
    x = drawn(24, batch=1)
    keep = torch.arange(24)[None] < 14
    changed = x.masked_fill(~keep[..., None], 5.0)
    hidden = torch.zeros(1, 1, 1, 24, dtype=torch.float64).masked_fill(~keep, -1e30)
    gap = witness(x, attention_mask=hidden)[0] - witness(changed, attention_mask=hidden)[0]
    assert gap[:, :14].abs().max() > 1e-3
    layer = like_transformers(witness)
    for inputs in (x, changed):
        output = layer(inputs, mask=Mask(keep))[:, :14]
        torch.testing.assert_close(output, layer(x[:, :14]), rtol=1e-10, atol=1e-10)


def test_why_we_differ_the_package_attends_to_its_own_filling():
    witness = of_package(pinv_iterations=40, residual=False)
    x = drawn(25)  # filled up to 30 with zeros, which are seen as tokens unless a mask is given
    everything = torch.ones(2, 25, dtype=torch.bool)
    assert (witness(x) - witness(x, mask=everything)).abs().max() > 1e-3


def test_why_we_differ_an_option_of_transformers_cannot_be_used():
    with pytest.raises(TypeError, match="subscript"):
        of_transformers(24, inv_coeff_init_option=True)
