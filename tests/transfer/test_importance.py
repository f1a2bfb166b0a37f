"""Importance: one example at a time, any batching, every family that is claimed."""

from __future__ import annotations

import pytest
import torch
import transformers

from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.families.known import find_blocks
from sparing.transfer.importance import importance
from tests.transfer import families

CLASSIFIERS = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "electra": "ElectraForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification",
    "vit": "ViTForImageClassification",
    "deit": "DeiTForImageClassification",
}


def classifier(family, **changes):
    """A random classifier of three classes in float64."""
    torch.manual_seed(0)
    config = families.configuration(family, num_labels=3, **changes)
    kind = getattr(transformers, CLASSIFIERS[family])
    model = kind._from_config(config, dtype=torch.float64).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def batch(family, count=4, tokens=9):
    given = families.inputs(family, batch=count, tokens=tokens)
    given["labels"] = torch.arange(count) % 3
    return given


def parts(given):
    """The same examples, one a batch."""
    return [{n: v[i : i + 1] for n, v in given.items()} for i in range(len(given["labels"]))]


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_every_example_counts_by_itself(family):
    model, given = classifier(family), batch(family)
    together, apart = importance(model, [given]), importance(model, parts(given))
    assert together.examples == apart.examples == 4
    torch.testing.assert_close(together.heads, apart.heads, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(together.neurons, apart.neurons, rtol=1e-9, atol=1e-12)
    assert (together.heads > 0).all()
    assert together.heads.shape == (3, 4)
    assert together.neurons.shape == (3, 40)


def test_it_is_the_derivative_by_a_gate():
    model, given = classifier("bert"), batch("bert", count=2)
    scores = importance(model, [given])
    block, step, changes = find_blocks(model)[1], 1e-5, []
    for one in parts(given):
        losses = []
        for gate in (1 + step, 1 - step):
            scale = torch.ones(32, dtype=torch.float64)
            scale[16:24] = gate

            def hook(_module, inputs, scale=scale):
                return (inputs[0] * scale,)

            handle = block.output.register_forward_pre_hook(hook)
            losses.append(model(**one).loss.item())
            handle.remove()
        changes.append(abs(losses[0] - losses[1]) / (2 * step))
    assert scores.heads[1, 2].item() == pytest.approx(sum(changes) / 2, rel=1e-5)


def test_a_neuron_that_nobody_reads_is_worth_nothing():
    model = classifier("vit")
    with torch.no_grad():
        find_blocks(model)[2].fall.weight[:, 5] = 0
        find_blocks(model)[0].output.weight[:, 8:16] = 0
    scores = importance(model, [batch("vit")])
    assert scores.neurons[2, 5] == 0
    assert scores.heads[0, 1] == 0
    assert (scores.neurons[2] > 0).sum() == 39


def test_chunks_of_tokens_change_nothing():
    given = batch("bert", tokens=8)
    whole = importance(classifier("bert"), [given])
    chunked = importance(classifier("bert", chunk_size_feed_forward=4), [given])
    torch.testing.assert_close(whole.neurons, chunked.neurons, rtol=1e-9, atol=1e-12)


def test_the_model_is_left_as_it_was():
    model, given = classifier("bert"), batch("bert")
    model.train()
    model.bert.encoder.layer[0].eval()
    modes = [module.training for module in model.modules()]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.no_grad():
        assert (importance(model, [given]).heads > 0).all()
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_normalised_rows_have_length_one():
    scores = importance(classifier("bert"), [batch("bert")]).normalised()
    torch.testing.assert_close(scores.heads.norm(dim=1), torch.ones(3, dtype=torch.float64))


def test_own_loss():
    model, given = classifier("bert"), batch("bert")

    def twice(output, batch):
        return 2 * output.loss * len(batch["labels"])

    doubled, once = importance(model, [given], loss=twice), importance(model, [given])
    torch.testing.assert_close(doubled.heads, 2 * once.heads)


def test_what_cannot_be_ranked_says_why():
    model, given = classifier("bert"), batch("bert")
    with pytest.raises(UsageError, match="at least one batch"):
        importance(model, [])
    with pytest.raises(UsageError, match="labels"):
        importance(model, [{name: given[name] for name in ("input_ids", "attention_mask")}])
    for family, reason in (("llama", "not an encoder"), ("albert", "shared")):
        with pytest.raises(Unsupported, match=reason):
            importance(families.build(family), [])
