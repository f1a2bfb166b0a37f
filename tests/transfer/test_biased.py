"""MPNet and DeBERTa: the bias by distance is kept exactly, or dropped only on request."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import sparing
from sparing import Mask
from sparing.core.errors import CheckpointError
from sparing.testing.entries.local import dense_local
from sparing.testing.entries.strided import dense_strided
from sparing.testing.entries.window import dense_window
from sparing.transfer.biased import padding_of
from tests.transfer.families import OUTSIDE, build, inputs, output

TOLERANCE = 1e-10
PATTERNS = {
    "window": ({"radius": 2}, dense_window),
    "local": ({"block": 3, "look_back": 1}, dense_local),
    "strided": ({"stride": 3}, dense_strided),
}


def layer_of(model, index=0):
    attention = model.encoder.layer[index].attention
    return attention.attn if hasattr(attention, "attn") else attention.self


def pairs_seen(mechanism, reference, keep):
    """Which keys a query sees, read off the slow form: each key in turn is the only one with 1."""
    rows, tokens = keep.shape
    heads, dim = mechanism.heads.count, mechanism.heads.dim
    q = torch.zeros(rows, heads, tokens, dim, dtype=torch.float64)
    seen = torch.zeros(rows, tokens, tokens, dtype=torch.bool)
    for key in range(tokens):
        v = torch.zeros_like(q)
        v[:, :, key] = 1
        mixed = reference(mechanism, q, q, v, mask=Mask(keep))
        seen[:, :, key] = mixed[:, 0, :, 0] > 0
    return seen


def encoded(model, x, seen):
    """The encoder's result under an explicit square of pairs, by transformers alone."""
    square = seen[:, None]
    if model.config.model_type == "mpnet":
        square = torch.zeros_like(x[:, :1, :1, None]).masked_fill(~square, -1e30)
    return model.encoder(x, square)[0]


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("mechanism", PATTERNS)
@pytest.mark.parametrize("family", OUTSIDE)
@torch.no_grad()
def test_a_pattern_is_the_dense_layer_under_an_explicit_square(family, mechanism, padding):
    options, reference = PATTERNS[mechanism]
    model = build(family)
    x = torch.randn(2, 11, 32, dtype=torch.float64)
    keep = torch.ones(2, 11, dtype=torch.bool)
    if padding != "none":
        keep[1, 8:] = False
        keep[1] = keep[1].flip(0) if padding == "left" else keep[1]
    made = sparing.mechanism(mechanism, sparing.Heads(4, 8), **options)
    seen = pairs_seen(made, reference, keep)
    assert not bool(seen[0].all())
    expected = encoded(model, x, seen | torch.eye(11, dtype=torch.bool))
    sparing.swap(model, mechanism, **options)
    swapped = encoded(model, x, keep[:, None].expand(-1, 11, -1) & keep[:, :, None])
    torch.testing.assert_close(swapped[keep], expected[keep], rtol=TOLERANCE, atol=TOLERANCE)


@torch.no_grad()
def test_mpnets_layer_in_numpy():
    model = build("mpnet")
    x = torch.randn(1, 7, 32, dtype=torch.float64)
    bias = model.encoder.compute_position_bias(x)
    sparing.swap(model, "window", radius=3)
    layer = layer_of(model)
    mixed = layer(x, None, bias)[0].numpy()

    def streams(part):
        rows = x[0].numpy() @ part.weight.numpy().T + part.bias.numpy()
        return rows.reshape(7, 4, 8).transpose(1, 0, 2)

    q, k, v = (streams(part) for part in (layer.q, layer.k, layer.v))
    table = model.encoder.relative_attention_bias.weight.numpy()
    result = np.zeros((7, 4, 8))
    for head in range(4):
        for i in range(7):
            near = [j for j in range(7) if abs(i - j) <= 3]
            # without far distances a token ahead has the bucket 16 + distance
            buckets = [abs(i - j) + (16 if j > i else 0) for j in near]
            scores = [
                q[head, i] @ k[head, j] / np.sqrt(8) + table[bucket, head]
                for j, bucket in zip(near, buckets, strict=True)
            ]
            weights = np.exp(scores - np.max(scores))
            result[i, head] = weights @ v[head, near] / weights.sum()
    expected = result.reshape(7, 32) @ layer.o.weight.numpy().T + layer.o.bias.numpy()
    np.testing.assert_allclose(mixed[0], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("changes", [
    {"pos_att_type": ["c2p"], "share_att_key": False},
    {"pos_att_type": ["p2c"], "position_buckets": -1},
    {"pos_att_type": []},
    {"relative_attention": False, "position_biased_input": True},
    {"conv_kernel_size": 3},
])  # fmt: skip
@pytest.mark.parametrize("padding", ["none", "both"])
def test_all_forms_of_deberta(changes, padding):
    model, given = build("deberta-v2", **changes), inputs("deberta-v2", padding)
    before = output(model, given)
    sparing.swap(model, "softmax")
    torch.testing.assert_close(output(model, given), before, rtol=TOLERANCE, atol=TOLERANCE)


def test_without_relative_attention_any_mechanism_serves():
    model = build("deberta-v2", relative_attention=False, position_biased_input=True)
    report = sparing.swap(model, "linear")
    assert [layer.change for layer in report.swapped] == [""] * 3


@pytest.mark.parametrize("family", OUTSIDE)
@pytest.mark.parametrize("mechanism", ["linear", "linformer", "longformer", "kernel", "none"])
def test_a_mechanism_that_takes_no_bias_is_refused_by_name(family, mechanism):
    model, given = build(family), inputs(family)
    before = output(model, given)
    reason = f"adds a bias by distance to its scores, which {mechanism} cannot do: choose "
    with pytest.raises(sparing.Unsupported, match=f"no layer of this .*{reason}.*softmax.*drop"):
        sparing.swap(model, mechanism)
    name = r"layer 1 \(encoder\.layer\.1\.attention\.(attn|self)\) cannot be swapped: it "
    with pytest.raises(sparing.Unsupported, match=name + reason):
        sparing.swap(model, {"0": "softmax", "1": mechanism})
    assert torch.equal(output(model, given), before)
    assert not hasattr(model.config, "sparing")


@pytest.mark.parametrize("family", OUTSIDE)
@torch.no_grad()
def test_dropping_the_bias_is_attention_without_distances(family, tmp_path):
    changes = {"share_att_key": False} if family == "deberta-v2" else {}
    model, given = build(family, **changes), inputs(family)
    before, silent = output(model, given), copy.deepcopy(model)
    for name, parameter in silent.named_parameters():
        if "relative_attention_bias" in name or "pos_key" in name or "pos_query" in name:
            parameter.zero_()
    report = sparing.swap(model, "softmax", bias="drop")
    without = output(model, given)
    torch.testing.assert_close(without, output(silent, given), rtol=TOLERANCE, atol=TOLERANCE)
    assert (without - before).abs().max() > 1e-3
    assert "without its bias by distance" in str(report)
    unread = [name for layer in report.swapped for name in layer.unused]
    assert len(unread) == (6 if changes else 0)
    model.save_pretrained(tmp_path)
    assert torch.equal(output(sparing.load(tmp_path).double(), given), without)
    assert {row["bias"] for row in model.config.sparing["swap"]} == {"drop"}


def test_each_layer_of_a_plan_keeps_or_drops_its_own():
    model, given = build("mpnet"), inputs("mpnet")
    plan = {"0": "window", "1-": ("linformer", {"slots": 4, "bias": "drop"})}
    report = sparing.swap(model, plan)
    assert [layer.change.split()[0] for layer in report.swapped] == ["with", "without", "without"]
    assert ["bias" in row for row in model.config.sparing["swap"]] == [False, True, True]
    assert bool(output(model, given).isfinite().all())


def test_what_bias_may_be():
    with pytest.raises(sparing.UsageError, match="bias is 'droop', not one of keep, drop; did you"):
        sparing.swap(build("mpnet"), "linear", bias="droop")
    with pytest.raises(sparing.Unsupported, match=r"it adds no bias to its scores.*leave bias out"):
        sparing.swap(build("bert"), "linear", bias="drop")


def test_a_damaged_entry_is_named(tmp_path):
    model = build("mpnet")
    sparing.swap(model, "linear", bias="drop")
    model.config.sparing["swap"][1]["bias"] = "lose"
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="damaged layer"):
        sparing.load(tmp_path)


@pytest.mark.parametrize("family", OUTSIDE)
def test_saved_pickled_and_copied_models_are_equal(family, tmp_path):
    model, given = build(family), inputs(family, "both")
    sparing.swap(model, "window", layers="0-1", radius=2)
    before = output(model, given)
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    assert type(loaded) is type(model)
    for other in (loaded, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(output(other, given), before)
    sparing.unswap(loaded)
    kinds = {type(layer_of(loaded, index)) for index in range(3)}
    assert kinds == {type(layer_of(build(family)))}
    assert torch.equal(output(loaded, given), output(build(family), given))


@pytest.mark.parametrize("family", OUTSIDE)
def test_what_a_mechanism_cannot_give_comes_from_own_attention(family):
    model, given = build(family), inputs(family)
    weights = model(**given, output_attentions=True).attentions
    x = torch.randn(2, 6, 32, dtype=torch.float64)
    seen = torch.rand(2, 6, 6) > 0.4
    seen |= torch.eye(6, dtype=torch.bool)
    before = encoded(model, x, seen)
    sparing.swap(model, "window", radius=1)
    with pytest.warns(UserWarning, match="own attention: attention weights"):
        after = model(**given, output_attentions=True).attentions
    assert all(torch.equal(new, old) for new, old in zip(after, weights, strict=True))
    with pytest.warns(UserWarning, match=r"layer\.\d\.attention\.\w+ used .*a ready-made mask"):
        assert torch.equal(encoded(model, x, seen), before)


@pytest.mark.parametrize(
    ("family", "checkpointing"),
    # transformers recomputes no layer of MPNet
    [("mpnet", False), ("deberta-v2", False), ("deberta-v2", True)],
)
def test_gradients_are_those_of_the_dense_model(family, checkpointing):
    model, given = build(family), inputs(family)
    keep = given["attention_mask"].bool()
    swapped = copy.deepcopy(model)
    sparing.swap(swapped, "softmax", dropout=0.0)
    if checkpointing:
        # older releases have only the former name
        former = getattr(swapped, "gradient_checkpointing_enable", None)
        getattr(swapped, "activation_checkpointing_enable", former)()
        swapped.train()
        for part in swapped.modules():
            part.p = 0.0 if isinstance(part, torch.nn.Dropout) else getattr(part, "p", None)
    for one in (model, swapped):
        one(**given).last_hidden_state[keep].square().sum().backward()
    reached = 0
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            grad = swapped.get_parameter(name).grad
            torch.testing.assert_close(grad, parameter.grad, rtol=1e-8, atol=1e-8)
            reached += "rel" in name and bool(grad.abs().max() > 0)
    assert reached >= 1


@pytest.mark.parametrize("family", OUTSIDE)
def test_training_drops_weights_as_before(family):
    model, given = build(family), inputs(family)
    report = sparing.swap(model, "window", radius=3)
    assert [layer.options["dropout"] for layer in report.swapped] == [0.1] * 3
    model.train()
    first, second = (model(**given).last_hidden_state for _ in range(2))
    assert bool(first.isfinite().all())
    assert not torch.equal(first, second)
    first.square().mean().backward()
    assert (
        layer_of(model).get_parameter("q.weight" if family == "mpnet" else "query_proj.weight").grad
        is not None
    )


@pytest.mark.parametrize("family", OUTSIDE)
def test_mixed_precision_and_distance(family):
    model, given = build(family, dtype=torch.float32), inputs(family)
    report = sparing.swap(model, "softmax")
    assert report.distance([given]).output_error < 1e-5
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert bool(model(**given).last_hidden_state.isfinite().all())


def test_a_subclass_of_such_a_layer_is_not_taken_for_it():
    """Its own forward would be lost."""
    model = build("mpnet")

    class Own(type(layer_of(model))):
        pass

    for index in range(3):
        layer_of(model, index).__class__ = Own
    with pytest.raises(sparing.Unsupported, match="registry"):
        sparing.swap(model, "softmax")


def test_which_squares_are_padding():
    keep = torch.ones(2, 5, dtype=torch.bool)
    keep[1, 3:] = False
    both = keep[:, None, :, None] & keep[:, None, None]
    for square in (both, keep[:, None, None], keep[:, None, None].expand(-1, 1, 5, -1)):
        assert torch.equal(padding_of(square, 2).keep, keep)
    assert padding_of(torch.ones(1, 1, 5, 5, dtype=torch.bool), 2).keep is None
    assert padding_of(both.tril(), 2) is None
    assert padding_of(both.expand(-1, 4, -1, -1), 2) is None


@pytest.mark.parametrize("family", OUTSIDE)
def test_a_mask_is_read_once_for_all_layers(family, monkeypatch):
    from sparing.transfer import biased

    model, given, calls = build(family), inputs(family), []
    sparing.swap(model, "softmax")
    monkeypatch.setattr(biased, "padding_of", lambda *given: calls.append(1) or padding_of(*given))
    output(model, given)
    assert len(calls) == 1
    assert not biased._read


@pytest.mark.parametrize("mechanism", ["softmax", "window"])
@pytest.mark.parametrize("family", OUTSIDE)
def test_export_with_padding(family, mechanism, free_sizes):
    model, given = build(family), inputs(family)
    sparing.swap(model, mechanism, **({"radius": 3} if mechanism == "window" else {}))
    shapes = {name: {0: torch.export.Dim.AUTO} for name in given}
    exported = torch.export.export(model, (), given, dynamic_shapes=shapes).module()
    other = inputs(family, "both", batch=4)
    torch.testing.assert_close(
        output(exported, other), output(model, other), rtol=TOLERANCE, atol=TOLERANCE
    )
