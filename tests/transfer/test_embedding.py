"""Embedding models: the adaptive form gives the dense vectors, saved and cut."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import sparing
from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.layers.plan import narrowed
from sparing.tasks.shared.text import fast_tokenizer
from sparing.transfer.embedding.adaptive import AdaptiveEmbedder, adapt_embedder, vector_form
from sparing.transfer.embedding.dense import open_sentences, vector_importance
from sparing.transfer.freezing import freeze, segments
from tests.agree.kinds import save
from tests.agree.models import rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("vector") / "model", "vector")


@pytest.fixture
def dense(folder):
    return open_sentences(str(folder)).double()


@pytest.fixture(scope="module")
def inputs(folder):
    tokenizer = fast_tokenizer(str(folder))
    return dict(tokenizer(rows(7), padding=True, return_tensors="pt"))


def apart(model, other, inputs):
    with torch.no_grad():
        return float((model(**inputs).logits - other(**inputs).logits).abs().max())


def test_the_whole_plan_gives_the_dense_vectors(dense, inputs):
    adaptive = adapt_embedder(dense)
    assert apart(dense, adaptive, inputs) < 1e-10
    with torch.no_grad():
        ours, theirs = adaptive(**inputs), dense(**inputs)
    assert ours.last_hidden_state.shape == theirs.last_hidden_state.shape
    real = inputs["attention_mask"].bool()
    gap = (ours.last_hidden_state - theirs.last_hidden_state)[real]
    assert float(gap.abs().max()) < 1e-10
    assert torch.allclose(ours.logits.norm(dim=1), torch.ones(7).double())


def test_the_dense_vectors_are_those_of_sentence_transformers(dense, folder, inputs):
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu").double().encode(rows(7))
    with torch.no_grad():
        ours = dense(**inputs).logits
    torch.testing.assert_close(ours, torch.from_numpy(theirs).double(), rtol=0, atol=1e-10)


def test_a_cut_plan_answers_the_same_frozen_saved_and_as_a_segment(dense, inputs, tmp_path):
    adaptive = adapt_embedder(dense)
    depth = len(adaptive.encoder.layers)
    plan = narrowed(adaptive.encoder.sizes, 0.5).shortened(depth - 1)
    nn.init.normal_(adaptive.encoder.head(depth - 1).mix.weight)
    adaptive.plan = plan
    assert apart(adaptive, dense, inputs) > 1e-3
    frozen = freeze(adaptive)
    assert isinstance(frozen, AdaptiveEmbedder)
    assert apart(adaptive, frozen, inputs) < 1e-12
    frozen.save_pretrained(tmp_path / "cut")
    opened = sparing.load(tmp_path / "cut")
    assert isinstance(opened, AdaptiveEmbedder)
    assert apart(frozen, opened, inputs) == 0
    (segment,) = segments(adaptive)
    with torch.no_grad():
        vector, hidden = segment(**inputs)
        assert float((vector - frozen(**inputs).logits).abs().max()) < 1e-12
    assert hidden.shape[:2] == inputs["input_ids"].shape


def test_pads_change_nothing(dense, inputs):
    adaptive = adapt_embedder(dense)
    with torch.no_grad():
        together = adaptive(**inputs).logits
        for row, one in enumerate(together):
            count = int(inputs["attention_mask"][row].sum())
            alone = {name: value[row : row + 1, :count] for name, value in inputs.items()}
            assert float((adaptive(**alone).logits[0] - one).abs().max()) < 1e-10


def test_a_plan_that_leaves_tokens_or_inputs_out_is_refused(dense):
    adaptive = adapt_embedder(dense)
    plan = adaptive.plan
    changes = ({"exits": (1,), "threshold": 0.9}, {"tokens_kept": 0.5, "tokens_after": 1})
    for change in changes:
        with pytest.raises(UsageError, match="runs all tokens of all inputs"):
            adaptive.plan = replace(plan, **change)
    assert adaptive.plan == plan


def test_odd_inputs_are_named_or_answered(dense):
    adaptive, ids = adapt_embedder(dense), torch.full((2, 4), 7)
    with torch.no_grad():
        assert adaptive(input_ids=ids[:0]).logits.shape == (0, 16)
        one = ids[:, :1]
        gap = adaptive(input_ids=one).logits - dense(input_ids=one).logits
        assert float(gap.abs().max()) < 1e-10
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]])
    with pytest.raises(UsageError, match="at least one real token"):
        adaptive(input_ids=ids, attention_mask=mask)
    with pytest.raises(UsageError, match="too many: the model reads"):
        adaptive(input_ids=torch.full((1, 600), 7))
    for kind, most in ((torch.bfloat16, 0.05), (torch.float16, 0.005)):
        with torch.no_grad():
            half = adapt_embedder(dense).to(kind)(input_ids=ids).logits
            assert float((half.double() - dense(input_ids=ids).logits).abs().max()) < most


def test_importance_is_of_all_parts_and_repeats(dense, inputs):
    seen = [vector_importance(dense, [{**inputs, "labels": 0}], seed=3) for _ in range(2)]
    assert torch.equal(seen[0].heads, seen[1].heads)
    assert bool((seen[0].heads > 0).all())
    assert seen[0].examples == 7


def test_a_folder_that_is_no_embedding_model_is_refused(tmp_path, folder):
    with pytest.raises(UsageError, match=r"it has no modules\.json"):
        open_sentences(str(save(tmp_path / "model", "span")))


def test_modules_without_an_adaptive_form_are_named(dense):
    from sentence_transformers.sentence_transformer import modules

    pooling, norm = dense.later
    width = pooling.embedding_dimension
    tanh = modules.Dense(width, 5)
    assert vector_form([pooling, tanh, norm], width).layers == ((5, "tanh", True),)
    cases = {
        "max": [modules.Pooling(width, "max")],
        "gelu": [pooling, modules.Dense(width, 5, activation_function=nn.GELU())],
        "Normalize": [pooling, norm, tanh],
        "leaves the prompt out": [modules.Pooling(width, "mean", include_prompt=False)],
    }
    for words, later in cases.items():
        with pytest.raises(Unsupported, match=words):
            vector_form(later, width)


def test_a_damaged_entry_is_one_line(dense, tmp_path):
    adapt_embedder(dense).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["sparing"]["adaptive"]["vector"]["pooling"] = "max"
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="is damaged") as seen:
        sparing.load(tmp_path)
    assert "\n" not in str(seen.value)
