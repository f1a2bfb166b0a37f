"""Models that answer for each token: the adaptive form gives the dense answers, saved and cut."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import transformers

import sparing
from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.layers.plan import narrowed
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import freeze, segments
from sparing.transfer.registry import NAME
from sparing.transfer.tokens.adaptive import CLASSES, adapt_tokens, token_importance
from tests.transfer.classifiers import FAMILIES, IMAGES, SIZES, TEXT, alone, texts
from tests.transfer.classifiers import dense as classifier

HEADS = {"entities": "ForTokenClassification", "span": "ForQuestionAnswering"}
FAMILIES_OF_TEXT = [family for family in FAMILIES if family not in IMAGES]


def dense(answer, family="bert", **changes):
    """A random model in float64; no weight, bias or norm is trivial."""
    count = 2 if answer == "span" else 5
    config = getattr(transformers, f"{FAMILIES[family]}Config")(
        **{**SIZES, **TEXT, "num_labels": count, **changes}
    )
    torch.manual_seed(0)
    kind = getattr(transformers, f"{FAMILIES[family]}{HEADS[answer]}")
    model = kind._from_config(config, dtype=torch.float64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64), alpha=0.3)
    return model


def logits_of(model, given):
    with torch.no_grad():
        made = model(**given)
    if "logits" in made:
        return made.logits
    return torch.stack((made.start_logits, made.end_logits), -1)


@pytest.fixture(params=sorted(HEADS))
def answer(request):
    return request.param


@pytest.mark.parametrize("family", FAMILIES_OF_TEXT)
def test_the_whole_plan_gives_the_dense_answers(answer, family):
    model, given = dense(answer, family), texts([9, 4, 7], longest=11)
    adaptive = adapt_tokens(model)
    ours, theirs = logits_of(adaptive, given), logits_of(model, given)
    real = given["attention_mask"].bool()
    assert ours.shape == theirs.shape
    assert float((ours - theirs)[real].abs().max()) < 1e-10
    assert float(ours[~real].abs().max()) == 0


def test_a_hole_in_a_mask_moves_no_answer(answer):
    """transformers gives tokens behind a masked one their own place, and so must this."""
    model, given = dense(answer), texts([6, 6])
    given["attention_mask"][0, 2] = 0
    real = given["attention_mask"].bool()
    gap = logits_of(adapt_tokens(model), given) - logits_of(model, given)
    assert float(gap[real].abs().max()) < 1e-10


def test_a_cut_plan_answers_the_same_frozen_saved_and_as_a_segment(answer, tmp_path):
    model, given = dense(answer), texts([9, 4, 7])
    adaptive = adapt_tokens(model)
    adaptive.plan = narrowed(adaptive.encoder.sizes, 0.5).shortened(3)
    expected, real = logits_of(adaptive, given), given["attention_mask"].bool()
    assert float((expected - logits_of(model, given))[real].abs().max()) > 1e-3
    frozen = freeze(adaptive)
    assert type(frozen) is CLASSES[answer]
    assert float((logits_of(frozen, given) - expected).abs().max()) < 1e-12
    frozen.save_pretrained(tmp_path / "cut")
    opened = sparing.load(tmp_path / "cut")
    assert type(opened) is CLASSES[answer]
    assert torch.equal(logits_of(opened, given), logits_of(frozen, given))
    (segment,) = segments(adaptive)
    with torch.no_grad():
        made = segment(**given)
    made = torch.stack(made, -1) if isinstance(made, tuple) else made
    assert float((made - expected)[real].abs().max()) < 1e-12
    row = logits_of(frozen, alone(given, 1))
    assert float((row[0] - expected[1, :4]).abs().max()) < 1e-12


def test_the_loss_is_the_dense_models(answer):
    model, given = dense(answer), texts([9, 4, 7])
    adaptive = adapt_tokens(model)
    if answer == "entities":
        labels = torch.randint(0, 5, given["input_ids"].shape)
        labels[given["attention_mask"] == 0] = -100
        more = {"labels": labels}
    else:  # an answer that was cut off has no loss
        more = {
            "start_positions": torch.tensor([1, 2, 40]),
            "end_positions": torch.tensor([3, 3, 9]),
        }
        given = {name: value[:, :4] for name, value in given.items()}  # no pads: all count
    ours, theirs = adaptive(**given, **more).loss, model(**given, **more).loss
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    ours.backward()
    assert adaptive.encoder.head(4).classifier.weight.grad.abs().max() > 0


def test_labels_of_another_form_are_refused():
    adaptive, given = adapt_tokens(dense("entities")), texts([5, 5])
    for labels, match in (
        (torch.zeros(2, dtype=torch.long), "one class number a token"),
        (torch.zeros(2, 5), "one class number a token"),
        (torch.full((2, 5), 5), "from 0 to 4, or -100; got 5"),
        (torch.full((2, 5), -1), "from 0 to 4, or -100; got -1"),
    ):
        with pytest.raises(UsageError, match=match):
            adaptive(**given, labels=labels)


def test_heads_and_neurons_that_do_nothing_matter_nothing(answer):
    model = dense(answer)
    layer = model.bert.encoder.layer[1]
    with torch.no_grad():
        layer.attention.output.dense.weight[:, :4] = 0  # the first head
        layer.output.dense.weight[:, 3] = 0
    batches = [texts([9, 4, 7]), texts([5, 6], seed=2)]
    made = token_importance(model, batches, 0)
    assert made.examples == 5
    assert float(made.heads[1, 0]) == float(made.neurons[1, 3]) == 0
    assert float(made.heads[1, 1:].min()) > 0
    again = token_importance(model, batches, 0)
    assert torch.equal(made.neurons, again.neurons)


def test_a_plan_that_leaves_tokens_or_inputs_out_is_refused(answer):
    adaptive = adapt_tokens(dense(answer))
    for change in ({"exits": (1,), "threshold": 0.9}, {"tokens_kept": 0.5, "tokens_after": 1}):
        with pytest.raises(UsageError, match="runs all tokens of all inputs"):
            adaptive.plan = replace(adaptive.plan, **change)


def test_other_models_are_refused(answer):
    with pytest.raises(Unsupported, match="gives no answer for each token"):
        adapt_tokens(classifier())
    if answer == "span":
        with pytest.raises(Unsupported, match="3 ends of an answer"):
            adapt_tokens(dense(answer, num_labels=3))


def test_adapt_takes_them_too(answer):
    model = dense(answer)
    whole, same = adapt(model), adapt_tokens(model)
    assert type(whole) is type(same)
    ids = torch.tensor([[2, 5, 7, 3]])
    first = "logits" if answer == "entities" else "start_logits"
    assert torch.equal(whole(input_ids=ids)[first], same(input_ids=ids)[first])
    assert adapt(model, [1]).config.sparing["adaptive"]["exits"] == [1, len(whole.plan.heads)]


def test_a_damaged_entry_is_named(answer, tmp_path):
    adapt_tokens(dense(answer).float()).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for damage in ("vectors", 3, None):
        config[NAME]["adaptive"]["tokens"] = damage
        path.write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match="entities or span"):
            sparing.load(tmp_path)


def test_cut_weights_are_named(answer, tmp_path):
    adapt_tokens(dense(answer).float()).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    for read in (sparing.load, CLASSES[answer].from_pretrained):
        with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
            read(tmp_path)


def test_odd_inputs_are_named_or_answered(answer):
    model = dense(answer)
    adaptive, ids = adapt_tokens(model), torch.full((2, 4), 7)
    assert logits_of(adaptive, {"input_ids": ids[:0]}).shape == (0, 4, model.config.num_labels)
    gap = logits_of(adaptive, {"input_ids": ids[:, :1]}) - logits_of(
        model, {"input_ids": ids[:, :1]}
    )
    assert float(gap.abs().max()) < 1e-10
    for keep, words in (
        ([0, 0, 0, 0], "at least one real token"),
        ([0, 1, 1, 1], "begins with a pad"),
    ):
        with pytest.raises(UsageError, match=words):
            adaptive(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1, 1], keep]))
    with pytest.raises(UsageError, match="too many: the model reads"):
        adaptive(input_ids=torch.full((1, 600), 7))
    with pytest.raises(Unsupported, match="output_attentions"):
        adaptive(input_ids=ids, output_attentions=True)
    half = logits_of(adapt_tokens(dense(answer)).to(torch.bfloat16), {"input_ids": ids})
    assert half.isfinite().all()
