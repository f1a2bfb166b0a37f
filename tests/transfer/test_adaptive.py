"""The adaptive form answers as the dense model does, for every family, until its plan spends less;
then one budget sets the plan."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
import transformers

import sparing
from sparing.core.errors import Unsupported, UsageError
from sparing.layers.plan import full_plan, narrowed
from sparing.measure.flops import count_flops, model_flops
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adaptive import FrontierPoint
from tests.transfer import families as others
from tests.transfer.classifiers import (
    FAMILIES,
    IMAGES,
    LAYERS,
    RELATIVE,
    alone,
    dense,
    images,
    inputs,
    near,
    texts,
)

TEXTS = [family for family in FAMILIES if family not in IMAGES]


def _agree(model, given):
    with torch.no_grad():
        output = adapt(model)(**given)
        near(output.logits, model(**given).logits)
    assert output.layers.tolist() == [LAYERS] * len(output.logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_its_dense_model(family):
    model = dense(family)
    _agree(model, inputs(family))
    _agree(model, inputs(family, lengths=(6,)))


@pytest.mark.parametrize("family", TEXTS)
def test_pads_at_the_end_and_between(family):
    model, given = dense(family), texts([9, 1, 6], longest=12, types=family in ("bert", "electra"))
    _agree(model, given)
    given["attention_mask"][0, 2:5] = 0
    given["attention_mask"][2, 4] = 0
    if family in RELATIVE:
        with pytest.raises(UsageError, match=r"before or between a text's tokens.*on the right"):
            adapt(model)(**given)
    else:
        _agree(model, given)
    _agree(model, {name: value for name, value in given.items() if name != "attention_mask"})


@pytest.mark.parametrize("family", IMAGES)
@pytest.mark.parametrize("changes", [{"qkv_bias": False}, {"image_size": 12}])
def test_images_of_other_forms(family, changes):
    _agree(dense(family, **changes), images(size=changes.get("image_size", 8)))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "relu"},
        {"num_labels": 2},
        {"layer_norm_eps": 0.1},
        {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5},
        {"num_hidden_layers": LAYERS, "intermediate_size": 20, "num_attention_heads": 2},
    ],
)
@pytest.mark.parametrize("family", ["bert", "vit"])
def test_what_the_configuration_says_is_heeded(family, changes):
    _agree(dense(family, **changes), inputs(family))


def test_a_text_that_begins_with_a_pad_is_refused():
    """There the dense model answers from the pad's own state, which depends on how it was padded;
    an answer from the first real token would be another one."""
    model, given = dense(), texts([9, 6, 4])
    shifted = {name: value.roll(2, 1) for name, value in given.items()}
    padded = {name: torch.cat([value[:1], shifted[name][1:]]) for name, value in given.items()}
    with torch.no_grad():
        assert (model(**padded).logits - model(**given).logits)[1:].abs().max() > 1e-3
    with pytest.raises(UsageError, match=r"begins with a pad.* pad on the right"):
        adapt(model)(**padded)


def test_inputs_that_cannot_be_read():
    adaptive = adapt(dense())
    given = texts([5, 3])
    with pytest.raises(UsageError, match="reads input_ids, which is missing"):
        adaptive(attention_mask=given["attention_mask"])
    with pytest.raises(UsageError, match="reads pixel_values, which is missing"):
        adapt(dense("vit"))(**given)
    given["attention_mask"][1] = 0
    with pytest.raises(UsageError, match="at least one real token"):
        adaptive(**given)
    with pytest.raises(UsageError, match="at least one real token"):
        adaptive(input_ids=torch.zeros(2, 0, dtype=torch.long))


@pytest.mark.parametrize("family", TEXTS)
def test_an_empty_batch_has_no_answers(family):
    adaptive = adapt(dense(family))
    assert adaptive(input_ids=torch.zeros(0, 5, dtype=torch.long)).logits.shape == (0, 3)


def test_images_may_be_given_by_place():
    adaptive, given = adapt(dense("vit")), images(2)
    assert torch.equal(adaptive(given["pixel_values"]).logits, adaptive(**given).logits)


@pytest.mark.parametrize("family", TEXTS)
def test_the_longest_text(family):
    model = dense(family)
    longest = 19 if "roberta" in family or family == "camembert" else 20
    assert adapt(model).longest == longest
    _agree(model, texts([longest, 3]))
    with pytest.raises(UsageError, match=f"21 tokens are too many: the model reads {longest}"):
        adapt(model)(**texts([21]))
    with pytest.raises(UsageError, match=f"{longest + 1} tokens are too many"):
        adapt(model)(**texts([longest + 1]))


def test_a_batch_of_nobody():
    adaptive = adapt(dense())
    no_tokens = torch.zeros(0, 5, dtype=torch.long)
    for plan in (adaptive.plan, replace(adaptive.plan, exits=(2,), threshold=0.5, tokens_kept=0.5)):
        adaptive.plan = plan
        assert adaptive(input_ids=no_tokens, attention_mask=no_tokens).logits.shape == (0, 3)


@pytest.mark.parametrize("family", ["bert", "roberta", "vit"])
def test_the_dense_model_is_left_as_it_was(family):
    model = dense(family).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = model.config.to_dict()
    adaptive = adapt(model)
    assert adaptive.training
    with torch.no_grad():
        for parameter in adaptive.parameters():
            parameter.add_(1.0)
    adaptive.plan = narrowed(adaptive.encoder.sizes, 0.5)
    assert list(before) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert model.config.to_dict() == config
    assert not hasattr(model.config, "sparing")


def test_exits_begin_as_copies_of_the_models_own_head():
    model = dense()
    assert adapt(model).encoder.exits == (2, 3, 4)
    assert adapt(model, exits=[]).encoder.exits == (4,)
    adaptive = adapt(model, exits=[3, 1])
    assert adaptive.encoder.exits == (1, 3, 4)
    for head in adaptive.encoder.heads.values():
        assert torch.equal(head.classifier.weight, model.classifier.weight)
        assert torch.equal(head.dense.bias, model.bert.pooler.dense.bias)
    assert adapt(dense(num_hidden_layers=1)).encoder.exits == (1,)
    with pytest.raises(UsageError, match="exits are layers from 1 to 4"):
        adapt(model, exits=[5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_are_kept(dtype):
    adaptive = adapt(dense(dtype=dtype))
    assert {parameter.dtype for parameter in adaptive.parameters()} == {dtype}
    assert adaptive(**texts([4, 2])).logits.dtype == dtype
    pixels = images()["pixel_values"].float()
    assert adapt(dense("vit", dtype=dtype))(pixel_values=pixels).logits.dtype == dtype


def test_a_loss_where_there_are_labels():
    model, labels = dense(), torch.tensor([0, 2, 1])
    given = inputs("bert")
    near(adapt(model)(**given, labels=labels).loss, model(**given, labels=labels).loss)
    assert adapt(model)(**given).loss is None


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({"num_labels": 1}, torch.tensor([0.5, -2.0, 1.0])),
        ({"num_labels": 1, "problem_type": "regression"}, torch.tensor([[0.5], [-2.0], [1.0]])),
        ({"problem_type": "multi_label_classification"}, torch.eye(3)),
    ],
)
def test_several_labels_and_a_number_have_their_own_loss_and_no_exits(change, labels, tmp_path):
    model, given = dense(**change), inputs("bert")
    adaptive = adapt(model)
    truth = model(**given, labels=labels.to(model.dtype))
    near(adaptive(**given).logits, truth.logits)
    near(adaptive(**given, labels=labels.to(model.dtype)).loss, truth.loss)
    with pytest.raises(UsageError, match="labels must be floating and"):
        adaptive(**given, labels=torch.tensor([0, 1, 2]))
    with pytest.raises(UsageError, match="only one class an input says how sure it is"):
        adaptive.plan = replace(adaptive.plan, exits=(2,), threshold=0.9)
    adaptive.plan = replace(adaptive.plan, tokens_kept=0.5, tokens_after=1)
    adaptive.save_pretrained(tmp_path)
    near(sparing.load(tmp_path)(**given).logits, adaptive(**given).logits)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda: torch.nn.Linear(2, 2), UsageError, "needs a transformers model; got Linear"),
        (
            lambda: others.build("llama"),
            Unsupported,
            "'llama' has no adaptive form; .* for bert, rob.*sparing export MODEL",
        ),
        (lambda: others.build("gpt2"), Unsupported, "'gpt2' has no adaptive form"),
        (lambda: others.build("bert"), Unsupported, "BertForMaskedLM is not a classifier; open"),
        (lambda: others.build("deit"), Unsupported, "DeiTModel is not a classifier"),
        (lambda: dense("electra", embedding_size=8), Unsupported, "embeddings of width 8 below"),
        (lambda: dense(problem_type="regression"), Unsupported, "predicts 3 numbers"),
        (lambda: dense(is_decoder=True), Unsupported, "is a decoder"),
        (lambda: adapt(dense()), Unsupported, "AdaptiveClassifier is not a classifier|already"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is_decoder")
def test_models_that_have_no_adaptive_form(model, error, message):
    with pytest.raises(error, match=message) as caught:
        adapt(model())
    assert "\n" not in str(caught.value)


def test_a_model_that_was_changed_before_is_refused():
    model = dense()
    sparing.swap(model, "softmax")
    with pytest.raises(Unsupported, match="carries a swap or another change already"):
        adapt(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_is_its_inputs_one_by_one(family):
    adaptive, given = adapt(dense(family)), inputs(family, lengths=(9, 1, 6, 4, 9))
    dropping = 1.0 if family in RELATIVE else 0.6
    plan = replace(narrowed(adaptive.encoder.sizes, 0.6), tokens_kept=dropping, exits=(2, 3))
    with torch.no_grad():
        trace = adaptive.encoder.trace(*adaptive.embed(**given), plan)
        surest = trace.answers[2].float().softmax(-1).amax(-1).sort().values
        # between two inputs, so that some leave and some do not
        adaptive.plan = replace(plan, threshold=float(surest[1:3].mean()))
        together = adaptive(**given)
        apart = [adaptive(**alone(given, index)) for index in range(5)]
    near(together.logits, torch.cat([single.logits for single in apart]))
    assert torch.equal(together.layers, torch.cat([single.layers for single in apart]))
    assert 2 in together.layers
    assert together.layers.max() > 2


def test_arithmetic_of_whole_models():
    """Packed texts cost their real tokens; the dense model pays for the pads."""
    model = dense()
    adaptive = adapt(model)
    one = texts([9])
    with sparing.record(adaptive) as log, torch.no_grad():
        counted = count_flops(lambda: adaptive(**one))
    assert counted == float(log["encoder/flops"][0].sum()) == model_flops(model, one).total
    even, ragged = texts([8, 8]), texts([8, 2])
    with torch.no_grad():
        assert count_flops(lambda: adaptive(**even)) == count_flops(lambda: model(**even))
        assert count_flops(lambda: adaptive(**ragged)) < count_flops(lambda: model(**ragged))
    picture = adapt(dense("vit"))
    given = images(1)
    with sparing.record(picture) as log, torch.no_grad():
        counted = count_flops(lambda: picture.encoder(*picture.embed(**given), picture.plan))
        patches = count_flops(lambda: picture.embed(**given))
    assert counted - patches == float(log["encoder/flops"][0].sum())


def _frontier(adaptive, scores=(0.7, 0.9, 0.8, None)):
    sizes = adaptive.encoder.sizes
    shares = (0.25, 0.5, 0.75, 0.9)
    return [
        FrontierPoint(narrowed(sizes, share), share, score)
        for share, score in zip(shares, scores, strict=True)
    ]


def test_a_budget_buys_the_best_plan_that_it_pays_for():
    adaptive = adapt(dense())
    assert adaptive.budget == 1
    points = _frontier(adaptive)
    adaptive.set_frontier(points[::-1])
    assert adaptive.frontier == points
    for budget, expected in ((0.25, 0), (0.49, 0), (0.5, 1), (0.8, 1), (0.95, 1)):
        adaptive.budget = budget
        assert adaptive.plan == points[expected].plan
        assert adaptive.budget == points[expected].cost_share
    adaptive.budget = 1.0
    assert adaptive.plan == full_plan(adaptive.encoder.sizes)
    assert adaptive.budget == 1
    for budget in (0.0, -1.0, 1.001, math.nan, math.inf):
        with pytest.raises(UsageError, match=r"a share in \(0, 1\]; got"):
            adaptive.budget = budget
    with pytest.raises(UsageError, match=r"0.2 is below the cheapest plan, 0.25"):
        adaptive.budget = 0.2
    assert adaptive.budget == 1, "a budget that is refused changes nothing"


def test_a_cut_model_says_what_all_of_it_costs(tmp_path):
    cut = adapt(dense())
    whole, points = full_plan(cut.encoder.sizes), _frontier(cut)
    cheap = [point for point in points if point.cost_share < 0.4 and point.plan != whole]
    cut.set_frontier(cheap, whole_share=0.4)
    cut.save_pretrained(tmp_path)
    for model in (cut, sparing.load(tmp_path)):
        model.plan = whole
        assert model.budget == 0.4
        model.budget = cheap[0].cost_share
        assert model.plan == cheap[0].plan
        for budget in (0.5, 1.0):
            model.budget = budget
            assert model.plan == whole
    with pytest.raises(UsageError, match="whole_share"):
        cut.set_frontier([], whole_share=1.5)


def test_a_budget_without_scores_buys_the_dearest():
    adaptive = adapt(dense())
    points = _frontier(adaptive, scores=(None,) * 4)
    adaptive.set_frontier(points)
    adaptive.budget = 0.8
    assert adaptive.plan == points[2].plan
    with pytest.raises(UsageError, match="is below the cheapest plan, 1"):
        adapt(dense()).budget = 0.5


def test_a_budget_of_one_is_the_dense_model_whatever_the_frontier_says():
    model, given = dense(), inputs("bert")
    adaptive = adapt(model)
    sizes = adaptive.encoder.sizes
    lucky = replace(full_plan(sizes), exits=(2,), threshold=0.1)
    adaptive.set_frontier(
        [
            FrontierPoint(lucky, 1.0, 1.0),
            FrontierPoint(full_plan(sizes), 1.0, 0.3),
            FrontierPoint(replace(lucky, threshold=0.2), 1.0),
        ]
    )
    adaptive.budget = 1.0
    assert adaptive.plan == full_plan(sizes)
    with torch.no_grad():
        near(adaptive(**given).logits, model(**given).logits)


def test_a_plan_set_by_hand():
    adaptive = adapt(dense(), exits=[3])
    adaptive.plan = narrowed(adaptive.encoder.sizes, 0.5, layers=3)
    assert json.loads(json.dumps(adaptive.config.sparing))["adaptive"]["plan"]["heads"] == [2, 2, 2]
    with pytest.raises(UsageError, match="the plan is not on the frontier"):
        _ = adaptive.budget
    before = adaptive.plan
    for plan, message in (
        (narrowed(adaptive.encoder.sizes, 0.5, layers=2), "no exit head after layer 2"),
        (replace(full_plan(adaptive.encoder.sizes), exits=(1,)), "no exit head after layer 1"),
        (replace(full_plan(adaptive.encoder.sizes), heads=(5,) * 4), "5 heads and 24 neurons"),
        (full_plan(adapt(dense(num_hidden_layers=5)).encoder.sizes), "has 5 layers, the model 4"),
    ):
        with pytest.raises(UsageError, match=message):
            adaptive.plan = plan
        with pytest.raises(UsageError, match=message):
            adaptive.set_frontier([FrontierPoint(plan, 0.5)])
    assert adaptive.plan == before
    assert adaptive.frontier == []
    for share in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="share of the FLOPs must be above 0"):
            FrontierPoint(before, share)


def test_transformers_types_stand():
    adaptive = adapt(dense())
    output = adaptive(**inputs("bert"))
    assert isinstance(output, transformers.modeling_outputs.SequenceClassifierOutput)
    assert set(output.keys()) == {"logits", "layers"}
