"""Longformer beside transformers' own, and its windows beside torch's flex_attention."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from sparing import Heads, Mask, mechanism

pytestmark = pytest.mark.slow
modeling = importlib.import_module("transformers.models.longformer.modeling_longformer")

HEADS, DIM, WIDTH = 3, 8, 24


def transformers_layer(radius):
    config = modeling.LongformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_window=[2 * radius],
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    layer = modeling.LongformerSelfAttention(config, 0).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def call(layer, x, chosen, keep):
    """(batch, tokens, width); ``chosen`` and ``keep`` are (batch, tokens)."""
    mask = torch.zeros(x.shape[:2], dtype=x.dtype).masked_fill(chosen, 1e4)
    return layer(
        x,
        attention_mask=mask.masked_fill(~keep, -1e4),
        is_index_masked=~keep,
        is_index_global_attn=chosen & keep,
        is_global_attn=bool(chosen.any()),
    )[0]


def sparing_output(layer, x, chosen, keep, radius):
    made = mechanism(
        "longformer", Heads(HEADS, DIM, width=WIDTH), radius=radius, global_tokens=chosen
    )
    made.init_from(
        {
            "q": layer.query_global.weight,
            "k": layer.key_global.weight,
            "v": layer.value_global.weight,
            "q_bias": layer.query_global.bias,
            "k_bias": layer.key_global.bias,
            "v_bias": layer.value_global.bias,
        }
    )
    streams = (
        projection(x).unflatten(2, (HEADS, DIM)).transpose(1, 2)
        for projection in (layer.query, layer.key, layer.value)
    )
    return made.double()(*streams, x, mask=Mask(keep)).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("chosen", [(), (0,), (0, 5, 20), (31,)])
@pytest.mark.parametrize("pads", [0, 7])
def test_equals_transformers(chosen, pads):
    """Their softmax is in float32 whatever the inputs are; our key bias is none."""
    layer = transformers_layer(radius=4)
    x = torch.randn(2, 48, WIDTH, dtype=torch.float64)
    keep = torch.ones(2, 48, dtype=torch.bool)
    keep[1, 48 - pads :] = False
    is_global = torch.zeros_like(keep)
    is_global[:, list(chosen)] = True
    with torch.no_grad():
        expected, output = (
            call(layer, x, is_global, keep),
            sparing_output(layer, x, chosen, keep, 4),
        )
    torch.testing.assert_close(output[keep], expected[keep], rtol=1e-4, atol=1e-4)


def test_transformers_asks_for_multiples_of_the_window():
    """This is why we differ: any length works, and the window is the same at each."""
    layer = transformers_layer(radius=4)
    x = torch.randn(1, 45, WIDTH, dtype=torch.float64)
    keep, chosen = torch.ones(1, 45, dtype=torch.bool), torch.zeros(1, 45, dtype=torch.bool)
    with pytest.raises(AssertionError, match="multiple"):
        call(layer, x, chosen, keep)
    longer = torch.nn.functional.pad(x, (0, 0, 0, 3))
    padding = torch.arange(48)[None] < 45
    with torch.no_grad():
        expected = call(layer, longer, torch.zeros(1, 48, dtype=torch.bool), padding)[:, :45]
        output = sparing_output(layer, x, (), keep, 4)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("causal", [False, True])
def test_local_rows_equal_flex_attention(causal):
    radius, tokens, chosen = 20, 300, (0, 150)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, HEADS, tokens, DIM) for _ in "qkv")
    x = torch.zeros(2, tokens, HEADS * DIM)

    def window(b, h, i, j):
        near = (i - j).abs() <= radius
        return near & (j <= i) if causal else near

    def with_columns(b, h, i, j):
        column = (j == chosen[0]) | (j == chosen[1])
        return window(b, h, i, j) | (column & (j <= i) if causal else column)

    mask = Mask(causal=causal)
    heads = Heads(HEADS, DIM)
    made = mechanism("longformer", heads, radius=radius, global_tokens=chosen)
    for pattern, output in (
        (window, mechanism("window", heads, radius=radius)(q, k, v, mask=mask)),
        (with_columns, made(q, k, v, x, mask=mask)),
    ):
        blocks = create_block_mask(pattern, None, None, tokens, tokens, device="cpu")
        expected = flex_attention(q, k, v, block_mask=blocks)
        local = [i for i in range(tokens) if i not in chosen or pattern is window]
        torch.testing.assert_close(output[:, :, local], expected[:, :, local], rtol=1e-4, atol=1e-5)
