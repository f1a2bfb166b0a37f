"""A folded DeBERTa-v2 beside transformers' own, to 1e-10: every shape, pad and length."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position

import sparing
from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.folding.fold import fold_for_phone, fold_obstacle, is_folded
from sparing.transfer.folding.positions import Buckets, positions_of

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "initializer_range": 0.5,
}
VARIANTS = {
    "v3": {},
    "separate keys": {"share_att_key": False},
    "c2p": {"pos_att_type": ["c2p"]},
    "p2c": {"pos_att_type": ["p2c"], "share_att_key": False},
    "no buckets": {"position_buckets": -1, "max_relative_positions": 16},
    "own longest": {"max_relative_positions": 12},
    "plain embeddings": {"norm_rel_ebd": "none"},
    "xlarge": {"conv_kernel_size": 3, "conv_act": "gelu"},
    "v1 inputs": {"position_biased_input": True, "type_vocab_size": 2},
}
SMALL = {name: SHAPE[name] for name in SHAPE if name.startswith(("vocab", "hidden_size", "num"))}
LENGTHS = (1, 2, 3, 5, 9, 10, 17, 40)


def build(kind=transformers.DebertaV2Model, seed=0, **changes):
    torch.manual_seed(seed)
    model = kind(transformers.DebertaV2Config(**{**SHAPE, **changes})).eval().double()
    with torch.no_grad():
        for weight in model.parameters():  # no bias or norm is trivial
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def texts(tokens, batch=3):
    """Pads at the right, at the left and in the middle."""
    generator = torch.Generator().manual_seed(tokens)
    ids = torch.randint(1, SHAPE["vocab_size"], (batch, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, (tokens + 1) // 2 :] = 0
    mask[2, : tokens // 3] = 0
    mask[0, tokens // 2 : tokens // 2 + 1] = int(tokens < 4)
    return {"input_ids": ids, "attention_mask": mask}


def both(**changes):
    plain = build(**changes)
    folded = copy.deepcopy(plain)
    sparing.fold(folded)
    return plain, folded


def difference(plain, folded, given, **how):
    """The largest difference of any hidden state, pads included."""
    with torch.no_grad():
        expected = plain(**given, output_hidden_states=True, **how).hidden_states
        got = folded(**given, output_hidden_states=True, **how).hidden_states
    return max(float((a - b).abs().max()) for a, b in zip(expected, got, strict=True))


def uses_constants(folded, given=None):
    """Whether the answer depends on the constants: they are damaged for one call."""
    given = given or texts(5)
    before = folded(**given)[0].detach()
    attention = folded.base_model.encoder.attentions()[-1]
    table = attention.sparing_position_keys
    attention.sparing_position_keys = None if table is None else table + 1 + table.flip(1)
    after = folded(**given)[0].detach()
    attention.sparing_position_keys = table
    return not torch.equal(before, after)


@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_are_those_of_transformers(variant):
    plain, folded = both(**VARIANTS[variant])
    lengths = LENGTHS if variant == "v1 inputs" else (*LENGTHS, 71)
    for tokens in lengths:
        given = texts(tokens)
        assert difference(plain, folded, given) < 1e-10
        assert difference(plain, folded, {"input_ids": given["input_ids"]}) < 1e-10


@pytest.mark.parametrize("tokens", [128, 129, 130, 300, 513, 600])
def test_the_buckets_of_version_3_at_their_edges(tokens):
    plain, folded = both(
        position_buckets=256, max_position_embeddings=512, num_hidden_layers=1, hidden_size=6
    )
    assert difference(plain, folded, texts(tokens, 3)) < 1e-10


def test_attention_weights_are_returned():
    plain, folded = both()
    given = texts(9)
    with torch.no_grad():
        expected = plain(**given, output_attentions=True).attentions
        got = folded(**given, output_attentions=True).attentions
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)
    assert difference(plain, folded, given, output_attentions=True) < 1e-10


def test_masks_of_pairs_are_read():
    plain, folded = both()
    given = texts(7)
    given["attention_mask"] = torch.ones(3, 7, 7, dtype=torch.long).tril()
    with torch.no_grad():
        hidden = plain.embeddings(given["input_ids"])
        expected = plain.encoder(hidden, given["attention_mask"]).last_hidden_state
        got = folded.encoder(hidden, given["attention_mask"]).last_hidden_state
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    "buckets",
    [Buckets(256, 512), Buckets(8, 40), Buckets(-1, 16), Buckets(32, 33), Buckets(2, 9)],
)
def test_each_pair_reads_the_column_of_its_bucket_in_both_terms(buckets):
    span = buckets.span
    for tokens in (1, 2, 5, 40, 131, 520):
        states = torch.zeros(1, tokens, 1)
        rows = build_relative_position(states, states, buckets.count, buckets.longest)[0]
        keys, queries = (
            torch.clamp(sign * rows + span, 0, 2 * span - 1) for sign in (1, -1)
        )  # transformers' two indices
        positions = positions_of(states, buckets)
        table = torch.arange(2.0 * span + 1).clamp(max=2 * span - 1)[None, :, None]
        ones = torch.ones(1, tokens, 1)
        for index, given in ((keys, table.flip(1)), (queries.T, table)):
            products = ones @ positions.columns(given).transpose(1, 2)
            pairs = positions.pairs(products)[0, 0]
            pairs = pairs if index is keys else pairs.T
            assert torch.equal(pairs.long(), index)


def test_only_the_columns_that_occur_are_multiplied():
    for tokens, columns in ((1, 1), (64, 127), (129, 257), (256, 385), (700, 513)):
        positions = positions_of(torch.zeros(1, tokens, 1), Buckets(256, 512))
        assert positions.columns(torch.zeros(1, 513, 1)).shape[1] == columns


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_as_near_as_transformers_is(dtype):
    exact, plain = build(initializer_range=0.1), build(initializer_range=0.1).to(dtype)
    folded = copy.deepcopy(plain)
    sparing.fold(folded)
    given = texts(11)
    with torch.no_grad():
        expected, usual, got = (m(**given)[0].double() for m in (exact, plain, folded))
    assert uses_constants(folded, given) is False  # gradients are enabled here
    assert (got - expected).abs().max() < 1.5 * (usual - expected).abs().max()
    pads = given["attention_mask"] == 0
    assert (got - usual)[pads].abs().max() < 1.5 * (usual - expected).abs().max()


def test_autocast_is_as_near_as_transformers_is():
    exact = build(initializer_range=0.1)
    plain = copy.deepcopy(exact).float()
    folded = copy.deepcopy(plain)
    sparing.fold(folded)
    given = texts(11)
    with torch.no_grad():
        expected = exact(**given)[0]
        with torch.autocast("cpu", torch.bfloat16):
            usual, got = (m(**given)[0].double() for m in (plain, folded))
            assert uses_constants(folded)
    assert 0 < (got - expected).abs().max() < 1.5 * (usual - expected).abs().max()


def test_the_report():
    report = sparing.fold(build(transformers.DebertaV2ForSequenceClassification))
    assert len(report.layers) == 2
    assert report.constant_bytes == 2 * 2 * 24 * 17 * 8
    assert report.layers[1].name == "deberta.encoder.layer.1.attention.self"
    assert report.to_dict()["layers"][0]["constants"] == ("position keys", "position queries")
    assert "2 layers folded" in str(report)
    assert "16 buckets, 8 wide" in str(report)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: build(relative_attention=False), "relative_attention is off"),
        (lambda: build(pos_att_type=[]), "neither c2p nor p2c"),
        (
            lambda: transformers.DebertaModel(transformers.DebertaConfig(**SHAPE)),
            "deberta has no layers of DeBERTa-v2",
        ),
        (
            lambda: transformers.BertModel(
                transformers.BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
            ),
            "bert has no layers of DeBERTa-v2",
        ),
        (lambda: build().to("meta"), "meta device"),
    ],
)
def test_what_cannot_be_folded_is_refused_with_the_reason(model, reason):
    made = model()
    assert reason in fold_obstacle(made)
    with pytest.raises(Unsupported, match=reason):
        sparing.fold(made)
    assert not is_folded(made)


def test_other_objects_are_refused():
    for verb in (sparing.fold, sparing.unfold):
        with pytest.raises(UsageError, match="needs a transformers model; got Linear"):
            verb(torch.nn.Linear(2, 2))


def test_another_attention_is_refused():
    model = build()
    model.encoder.layer[1].attention.self.forward = lambda *_: None
    with pytest.raises(Unsupported, match="layer 1 has DisentangledSelfAttention"):
        sparing.fold(model)
    model = build()
    model.encoder.layer[1].attention.self.key_proj.register_forward_hook(lambda *_: None)
    with pytest.raises(Unsupported, match="hook"):
        sparing.fold(model)
    assert not is_folded(model)
    assert "sparing" not in " ".join(name for name, _ in model.named_buffers())


def test_a_release_that_computes_otherwise_is_refused(monkeypatch):
    from transformers.models.deberta_v2 import modeling_deberta_v2 as modeling

    model = build()
    usual = modeling.DisentangledSelfAttention.disentangled_attention_bias
    monkeypatch.setattr(
        modeling.DisentangledSelfAttention,
        "disentangled_attention_bias",
        lambda *given: usual(*given) * 1.01,
    )
    with pytest.raises(Unsupported, match="another way"):
        sparing.fold(model)
    assert not is_folded(model)


@pytest.mark.parametrize(("tokens", "folded"), [(2, True), (9, True), (10, False)])
def test_a_phone_gets_constants_while_every_distance_has_a_bucket(tokens, folded):
    """ExecuTorch takes no least of two numbers that depend on the length."""
    model = build(max_relative_positions=-1)
    assert fold_for_phone(model, tokens) is folded
    assert is_folded(model) is folded
    ids = texts(max(tokens, 3))
    length = torch.export.Dim("tokens", min=2, max=max(tokens, 3))
    shapes = {name: {1: length} for name in ids}
    with torch.no_grad():
        graph = torch.export.export(model, (), ids, dynamic_shapes=shapes, strict=False).graph
    assert not [node for node in graph.nodes if node.target is torch.sym_min]
    assert not fold_for_phone(transformers.BertModel(transformers.BertConfig(**SMALL)), tokens)
