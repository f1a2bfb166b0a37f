"""ModernBERT's sliding layers keep their window, unless a layer is named that is to lose it."""

from __future__ import annotations

import pytest
import torch

import sparing
from sparing.testing.entries.local import dense_local
from sparing.testing.entries.strided import dense_strided
from sparing.testing.entries.window import dense_window
from sparing.transfer.layers import find_layers
from tests.transfer.families import build, inputs, output, without_mechanisms
from tests.transfer.test_biased import pairs_seen

TOLERANCE = 1e-10
RADIUS = 2  # half of local_attention, as ModernBERT counts it
PATTERNS = {
    "window": ({"radius": 4}, dense_window),
    "local": ({"block": 3, "look_back": 1}, dense_local),
    "strided": ({"stride": 3}, dense_strided),
}


def near(tokens):
    places = torch.arange(tokens)
    return (places[:, None] - places).abs() <= RADIUS


def under(model, given, full, sliding):
    """The dense model's output under explicit squares, by transformers alone."""
    names = ("full_attention", "sliding_attention")
    masks = {name: seen[:, None] for name, seen in zip(names, (full, sliding), strict=True)}
    keep = given["attention_mask"].bool()
    with torch.no_grad():
        states = model(input_ids=given["input_ids"], attention_mask=masks).last_hidden_state
    return states[keep]


@pytest.mark.parametrize("padding", ["right", "both"])
@pytest.mark.parametrize("mechanism", PATTERNS)
def test_a_pattern_stays_within_the_window(mechanism, padding):
    """Cropped by the window in sliding layers, as it is in full ones."""
    options, reference = PATTERNS[mechanism]
    model, given = build("modernbert"), inputs("modernbert", padding)
    keep = given["attention_mask"].bool()
    made = sparing.mechanism(mechanism, sparing.Heads(4, 8), **options)
    seen = pairs_seen(made, reference, keep) | torch.eye(9, dtype=torch.bool)
    expected = under(model, given, seen, seen & near(9))
    assert (expected - under(model, given, seen, seen)).abs().max() > 1e-3
    report = sparing.swap(model, mechanism, **options)
    assert [layer.index for layer in report.swapped] == [0, 1, 2]
    assert [layer.change for layer in report.swapped] == [
        "",
        f"within its window of {RADIUS} tokens each way",
        "",
    ]
    torch.testing.assert_close(output(model, given), expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_a_wide_window_is_narrowed_to_the_layers():
    report = sparing.swap(build("modernbert"), "window")
    assert [layer.options["radius"] for layer in report.swapped] == [128, RADIUS, 128]
    report = sparing.swap(build("modernbert"), "window", radius=1)
    assert [layer.options["radius"] for layer in report.swapped] == [1, 1, 1]


def test_without_names_other_mechanisms_leave_sliding_layers(tmp_path):
    model, given = build("modernbert"), inputs("modernbert")
    report = sparing.swap(model, "linear")
    assert [layer.index for layer in report.swapped] == [0, 2]
    assert "within a sliding window of 2 tokens each way, which linear" in report.left[0].reason
    assert "softmax, strided or window" in report.left[0].reason
    assert [layer["layer"] for layer in model.config.sparing["swap"]] == [0, 2]
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    torch.testing.assert_close(output(loaded, given), output(model, given), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("choice", [("uniform", [1]), ({"1": "uniform"}, None)])
def test_a_named_layer_may_see_beyond_its_window(choice, tmp_path):
    model, given = build("modernbert"), inputs("modernbert")
    report = sparing.swap(model, *choice)
    assert f"1: uniform(tokens=40), beyond its window of {RADIUS} tokens each way" in str(report)
    before = output(model, given)
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    torch.testing.assert_close(output(loaded, given), before, rtol=1e-12, atol=1e-12)
    # a far token matters in the layer now: its mean is over all of them
    x = torch.randn(1, 9, 32, dtype=torch.float64)
    layer, mask = model.layers[1].attn.sparing, sparing.Mask()
    streams = x.view(1, 9, 4, 8).transpose(1, 2)
    mixed = layer(*(streams for _ in layer.streams), mask=mask)
    torch.testing.assert_close(mixed, streams.mean(2, keepdim=True).expand_as(mixed))


@pytest.mark.parametrize("mechanism", ["softmax", "eager"])
def test_a_layer_that_is_swapped_alone_keeps_its_window(mechanism):
    model, given = build("modernbert"), inputs("modernbert", "both")
    before = output(model, given)
    report = sparing.swap(model, mechanism, layers=[1])
    assert report.swapped[0].change.startswith("within its window")
    torch.testing.assert_close(output(model, given), before, rtol=TOLERANCE, atol=TOLERANCE)
    with without_mechanisms(model):
        assert torch.equal(output(model, given), before)


def test_training_and_a_ready_made_mask():
    model, given = build("modernbert", attention_dropout=0.2), inputs("modernbert")
    seen = near(9).expand(3, -1, -1)
    expected = under(model, given, seen, seen)
    sparing.swap(model, "window")
    with pytest.warns(UserWarning, match="ready-made"):
        assert torch.equal(under(model, given, seen, seen), expected)
    first, second = (model.train()(**given).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)
    first.square().mean().backward()
    assert model.layers[1].attn.Wqkv.weight.grad.abs().max() > 0


def test_windows_of_the_past_are_left():
    model = build("llama")
    assert {layer.window for layer in find_layers(model)} == {None}
    import transformers

    from tests.transfer.families import SIZES

    config = transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=3)
    mistral = transformers.MistralForCausalLM(config)
    with pytest.raises(sparing.Unsupported, match="sliding window of its own"):
        sparing.swap(mistral, "window")
