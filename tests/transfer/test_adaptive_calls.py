"""An adaptive model is called, checkpointed and resized as the model that it was made from."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import BertForSequenceClassification

import sparing
from sparing.transfer.adapting.adapt import adapt
from tests.transfer.classifiers import CLASSES, dense, images, inputs, near, texts

NOTHING = ("output_hidden_states", "output_attentions", "position_ids", "head_mask", "use_cache")


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_arguments_that_ask_for_nothing(family):
    model, given = adapt(dense(family)), inputs(family)
    expected = model(**given)
    names = (*NOTHING, "inputs_embeds", "interpolate_pos_encoding", "bool_masked_pos")
    for value in (None, False):
        output = model(**given, **dict.fromkeys(names, value), return_dict=True)
        assert torch.equal(output.logits, expected.logits)
    labels = torch.tensor([0, 1, 2])
    logits, layers = model(**given, return_dict=False)
    assert torch.equal(logits, expected.logits)
    assert torch.equal(layers, expected.layers)
    assert len(model(**given, labels=labels, return_dict=False)) == 3
    model.config.return_dict = False
    assert isinstance(model(**given), tuple)


@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        ("bert", {"output_hidden_states": True}),
        ("bert", {"output_attentions": True}),
        ("bert", {"position_ids": torch.arange(9)[None]}),
        ("bert", {"inputs_embeds": torch.randn(3, 9, 16)}),
        ("bert", {"unheard_of": 1}),
        ("bert", {"pixel_values": images()["pixel_values"]}),
        ("vit", {"interpolate_pos_encoding": True}),
        ("vit", {"bool_masked_pos": torch.ones(3, 4, dtype=torch.bool)}),
        ("vit", {"attention_mask": torch.ones(3, 5, dtype=torch.long)}),
    ],
)
def test_arguments_that_ask_for_more(family, arguments):
    (name,) = arguments
    match = "other inputs" if name in ("pixel_values", "attention_mask") else name
    with pytest.raises(sparing.Unsupported, match=match):
        adapt(dense(family))(**inputs(family), **arguments)


@pytest.mark.parametrize(
    "changes",
    [
        {"output_hidden_states": True},
        {"output_attentions": True},
    ],
)
def test_configurations_that_ask_for_more(changes):
    model = adapt(dense())
    model.config._attn_implementation = "eager"
    for name, value in changes.items():
        setattr(model.config, name, value)
    with pytest.raises(sparing.Unsupported, match=next(iter(changes))):
        model(**inputs("bert"))


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0.0, 1.0, 2.0]),
        torch.tensor([True, False, True]),
        torch.zeros(3, CLASSES),
        torch.zeros(3, CLASSES, dtype=torch.long),
        torch.tensor([0, 1]),
        torch.tensor([0, 1, CLASSES]),
        torch.tensor([0, -1, 2]),
    ],
    ids=str,
)
def test_labels_that_are_no_classes(labels):
    with pytest.raises(sparing.UsageError, match="labels must be"):
        adapt(dense())(**inputs("bert"), labels=labels)


def test_labels_as_transformers_takes_them():
    model, given = adapt(dense()), inputs("bert")
    expected = model(**given, labels=torch.tensor([0, 1, 2])).loss
    for labels in (torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([[0], [1], [2]])):
        assert torch.equal(model(**given, labels=labels).loss, expected)
    assert model(**given, labels=torch.tensor([0, -100, 2])).loss.isfinite()


HEADS = {
    "a sequence": lambda m: setattr(m, "classifier", nn.Sequential(nn.Linear(16, CLASSES))),
    "other classes": lambda m: setattr(m, "classifier", nn.Linear(16, 5)),
    "no head": lambda m: setattr(m, "classifier", nn.Identity()),
    "a normed weight": lambda m: nn.utils.parametrizations.weight_norm(m.classifier),
}


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "vit", "clip"])
@pytest.mark.parametrize("head", HEADS)
def test_a_replaced_head_is_refused_with_the_reason(family, head):
    model = dense(family)
    if head == "a normed weight" and not isinstance(model.classifier, nn.Linear):
        nn.utils.parametrizations.weight_norm(model.classifier.out_proj)
    else:
        HEADS[head](model)
    with pytest.raises(sparing.Unsupported, match=r"classifier[\w.]* is ") as error:
        adapt(model)
    assert "\n" not in str(error.value)


def test_other_replaced_parts_are_refused():
    for path, part in (
        ("bert.encoder.layer.1.intermediate.intermediate_act_fn", nn.ReLU()),
        ("bert.pooler", None),
        ("bert.encoder.layer.0.output.LayerNorm", nn.RMSNorm(16)),
    ):
        model = dense()
        home, _, name = path.rpartition(".")
        setattr(model.get_submodule(home), name, part)
        with pytest.raises(sparing.Unsupported, match=path):
            adapt(model)


class OwnForSequenceClassification(BertForSequenceClassification):
    """A class that computes in a way of its own."""

    def forward(self, **given):
        return super().forward(**given)


def test_a_class_with_a_forward_of_its_own_is_refused():
    with pytest.raises(sparing.Unsupported, match="its own forward"):
        adapt(OwnForSequenceClassification(dense().config))


def test_a_resized_vocabulary(tmp_path):
    model, given = dense(), texts([9, 9])
    model.resize_token_embeddings(70)
    given["input_ids"] = given["input_ids"] + 20
    expected = model(**given).logits
    adaptive = adapt(model)
    near(adaptive(**given).logits, expected)
    adaptive.save_pretrained(tmp_path / "adaptive")
    near(sparing.load(tmp_path / "adaptive")(**given).logits, expected)
    sparing.swap(model, "linear")
    model.resize_token_embeddings(80)
    given["input_ids"] = given["input_ids"] + 10
    model.save_pretrained(tmp_path / "swapped")
    assert torch.equal(sparing.load(tmp_path / "swapped")(**given).logits, model(**given).logits)
    adaptive.resize_token_embeddings(80)
    adaptive.save_pretrained(tmp_path / "adaptive")
    near(sparing.load(tmp_path / "adaptive")(**given).logits, adaptive(**given).logits)


def _gradients(model, given):
    torch.manual_seed(0)
    model(**given, labels=torch.tensor([0, 1])).loss.backward()
    return {name: value.grad for name, value in model.named_parameters()}


def _assert_same(output, expected):
    assert output.keys() == expected.keys()
    for name, value in expected.items():
        assert (value is None) == (output[name] is None), name
        if value is not None:
            torch.testing.assert_close(output[name], value)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing")
@pytest.mark.parametrize("family", ["bert", "vit"])
@pytest.mark.parametrize("change", [{}, {"tokens_kept": 0.5}, {"exits": (2,), "threshold": 0.5}])
def test_activation_checkpointing_changes_no_gradient(family, change):
    given = inputs(family, (9, 5))
    model = adapt(dense(family, hidden_dropout_prob=0.1)).train()
    model.plan = replace(model.plan, **change)
    again = copy.deepcopy(model)
    again.gradient_checkpointing_enable()
    computed, plain = _counted(again), _counted(model)
    _assert_same(_gradients(again, given), _gradients(model, given))
    assert len(computed) == 2 * len(plain) > 0
    again.gradient_checkpointing_disable()
    computed.clear()
    _gradients(again, given)
    assert len(computed) == len(plain)


def _counted(model):
    """A list that grows whenever a layer is computed."""
    calls = []
    for layer in model.encoder.layers:
        finish = layer._finish
        layer._finish = lambda *given, finish=finish: calls.append(1) or finish(*given)
    return calls


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing")
@pytest.mark.parametrize("mechanism", ["linear", "linformer", "lisa", "reformer", "adaptive"])
def test_activation_checkpointing_of_swapped_models(mechanism):
    model = dense(hidden_dropout_prob=0.1)
    sparing.swap(model, mechanism)
    again = copy.deepcopy(model.train())
    again.gradient_checkpointing_enable()
    given = texts([9, 5])
    _assert_same(_gradients(again, given), _gradients(model, given))


@pytest.fixture
def one_process(tmp_path):
    where = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


UNREAD = ("none", "uniform", "reformer", "ecoformer", "lisa")


@pytest.mark.filterwarnings("ignore:find_unused_parameters")
def test_projections_that_are_not_read_train_in_several_processes(one_process):
    models = {name: dense() for name in UNREAD}
    for name, model in models.items():
        sparing.swap(model, name)
    models["an adaptive form"] = adapt(dense())
    given, labels = texts([9, 5]), torch.tensor([0, 1])
    for name, model in models.items():
        spread = DistributedDataParallel(model.train(), find_unused_parameters=True)
        for _ in range(2):
            spread(**given, labels=labels).loss.backward()
        assert any(value.grad is not None for value in model.parameters()), name
