"""Slim from end to end on families whose layers know distances, on texts without labels."""

from __future__ import annotations

from dataclasses import replace

import pytest

import sparing
from sparing.export.folder import open_chain
from tests.contract.family_folders import save_family
from tests.slim.conftest import BAD, GOOD, NEUTRAL, run_of

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["deberta-v2", "modernbert"])
def test_a_model_of_texts_becomes_a_faster_one(family, texts_options, tmp_path):
    words = (*SPECIAL, *GOOD, *BAD, *NEUTRAL)
    model = save_family(tmp_path / "dense", family, words)
    result = run_of(replace(texts_options, model=str(model)), tmp_path / "run", "onnxruntime")
    assert not result.failures
    again = sparing.load(tmp_path / "run" / "model" / "torch")
    assert again.config.base_model_type == family
    assert len(open_chain(tmp_path / "run" / "model" / "serve")) >= 1
