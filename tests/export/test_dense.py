"""The dense model answers the same in every engine; INT8 nearly so."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from sparing.core.errors import Unsupported
from sparing.export.dense import compile_obstacle, compiled_segments, dense_segment
from sparing.export.engine import Chain
from sparing.export.forms import Forms
from sparing.export.int8 import Int8Settings, logit_shift
from tests.export.segments import TOKENS, VOCABULARY, images, text_segments, texts

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": 3,
}


def bert():
    torch.manual_seed(0)
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=TOKENS, **SIZES)
    return BertForSequenceClassification(config).eval()


def vit():
    torch.manual_seed(0)
    config = ViTConfig(image_size=16, patch_size=4, num_channels=1, **SIZES)
    return ViTForImageClassification(config).eval()


def test_a_compiled_segment_is_compiled_for_many_and_for_one_before_it_is_given(monkeypatch):
    sizes = []

    def compiled(segment, **options):
        segment.register_forward_pre_hook(
            lambda _, args, given: sizes.append(len(given["input_ids"])), with_kwargs=True
        )
        return segment

    monkeypatch.setattr(torch, "compile", compiled)
    compiled_segments(text_segments()[:1], texts(5))
    assert sizes == [5, 1]


@pytest.mark.parametrize(
    ("error", "says"),
    [(RuntimeError("no compiler\nfound"), "no compiler"), (KeyError(), "KeyError")],
)
def test_a_compiler_that_fails_is_reported_in_one_line(error, says, monkeypatch):
    def failing(*_, **__):
        raise error

    monkeypatch.setattr(torch, "compile", failing)
    with pytest.raises(Unsupported, match=rf"torch.compile does not work here: {says}(\(\))?$"):
        compiled_segments(text_segments()[:1], texts(5))


def test_whether_a_device_compiles_is_tried_once(monkeypatch):
    tried = []

    def failing(*_, **__):
        tried.append(1)
        raise RuntimeError("no compiler\nfound")

    monkeypatch.setattr(torch, "compile", failing)
    compile_obstacle.cache_clear()
    said = {compile_obstacle("cpu") for _ in range(2)}
    compile_obstacle.cache_clear()
    assert said == {"torch.compile does not work here: no compiler"}
    assert len(tried) == 1


def test_transformers_models_become_segments():
    inputs = texts(5, 9)
    model = bert()
    torch.testing.assert_close(
        Chain([dense_segment(model)])(inputs)[0], model(**inputs).logits, rtol=1e-4, atol=1e-5
    )
    model = vit()
    torch.testing.assert_close(Chain([dense_segment(model)])(images())[0], model(**images()).logits)


def test_other_models_are_refused():
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    with pytest.raises(Unsupported, match="no dense chain"):
        dense_segment(torch.nn.Linear(2, 2))
    model = T5ForConditionalGeneration(T5Config(vocab_size=9, **sizes))
    assert dense_segment(model).model is model


@pytest.mark.slow
@pytest.mark.parametrize(("build", "inputs"), [(bert, texts), (vit, images)])
def test_transformers_models_in_every_engine(tmp_path, build, inputs):
    """Compiling one needs a C++ compiler and a minute."""
    model = build()
    candidates = [Int8Settings("blocks"), Int8Settings("tensor")]
    segments = [dense_segment(model).eval()]
    options = {"int8": candidates, "compiled": True, "eager_int8": True}
    several = [{name: x[n : n + 1] for name, x in inputs(20).items()} for n in range(20)]
    forms = Forms(segments, inputs(2), tmp_path, calibration=several, **options)
    assert {form.settings for form in forms} >= {"torch.ao", "torch.compile", *map(str, candidates)}
    with torch.no_grad():
        plain = model(**inputs(7)).logits
    for form in forms:
        shift = logit_shift(plain, forms[form](inputs(7))[0])
        allowed = {"float32": 1e-4, "bfloat16": 0.1, "int8": 0.2}[form.precision]
        assert shift.relative < allowed, str(form)
