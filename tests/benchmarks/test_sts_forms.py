"""Every form of an embedding model beside the three layers: a tiny run, from texts to the table."""

from __future__ import annotations

import gzip
import importlib
import json
import sys

import numpy as np
import pytest

from sparing.slim.options import Options
from tests.agree.kinds import save
from tests.benchmarks.test_sts import data as data
from tests.benchmarks.test_sts import sts as sts
from tests.slim.conftest import TINY, only, run_of, texts_of
from tests.slim.served import formed

ROWS = 440


@pytest.fixture
def forms(monkeypatch):
    module = importlib.import_module("sts_forms")
    for name, value in (("LAYERS", 1), ("TIMED", 6), ("ROUNDS", 1)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "model2vec.distill", None)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    texts = folder / "texts.txt"
    texts.write_text("\n".join(texts_of(ROWS)) + "\n")
    model = save(folder / "model", "vector", num_hidden_layers=2)
    given = Options(model=str(model), task="", texts=str(texts), **TINY | {"least_cosine": 0.1})
    result = run_of(given, folder / "run", "onnxruntime")
    assert [failure.error for failure in result.failures] == []
    return result.folder


def test_forms_are_timed_and_evaluated_beside_dense(forms, run, data, sts, tmp_path, monkeypatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparing.export.forms.missing_packages", only("onnxruntime"))
        patch.setattr(sts, "DRAWS", 10)
        patch.setattr(sys, "argv", ["x", str(run), "--output", str(tmp_path / "out.json")])
        forms.main()
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    named = {(row["model"], row["precision"]): row for row in rows}
    assert {model for model, _ in named} == {"dense", "slim", "three layers"}
    dense = named["dense", "float32"]
    assert dense["kept"] == dense["over_class"] == dense["over_float32"] == [1.0, 1.0, 1.0]
    assert dense["cosine"] == pytest.approx([1.0, 1.0])
    assert named["slim", "float32"]["kept"][0] < 1
    assert named["three layers", "int8"]["over_class"][0] > 0
    assert set(named) >= {(m, "int8") for m, _ in named}
    assert forms.forms_table(rows).count("\n") == len(rows) + 1


def test_a_form_gives_the_vectors_of_single_texts(forms, run):
    steps = forms.steps_in(run)
    run = steps.forms.run(formed("dense", "eager"))
    embed = forms._by_text(steps, run)
    texts = [text[:30] for text in texts_of(9, seed=5)]
    singly = [run(dict(steps.task.tokenizer(text, return_tensors="pt")))[0] for text in texts]
    np.testing.assert_allclose(embed(texts), np.stack(singly), rtol=0, atol=1e-5)


def test_sentences_to_distil_on_are_in_no_pair(sts, data):
    module = importlib.import_module("sts_texts")
    shared = next(iter(sts.read_pairs(data))).rows[0][0]
    for name, _columns, head in module.SOURCES:
        path = data / "glue" / name
        path.parent.mkdir(exist_ok=True)
        lines = [["head"] * 6] * head
        lines += [["x"] * 6, [shared.upper()] * 6, [f"five words of {name} here"] * 6]
        lines += [[f"five words of {name} here!"] * 6, ["three words only"] * 6]
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines("\t".join(line) + "\n" for line in lines)
    written = module.sentences(data, 100)
    assert sorted(written) == sorted(f"five words of {name} here" for name, *_ in module.SOURCES)
    assert module.sentences(data, 3) == written[:3]
