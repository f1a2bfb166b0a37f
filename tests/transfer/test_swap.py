"""Swapped to softmax nothing changes; what is not swapped stays transformers' own, bit for bit."""

from __future__ import annotations

import copy
import gc
import threading

import pytest
import torch
import transformers

import sparing
from sparing import Mask
from sparing.transfer.registry import HandedMask
from sparing.transfer.swap import is_swapped
from tests.transfer.families import (
    FAMILIES,
    build,
    configuration,
    inputs,
    output,
    without_mechanisms,
)

TOLERANCE = 1e-10
# transformers' eager attention takes these families' softmax in float32, in any precision
ROUNDED = {"modernbert", "vit", "deit", "llama"}
# In float64 transformers' eager attention gives NaN for queries that see no key, hence right pads.
CASES = [("sdpa", "both"), ("sdpa", "none"), ("eager", "right"), ("eager", "none")]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("attention", "padding"), CASES)
def test_softmax_changes_nothing_and_own_attention_is_bitwise_the_same(family, attention, padding):
    model, given = build(family, attention), inputs(family, padding)
    before = output(model, given)
    sparing.swap(model, "softmax")
    near = 1e-4 if attention == "eager" and family in ROUNDED else TOLERANCE
    torch.testing.assert_close(output(model, given), before, rtol=near, atol=near)
    with without_mechanisms(model):
        assert torch.equal(output(model, given), before)
    sparing.unswap(model)
    assert torch.equal(output(model, given), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_eager_and_softmax_agree_inside_a_model(family):
    model, given = build(family), inputs(family)
    sparing.swap(model, "softmax")
    fused = output(model, given)
    sparing.swap(model, "eager")
    torch.testing.assert_close(output(model, given), fused, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_test_would_see_a_lost_mask():
    model, given = build("bert"), inputs("bert")
    before = output(model, given)
    keep = given.pop("attention_mask")
    given_without = model(**given)["logits"][keep.bool()]
    assert (given_without - before).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_nothing_quadratic_is_built_unless_a_layer_asks(family, monkeypatch):
    model, given = build(family), inputs(family)
    before = output(model, given)
    calls = []
    build_dense = HandedMask.dense

    def count(self, attention):
        calls.append(attention.name)
        return build_dense(self, attention)

    monkeypatch.setattr(HandedMask, "dense", count)
    sparing.swap(model, "softmax")
    output(model, given)
    assert calls == []
    sparing.swap(model, "softmax", layers=[0])
    torch.testing.assert_close(output(model, given), before, rtol=TOLERANCE, atol=TOLERANCE)
    assert calls == ["sdpa", "sdpa"]


def test_a_mask_is_built_once_for_all_layers_that_ask():
    calls = []

    def build_mask(**_):
        calls.append(1)
        return torch.ones(1)

    from sparing.transfer.registry import Own

    attention = Own("sdpa", lambda: None, build_mask)
    mask = HandedMask(None, None, {})
    assert mask.dense(attention) is mask.dense(attention)
    assert len(calls) == 1


def test_bart_swaps_its_encoder_alone():
    model = build("bart")
    report = sparing.swap(model, "softmax")
    assert [layer.name for layer in report.swapped] == [
        f"model.encoder.layers.{number}.self_attn" for number in range(2)
    ]
    reasons = {layer.name: layer.reason for layer in report.left}
    assert "decoder" in reasons["model.decoder.layers.0.self_attn"]
    assert "cross" in reasons["model.decoder.layers.0.encoder_attn"]
    with pytest.raises(sparing.Unsupported, match=r"layer 2 .*decoder\.layers\.0.*decoder"):
        sparing.swap(model, "softmax", layers=[2])


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_other_scalings_are_honoured(family):
    changes = {"scale_attn_by_inverse_layer_idx": True} if family == "gpt2" else {}
    model, given = build(family, **changes), inputs(family)
    if family == "llama":
        for layer in model.model.layers:
            layer.self_attn.scaling = 0.7
    before = output(model, given)
    sparing.swap(model, "softmax")
    torch.testing.assert_close(output(model, given), before, rtol=TOLERANCE, atol=TOLERANCE)


def test_gpt2_keeps_its_upcast_attention_where_it_is_not_swapped():
    model = build("gpt2", "eager", torch.bfloat16, reorder_and_upcast_attn=True)
    given = inputs("gpt2")
    before = output(model, given)
    plain = build("gpt2", "eager", torch.bfloat16)
    assert not torch.equal(output(plain, given), before)
    sparing.swap(model, "softmax", layers=[1])
    with without_mechanisms(model):
        assert torch.equal(output(model, given), before)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_sequences_use_own_attention_and_say_so(attention):
    model = build("llama", attention)
    given = {"input_ids": torch.randint(3, 50, (1, 8)), "use_cache": False}
    given["position_ids"] = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    before = output(model, given)
    sparing.swap(model, "softmax")
    with pytest.warns(UserWarning, match="own attention: .*packed"):
        assert torch.equal(output(model, given), before)


def test_a_ready_made_mask_uses_own_attention_and_says_so():
    model, given = build("bert"), inputs("bert", "none")
    given["attention_mask"] = torch.rand(3, 1, 9, 9) > 0.3
    before = output(model, given)
    sparing.swap(model, "softmax")
    with pytest.warns(UserWarning, match="own attention: .*ready-made"):
        assert torch.equal(output(model, given), before)
    sparing.swap(model, "tests.transfer.reader")
    with pytest.warns(UserWarning, match="own attention: .*ready-made"):
        assert torch.equal(output(model, given), before)
    assert model.bert.encoder.layer[0].attention.self.sparing_state.inputs == {}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_attention_weights_come_from_own_attention(family):
    model, given = build(family, "eager"), inputs(family)
    before = model(**given, output_attentions=True).attentions
    sparing.swap(model, "softmax")
    with pytest.warns(UserWarning, match="attention weights"):
        after = model(**given, output_attentions=True).attentions
    assert len(after) == 3
    assert all(torch.equal(new, old) for new, old in zip(after, before, strict=True))


def test_a_second_model_of_the_same_configuration_is_untouched():
    config = configuration("bert")
    kind = transformers.BertForMaskedLM
    first, second = kind(config).double().eval(), kind(config).double().eval()
    given = inputs("bert")
    before = output(second, given)
    sparing.swap(first, "linear")
    assert config._attn_implementation == "sdpa"
    assert not hasattr(config, "sparing")
    assert second.config is config
    assert first.bert.encoder.layer[0].attention.self.config is first.config
    assert torch.equal(output(second, given), before)


def test_swapping_again_replaces_and_unswap_restores():
    model, given = build("bert"), inputs("bert")
    before, names = output(model, given), list(model.state_dict())
    sparing.swap(model, "kerformer")
    assert any(".sparing." in name for name in model.state_dict())
    report = sparing.swap(model, "linear", layers=[1])
    assert [layer.index for layer in report.swapped] == [1]
    assert not any(".sparing." in name for name in model.state_dict())
    changed = output(model, given)
    assert (changed - before).abs().max() > 1e-4
    sparing.unswap(model)
    assert torch.equal(output(model, given), before)
    assert list(model.state_dict()) == names
    assert not hasattr(model.config, "sparing")
    assert model.config._attn_implementation == "sdpa"
    sparing.unswap(model)  # of a model that is not swapped: nothing
    assert torch.equal(output(model, given), before)
    with pytest.raises(sparing.UsageError, match="needs a transformers model; got Linear"):
        sparing.unswap(torch.nn.Linear(2, 2))


def test_a_failed_swap_changes_nothing():
    model, given = build("bert"), inputs("bert")
    sparing.swap(model, "linear")
    before = output(model, given)
    with pytest.raises(sparing.UsageError, match="radius"):
        sparing.swap(model, "window", radius=-1)
    assert torch.equal(output(model, given), before)


def test_a_copy_of_a_swapped_model_stands_alone():
    model, given = build("bert"), inputs("bert")
    sparing.swap(model, "tests.transfer.reader")
    before = output(model, given)
    second = copy.deepcopy(model)
    sparing.unswap(model)
    assert torch.equal(output(second, given), before)
    sparing.unswap(second)
    assert torch.equal(output(second, given), output(model, given))


def test_a_plan_gives_each_layer_its_own():
    model, given = build("bert"), inputs("bert")
    report = sparing.swap(model, {"0": ("window", {"radius": 2}), "1-": "softmax"})
    assert [layer.mechanism for layer in report.swapped] == ["window", "softmax", "softmax"]
    assert model.bert.encoder.layer[0].attention.self.sparing.radius == 2
    planned = output(model, given)
    sparing.swap(model, "window", layers=0, radius=2)
    torch.testing.assert_close(planned, output(model, given), rtol=TOLERANCE, atol=TOLERANCE)


def test_mechanisms_that_read_the_layers_input_train_in_mixed_precision():
    model, given = build("bert", dtype=torch.float32), inputs("bert")
    sparing.swap(model, "adaptive")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model.train()(**given)
    assert bool(output.logits.isfinite().all())


def test_each_layer_draws_its_own_and_keeps_it(tmp_path):
    model = build("bert")
    report = sparing.swap(model, "bigbird", block=4, random_blocks=1, seed=3)
    assert [row.options["seed"] for row in report.swapped] == [3, 1003, 2003]
    model.save_pretrained(tmp_path / "saved")
    given = inputs("bert", "right")
    torch.testing.assert_close(
        output(sparing.load(tmp_path / "saved").double().eval(), given), output(model, given)
    )


def test_a_swap_that_fails_leaves_an_earlier_one():
    model = build("bert")
    sparing.swap(model, "window", radius=2)
    with pytest.raises(sparing.UsageError):
        sparing.swap(model, "window", radius=-1)
    assert is_swapped(model)


def test_decoders_keep_no_squares_of_the_lengths_they_saw():
    model = build("gpt2")
    sparing.swap(model, "eager")
    before = {id(item) for item in gc.get_objects() if isinstance(item, Mask) and item._opened}
    for tokens in (3, 5, 8):
        model(input_ids=torch.ones(1, tokens, dtype=torch.long))
    gc.collect()
    held = [item for item in gc.get_objects() if isinstance(item, Mask) and item._opened]
    assert {id(mask) for mask in held} <= before


@pytest.mark.parametrize("mechanism", ["longformer", "lisa"])
def test_threads_do_not_read_each_others_inputs(mechanism):
    model = build("bert")
    sparing.swap(model, mechanism)
    layer = next(m for m in model.modules() if "sparing_state" in vars(m))
    state, gate, received = layer.sparing_state, threading.Barrier(2), {}

    def visit(name):
        state.note(torch.full((1,), float(name)))
        gate.wait()
        received[name] = float(state.take())

    threads = [threading.Thread(target=visit, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == {0: 0.0, 1: 1.0}
    assert state.take() is None


def test_reports_of_deep_models_print_in_forty_lines():
    size = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 20}
    config = transformers.BertConfig(num_hidden_layers=60, **size)
    deep = transformers.BertForSequenceClassification(config)
    pruned = sparing.prune(deep, {index: [0] for index in range(60)})
    plan = {str(index): ("window", {"radius": index + 1}) for index in range(60)}
    for report in (pruned, sparing.swap(deep, plan)):
        lines = str(report).splitlines()
        assert len(lines) == 40
        assert lines[-1].startswith("... and ")
