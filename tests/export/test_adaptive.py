"""An adaptive model's segments, exported, answer as the model itself does."""

from __future__ import annotations

import dataclasses

import torch
from transformers import BertConfig, BertForSequenceClassification

from sparing.export.engine import Chain
from sparing.export.folder import export_chain, open_chain
from sparing.export.int8 import quantisable_layers
from sparing.layers.plan import narrowed
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import segments
from tests.export.segments import TOKENS, VOCABULARY, texts
from tests.transfer.classifiers import dense, images


def adaptive():
    """A random model of two layers with an exit between."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=TOKENS,
        num_labels=3,
        initializer_range=0.3,
    )
    return adapt(BertForSequenceClassification(config).eval(), exits=[1])


def test_tokens_that_a_narrowed_segment_drops_are_missing_in_the_next(tmp_path):
    model = adaptive()
    plan = narrowed(model.encoder.sizes, 0.5)
    model.plan = dataclasses.replace(
        plan, exits=(1,), threshold=0.6, tokens_kept=0.6, tokens_after=1
    )
    paths = export_chain(
        segments(model), texts(2, 8), tmp_path, threshold=model.plan.threshold, longest=TOKENS
    )
    inputs = texts()
    with torch.no_grad():
        expected = model(**inputs)
    logits, left = open_chain(tmp_path)(inputs)
    assert left.tolist() == (expected.layers - 1).tolist()
    assert 0 < int(left.sum()) < len(left)
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-5)
    parts = ["projection", "output", "rise", "fall"]
    reached = quantisable_layers(paths)
    for number in (0, 1):
        assert [f"{number}.layers.0.{part}" for part in parts] == [
            name for name in reached if name.startswith(f"{number}.layers")
        ]


def test_patches_are_averaged_in_the_exported_segments(tmp_path):
    small = dense("clip", dtype=torch.float32, patch_size=2, num_hidden_layers=2)
    model = adapt(small, exits=[1])
    given = {"pixel_values": images(8)["pixel_values"].float()}
    plan = dataclasses.replace(model.plan, tokens_kept=0.6, tokens_after=1, exits=(1,))
    rows, layout = model.embed(**given)
    early = model.encoder.trace(rows, layout, plan).answers[1].detach().softmax(-1).amax(-1)
    threshold = float(early.sort().values[3:5].mean())
    model.plan = dataclasses.replace(plan, threshold=threshold)
    sample = {"pixel_values": given["pixel_values"][:2]}
    export_chain(segments(model), sample, tmp_path, threshold=threshold)
    with torch.no_grad():
        expected = model(**given)
    logits, left = open_chain(tmp_path)(given)
    assert left.tolist() == [0 if layer == 1 else 1 for layer in expected.layers.tolist()]
    assert int(left.sum()) == 4
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)


def test_a_learned_confidence_is_exported_and_decides(tmp_path):
    model, inputs = adaptive(), texts()
    model.encoder.add_confidences((1,))
    with torch.no_grad():
        head = model.encoder.confidence_head(1)
        head.linear.weight.normal_(std=0.3)
    plan = narrowed(model.encoder.sizes, 0.5)
    plan = dataclasses.replace(plan, exits=(1,), threshold=0.5, confidence="learned")
    model.plan = plan
    with torch.no_grad():
        expected = model(**inputs)
    modules = segments(model)
    export_chain(modules, texts(2, 8), tmp_path, threshold=0.5, longest=TOKENS)
    for chain in (open_chain(tmp_path), Chain(modules, 0.5, longest=TOKENS)):
        logits, left = chain(inputs)
        assert left.tolist() == (expected.layers - 1).tolist()
        assert 0 < int(left.sum()) < len(left)
        torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-5)
        for number, exit_index in enumerate(left.tolist()):
            keep = inputs["attention_mask"][number].bool()
            one = {name: value[number, keep][None] for name, value in inputs.items()}
            assert chain(one)[1].tolist() == [exit_index]
    model.plan = dataclasses.replace(plan, confidence="softmax")
    with torch.no_grad():
        by_probability = model(**inputs)
    assert by_probability.layers.tolist() != expected.layers.tolist()
