"""Imitated INT8 answers as ONNX Runtime's INT8 does, which float32 does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from sparing.core.processor import int8_sums_overflow
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import export_chain
from sparing.export.int8 import Int8Settings, logit_shift, quantise
from sparing.export.onnx import export_onnx
from sparing.layers.plan import narrowed
from sparing.train.quantised import Int8Rules, imitating_int8
from sparing.transfer.adaptive import adapt
from sparing.transfer.freezing import freeze, segments
from tests.transfer.classifiers import alone, dense, texts

LENGTHS = [9, 4, 7, 12, 5, 8, 11, 6]
# The order of floating-point sums differs, so that a value may be rounded to its other neighbour.
NEAR, FAR = 0.003, 0.01


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """By the tokens kept: two layers of half of every width with two exits, and their export."""

    @cache
    def made(tokens):
        adaptive = adapt(dense(dtype=torch.float32, num_labels=3, num_hidden_layers=2), exits=[1])
        plan = narrowed(adaptive.encoder.sizes, 0.5)
        plan = replace(plan, exits=(1,), threshold=0.9, tokens_kept=tokens, tokens_after=1)
        model = freeze(adaptive, plan).eval()
        folder = tmp_path_factory.mktemp("frozen")
        return model, export_chain(segments(model), texts([9, 9]), folder)

    return made


@torch.no_grad()
def _every_exit(model, given):
    rows, layout = model.embed(**given)
    answers = model.encoder.trace(rows, layout, model.plan).answers
    return torch.stack(list(answers.values()), 1).flatten(1)


@pytest.mark.parametrize("tokens", [1.0, 0.5])
def test_it_is_near_the_exported_chain_and_float_is_not(frozen, tmp_path, tokens):
    model, exported = frozen(tokens)
    given = texts(LENGTHS)
    plain = _every_exit(model, given)
    # where sums of 16 bits overflow, what ONNX Runtime makes of 8 bits is not what 8 bits mean
    narrowed = int8_sums_overflow()
    for scales, narrow in (("channel", narrowed), ("channel", True), ("tensor", narrowed)):
        settings = Int8Settings(scales, narrow)
        chain = Chain(quantise(exported, tmp_path / str(settings), settings))
        rows = [chain.every_exit(alone(given, row)) for row in range(len(LENGTHS))]
        int8 = torch.cat(rows).flatten(1)
        with imitating_int8(model, Int8Rules(scales, narrow)):
            imitated = _every_exit(model, given)
        near = logit_shift(int8, imitated).relative
        far = logit_shift(int8, plain).relative
        assert near < NEAR < FAR < far


def test_the_batch_may_share_a_range(frozen, tmp_path):
    model, exported = frozen(1.0)
    given = texts([9] * 6)
    int8 = Chain(quantise(exported, tmp_path / "int8")).every_exit(given).flatten(1)
    shifts = []
    for together in (True, False):
        with imitating_int8(model, Int8Rules(together=together)):
            logits = _every_exit(model, given)
        shifts.append(logit_shift(int8, logits).relative)
    assert shifts[0] < shifts[1] / 3


def test_a_dense_classifier_is_imitated_too(tmp_path):
    model = dense(dtype=torch.float32, num_labels=3, num_hidden_layers=2)
    given = texts(LENGTHS)
    example = {name: value[:2, :5] for name, value in given.items()}
    path = export_onnx(dense_segment(model).eval(), example, tmp_path / "dense.onnx")
    chain = Chain(quantise([path], tmp_path / "int8"))
    int8 = torch.cat([chain(alone(given, row))[0] for row in range(len(LENGTHS))])
    with torch.no_grad(), imitating_int8(model):
        imitated = model(**given).logits
    with torch.no_grad():
        plain = model(**given).logits
    near, far = (logit_shift(int8, logits).relative for logits in (imitated, plain))
    assert near < NEAR < FAR < far
