"""What passes between transformers and a mechanism: masks, caches, the layer's input."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import sparing
from tests.transfer.families import DECODERS, SIZES, build, inputs, output

TOLERANCE = 1e-10


def _pads_matter(model, given):
    """Whether other content in the padded slots changes anything at real tokens."""
    before = output(model, given)
    pads = given["attention_mask"] == 0
    other = {**given, "input_ids": given["input_ids"].where(~pads, 2)}
    return (output(model, other) - before).abs().max() > 1e-6


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_a_function_registered_without_a_mask_function_sees_no_mask(family, monkeypatch):
    """The trap: transformers passes such a function no mask, in silence."""
    model, given = build(family), inputs(family, "both")
    sparing.swap(model, "softmax")
    assert not _pads_matter(model, given)
    monkeypatch.delitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "sparing")
    assert _pads_matter(model, given)


@pytest.mark.parametrize("mechanism", ["softmax", "window"])
@pytest.mark.parametrize("family", DECODERS)
def test_generate_with_the_cache(family, mechanism):
    """Token for token what transformers' own attention gives under the dense mask."""
    model = build(family)
    options = {"radius": 3} if mechanism == "window" else {}
    prompt = torch.randint(3, 50, (2, 6), generator=torch.Generator().manual_seed(4))
    keep = torch.ones(2, 6, dtype=torch.long)
    keep[1, :2] = 0
    steps = 8
    expected = _greedy(model, prompt, keep, steps, options.get("radius"))
    sparing.swap(model, mechanism, **options)
    for use_cache in (True, False):
        tokens = model.generate(
            prompt,
            attention_mask=keep,
            max_new_tokens=steps,
            do_sample=False,
            use_cache=use_cache,
            pad_token_id=0,
        )
        assert torch.equal(tokens, expected)
    assert expected[:, 6:].unique().numel() > 2


@torch.no_grad()
def _greedy(model, tokens, keep, steps, radius):
    """Greedy decoding by full passes under a dense mask: causal, padded and perhaps banded."""
    for _ in range(steps):
        indices = torch.arange(tokens.shape[1])
        distance = indices[:, None] - indices
        allowed = (distance >= 0) & (distance <= (radius if radius is not None else 999))
        allowed = allowed & keep.bool()[:, None, None, :]
        # rows of pads see themselves: no kernel gives NaN then, and nothing reads them
        allowed = allowed | torch.eye(len(indices), dtype=torch.bool)
        positions = (keep.cumsum(1) - 1).clamp(min=0)
        logits = model(
            tokens, attention_mask=allowed, position_ids=positions, use_cache=False
        ).logits
        tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)
        keep = torch.cat([keep, keep.new_ones(len(keep), 1)], 1)
    return tokens


@pytest.mark.parametrize("family", DECODERS)
def test_a_cache_with_room_for_more_is_cut_to_what_is_filled(family):
    model = build(family)
    prompt = inputs(family, "none")["input_ids"]
    expected = model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
    sparing.swap(model, "softmax")
    tokens = model.generate(
        prompt,
        max_new_tokens=4,
        do_sample=False,
        pad_token_id=0,
        cache_implementation="static",
        disable_compile=True,
    )
    assert torch.equal(tokens, expected)


@pytest.mark.parametrize("mechanism", ["linear", "kerformer"])
def test_causal_mechanisms_decode_with_the_cache_as_without(mechanism):
    model = build("llama")
    sparing.swap(model, mechanism)
    prompt = inputs("llama", "none")["input_ids"]
    with_cache, without = (
        model.generate(
            prompt, max_new_tokens=5, do_sample=False, pad_token_id=0, use_cache=use_cache
        )
        for use_cache in (True, False)
    )
    assert torch.equal(with_cache, without)


def test_a_reader_of_the_input_cannot_decode_with_a_cache():
    model = build("gpt2")
    sparing.swap(model, "tests.transfer.reader")
    prompt = inputs("gpt2", "none")["input_ids"]
    model.generate(prompt, max_new_tokens=2, do_sample=False, pad_token_id=0, use_cache=False)
    with pytest.raises(sparing.Unsupported, match=r"reader got 1 queries and 10 keys.*use_cache"):
        model.generate(prompt, max_new_tokens=2, do_sample=False, pad_token_id=0, use_cache=True)


def test_the_layers_input_is_captured_and_let_go():
    model, given = build("bert"), inputs("bert")
    report = sparing.swap(model, "tests.transfer.reader", layers=[0])
    layer = model.get_submodule(report.swapped[0].name)
    tensors = []
    layer.register_forward_pre_hook(lambda _, args: tensors.append(args[0]))
    layer.register_forward_hook(lambda _, args, result: tensors.append(result[0]))
    output(model, given)
    queries = layer.query(tensors[0])
    with_gain = tensors[1]
    layer.sparing.gain = 0.0
    output(model, given)
    keep = given["attention_mask"].bool()
    torch.testing.assert_close(
        (with_gain - tensors[3])[keep], queries[keep], rtol=1e-10, atol=1e-10
    )
    assert layer.sparing_state.inputs == {}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_reaches_new_and_old_parameters(checkpointing):
    model, given = build("bert"), inputs("bert")
    sparing.swap(model, "tests.transfer.reader")
    model.train()
    if checkpointing:
        # older releases have only the former name
        former = getattr(model, "gradient_checkpointing_enable", None)
        getattr(model, "activation_checkpointing_enable", former)()
    model(**given, labels=given["input_ids"]).loss.backward()
    for name in ("query.weight", "sparing.projection"):
        gradient = model.get_parameter(f"bert.encoder.layer.0.attention.self.{name}").grad
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0


def test_what_cannot_be_honoured_is_refused_at_the_call():
    model = build("bert")
    report = sparing.swap(model, "softmax")
    layer = model.get_submodule(report.swapped[0].name)
    hidden = torch.randn(1, 4, 32, dtype=torch.float64)
    with pytest.raises(sparing.Unsupported, match=r"layer\.0\.attention\.self.*softcap"):
        layer(hidden, softcap=30.0)
    layer(hidden, softcap=None)


def test_the_name_alone_is_not_enough():
    config = transformers.BertConfig(**SIZES, attn_implementation="sparing")
    model = transformers.BertModel(config)
    with pytest.raises(sparing.UsageError, match=r"call sparing\.swap"):
        model(torch.ones(1, 3, dtype=torch.long))


def test_the_attention_of_a_layer_called_by_itself_follows_the_layer():
    """Without any mask the layer says whether it is causal."""
    model = build("llama")
    layer = model.model.layers[0].self_attn
    hidden = torch.randn(1, 5, 32, dtype=torch.float64)
    rotations = model.model.rotary_emb(hidden, torch.arange(5)[None])
    before = layer(hidden, position_embeddings=rotations)[0]
    sparing.swap(model, "softmax")
    after = layer(hidden, position_embeddings=rotations)[0]
    torch.testing.assert_close(after, before, rtol=TOLERANCE, atol=TOLERANCE)
