"""The counter against closed forms, against unfused attention and against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from sparing.core.catalogue import mechanism
from sparing.core.heads import Heads
from sparing.core.mask import Mask
from sparing.core.workload import Workload
from sparing.layers.attention import Attention
from sparing.measure.flops import ModelFlops, _fused_formulas, count_flops, model_flops
from sparing.measure.steps import count_steps

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 10, 14, 8
PRODUCT = 2 * BATCH * HEADS * QUERIES * KEYS * DIM


def streams(queries=QUERIES, keys=KEYS, *, gradients=False):
    shapes = ((queries, DIM), (keys, DIM), (keys, DIM))
    return [torch.randn(BATCH, HEADS, *shape, requires_grad=gradients) for shape in shapes]


def attend(q, k, v, **options):
    return F.scaled_dot_product_attention(q, k, v, **options)


def test_fused_attention_counts_as_the_unfused_does():
    q, k, v = streams()
    assert count_flops(lambda: attend(q, k, v)) == 2 * PRODUCT
    with sdpa_kernel(SDPBackend.MATH):
        assert count_flops(lambda: attend(q, k, v)) == 2 * PRODUCT
    with FlopCounterMode(display=False) as plain:
        attend(q, k, v)
    assert plain.get_total_flops() == 0, "the trap is gone: this module could become simpler"


def test_the_backward_pass_counts_with_the_scores_computed_again():
    q, k, v = streams(gradients=True)
    fused = count_flops(lambda: attend(q, k, v).sum().backward())
    with sdpa_kernel(SDPBackend.MATH):
        unfused = count_flops(lambda: attend(q, k, v).sum().backward())
    assert unfused == 6 * PRODUCT
    assert fused == unfused + PRODUCT


@pytest.mark.parametrize(("queries", "keys"), [(10, 10), (6, 10), (10, 6), (1, 5)])
def test_causal_counts_what_is_visible(queries, keys):
    q, k, v = streams(queries, keys)
    visible = int(torch.ones(queries, keys).tril().sum())
    counted = count_flops(lambda: attend(q, k, v, is_causal=True))
    assert counted == 4 * BATCH * HEADS * visible * DIM


def test_a_mask_given_as_a_tensor_hides_nothing_from_the_kernel():
    q, k, v = streams()
    mask = torch.ones(QUERIES, KEYS).tril().bool()
    assert count_flops(lambda: attend(q, k, v, attn_mask=mask)) == 2 * PRODUCT


def test_grouped_keys_count_by_the_queries():
    q = torch.randn(1, 4, 6, 8)
    k = v = torch.randn(1, 2, 6, 8)
    counted = count_flops(lambda: attend(q, k, v, enable_gqa=True))
    assert counted == 4 * 4 * 6 * 6 * 8


def test_every_fused_operator_of_this_pytorch_has_a_formula():
    names = {str(op) for op in _fused_formulas()}
    known = {
        f"aten.{name}" for name in dir(torch.ops.aten) if name.startswith("_scaled_dot_product_")
    }
    known |= {
        "aten." + schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::_scaled_dot_product_")
        and "attention_math" not in schema.name.removesuffix("_for_mps")
    }
    quantised_or_composite = {
        name for name in known if "quantized" in name or name.endswith("_math")
    }
    assert known - quantised_or_composite <= names


@pytest.mark.parametrize("name", ["softmax", "eager"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_mechanisms_closed_form_is_what_is_counted(name, causal):
    built = mechanism(name, Heads(HEADS, DIM))
    q, k, v = streams(QUERIES, QUERIES)
    work = Workload(BATCH, HEADS, QUERIES, QUERIES, DIM, causal=causal)
    counted = count_flops(lambda: built(q, k, v, mask=Mask(causal=causal)))
    assert counted == built.cost(work).matmul_flops


class Layers(nn.Module):
    """Two attention layers with a feed-forward between, and a batched product of parameters."""

    def __init__(self, name):
        super().__init__()
        self.first = Attention(24, 3, name)
        self.between = nn.Linear(24, 24)
        self.experts = nn.Parameter(torch.randn(2, 24, 24))
        self.second = Attention(24, 3, name)

    def forward(self, x):
        x = self.between(self.first(x))
        return self.second(torch.bmm(x, self.experts))


@pytest.mark.parametrize("name", ["softmax", "eager"])
def test_a_model_splits_into_attention_and_the_rest(name):
    model = Layers(name)
    x = torch.randn(2, 10, 24)
    flops = model_flops(model, {"x": x})
    product = 2 * 2 * 3 * 10 * 10 * 8
    assert flops.attention == 2 * 2 * product
    assert flops.other == 10 * (2 * 2 * 10 * 24 * 24)
    assert flops.total == count_flops(lambda: model(x))


def test_mechanisms_count_by_their_form_and_not_by_what_they_execute():
    model = Layers("softmax")
    plain = model_flops(model, {"x": torch.randn(2, 10, 24)})
    causal = Attention(24, 3)
    flops = model_flops(causal, {"x": torch.randn(2, 10, 24), "mask": Mask(causal=True)})
    assert flops.attention == 4 * 2 * 3 * 55 * 8
    assert plain.total == plain.attention + plain.other


def test_the_mode_and_the_hooks_are_as_before():
    model = Layers("softmax")
    model.first.eval()
    model_flops(model, {"x": torch.randn(2, 10, 24)})
    assert model.training
    assert not model.first.training
    assert model.second.training
    assert not model.first.mechanism._forward_hooks
    assert not model.first.mechanism._forward_pre_hooks


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_transformers_own_attention_is_the_same_fused_or_not(implementation):
    torch.manual_seed(0)
    config = BertConfig(**SIZES, intermediate_size=64, attn_implementation=implementation)
    inputs = {"input_ids": torch.randint(0, 50, (3, 12))}
    flops = model_flops(BertModel(config), inputs)
    core = 2 * 4 * 3 * 12 * 12 * 32
    linear = 2 * (2 * 3 * 12 * (4 * 32 * 32 + 2 * 32 * 64)) + 2 * 3 * 32 * 32
    assert flops == ModelFlops(core + linear, core, linear)


def test_a_fused_causal_decoder_counts_half_of_the_square():
    config = GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=16, attn_implementation="sdpa"
    )
    flops = model_flops(GPT2Model(config), {"input_ids": torch.randint(0, 50, (3, 12))})
    assert flops.attention == 2 * 4 * 3 * (12 * 13 // 2) * 32


def test_layers_that_run_as_one_operator_are_counted():
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    recurrent = torch.nn.LSTM(16, 32).eval()
    x, steps = torch.randn(2, 32, 64), torch.randn(5, 3, 16)
    with torch.no_grad():
        layer_flops, recurrent_flops = (
            count_flops(lambda: layer(x)),
            count_flops(lambda: recurrent(steps)),
        )
    linear = 2 * 2 * 32 * (4 * 64 * 64 + 2 * 64 * 128)
    assert layer_flops == linear + 2 * 2 * (2 * 32 * 32 * 64)
    assert recurrent_flops == 2 * 5 * 3 * 4 * 32 * (16 + 32)
    with torch.no_grad():
        assert sum(step.flops for step in count_steps(lambda: layer(x))) == layer_flops
    assert model_flops(layer, {"src": x}).total == layer_flops
    assert model_flops(recurrent, {"input": steps}).total == recurrent_flops
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mkldnn.enabled
