"""The folder for a server: what is in it, and the program on its card, run as printed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from transformers import AutoModel

from sparing.slim.serving import write_serving
from sparing.slim.study import steps_of, task_of
from tests.slim.served import expected, formed, promised, written

ENGINES = ("onnxruntime", "openvino")


@pytest.fixture
def steps(texts_run, texts_options):
    """The steps of a finished run, in all engines."""
    return steps_of(texts_options, task_of(texts_options)[0], texts_run.folder)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["dense", "slim"])
def test_the_program_on_the_card_gives_the_forms_answer(steps, model, engine, tmp_path):
    form = formed(model, engine)
    card, answer = written(steps, form, tmp_path / "serve")
    np.testing.assert_allclose(answer, expected(steps, form), rtol=1e-2, atol=1e-2)
    assert "Labels:" in card
    assert "threshold" not in card.partition("```python")[2]


@pytest.mark.parametrize(("engine", "threshold"), [(ENGINES[0], 0.5), (ENGINES[1], 0.999999)])
def test_it_runs_exits_and_the_dense_model_behind_them(steps, engine, threshold, tmp_path):
    """At 0.5 every text exits at once; at the other it goes to the end."""
    form = formed("slim", engine, threshold=threshold, cascade=True)
    card, answer = written(steps, form, tmp_path / "serve")
    np.testing.assert_allclose(answer, expected(steps, form), rtol=1e-2, atol=1e-2)
    assert ("sure enough" in card) == (engine == "openvino")
    gap = np.abs(expected(steps, form) - expected(steps, formed("dense", engine))).max()
    assert (gap > 1e-3) == (threshold == 0.5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("second", [0.5, 0.999999])
def test_it_goes_by_way_of_the_dense_model_in_int8(steps, engine, second, tmp_path):
    """At 0.5 that answers; at the other the dense model in float32 does, to the last digits."""
    names = [(key.model, key.engine, key.precision) for key in steps.forms.keys]
    key = steps.forms.keys[names.index(("slim", engine, "int8"))]
    form = replace(key, threshold=0.999999, cascade=True, second=second)
    card, answer = written(steps, form, tmp_path / "serve")
    np.testing.assert_allclose(answer, expected(steps, form), rtol=1e-2, atol=1e-2)
    assert "to the dense model in INT8" in card
    gap = np.abs(answer - expected(steps, formed("dense", engine))).max()
    assert (gap > 1e-5) == (second == 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.5, 0.999999])
def test_it_runs_in_an_environment_without_pytorch(steps, bare_python, threshold, tmp_path):
    form = formed("slim", "onnxruntime", threshold=threshold, cascade=True)
    answer = written(steps, form, tmp_path / "serve", bare_python)[1]
    np.testing.assert_allclose(answer, expected(steps, form), rtol=1e-2, atol=1e-2)


def test_it_holds_a_configuration_and_no_weights_of_pytorch(steps, tmp_path):
    folder = tmp_path / "serve"
    written(steps, formed("slim", "onnxruntime"), folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert (folder / "tokenizer.json").is_file()
    assert not [path for path in folder.rglob("*") if path.suffix in (".safetensors", ".bin")]
    with pytest.raises(OSError, match="no file named"):
        AutoModel.from_pretrained(folder)


def test_a_form_of_pytorch_has_no_folder(steps, tmp_path):
    form = formed("slim", "eager")
    write_serving(steps, form, promised(form), tmp_path)
    assert not list(tmp_path.iterdir())
