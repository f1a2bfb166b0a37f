"""An embedding model from texts to a served folder: vectors, their certificate, what is saved."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertModel

import sparing
from sparing.core.errors import DataError, Unsupported, UsageError
from sparing.report.page import write_report
from sparing.slim.answer import Vector, cosines
from sparing.slim.evidence.changed import Changed, Moved, changed_of, read_changed, write_changed
from sparing.slim.options import Options
from sparing.slim.study import prepare, steps_of, task_of
from tests.agree.kinds import save
from tests.environments import BRIDGE, ENCODE, environment
from tests.slim.conftest import ROWS, TINY, of_name, run_of, texts_of
from tests.slim.served import expected, formed, written

LEAST = 0.25


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vector") / "model"
    return save(folder, "vector", num_hidden_layers=3)


@pytest.fixture(scope="module")
def options(embedder, texts_file):
    return Options(
        model=str(embedder), task="", texts=str(texts_file), **TINY | {"least_cosine": LEAST}
    )


@pytest.fixture(scope="module")
def finished(options, tmp_path_factory):
    return run_of(options, tmp_path_factory.mktemp("run") / "vectors", "onnxruntime")


def test_the_run_ends_with_a_bound_on_vectors_that_differ(finished):
    assert [failure.error for failure in finished.failures] == []
    (seen,) = of_name(finished, "disagreement")
    assert seen.labels["least_cosine"] == LEAST
    assert of_name(finished, "frontier_score", kind="exits") == []
    assert {r.labels["threshold"] for r in of_name(finished, "candidate_speed")} == {1.0}
    names = {r.labels["metric"] for r in of_name(finished, "whole_score")}
    assert names == {"cosine"}


def test_agreement_is_the_share_of_large_enough_cosines(finished):
    from safetensors.torch import load_file

    answers = load_file(finished.folder / "answers.safetensors")
    for record in of_name(finished, "agreement", arm="slim"):
        form = next(
            name
            for name in answers
            if name.startswith(f"slim, {record.labels['engine']} {record.labels['precision']}")
        )
        near = torch.cosine_similarity(answers[form].double(), answers["labels"].double())
        assert record.value == pytest.approx(float((near >= LEAST).double().mean()))
        assert record.labels["divergence"] == pytest.approx(float(1 - near.mean()), abs=1e-6)


def test_the_page_speaks_of_vectors(finished):
    page = write_report(finished.folder)["md"].read_text()
    assert "Two vectors agree from a cosine of 0.25 on." in page
    assert "nats on the choosing inputs" not in page


def test_sentence_transformers_opens_what_is_saved(finished, texts_file):
    folder, texts = finished.folder / "model" / "torch", texts_file.read_text().splitlines()[:5]
    opened = SentenceTransformer(str(folder), device="cpu")
    model = sparing.load(folder)
    ours = opened.encode(texts)
    inputs = opened.tokenize(texts)
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        expected = model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        ).logits
    np.testing.assert_allclose(ours, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("model", ["dense", "slim"])
def test_the_program_on_the_card_of_the_served_folder_gives_the_vector(
    finished, options, model, tmp_path
):
    steps = steps_of(options, task_of(options)[0], finished.folder)
    form = formed(model, "onnxruntime")
    card, vector = written(steps, form, tmp_path / "serve")
    np.testing.assert_allclose(vector, expected(steps, form), rtol=0, atol=1e-4)
    assert "Labels:" not in card
    opened = SentenceTransformer(str(finished.folder / "model" / "torch"), device="cpu")
    ours = opened.encode(["a text"])[0]
    assert (np.abs(vector - ours).max() < 1e-4) == (model == "slim")


@pytest.mark.slow
def test_the_program_runs_in_an_environment_without_pytorch(
    finished, options, bare_python, tmp_path
):
    steps = steps_of(options, task_of(options)[0], finished.folder)
    form = formed("slim", "onnxruntime")
    vector = written(steps, form, tmp_path / "serve", bare_python)[1]
    np.testing.assert_allclose(vector, expected(steps, form), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_sentence_transformers_opens_the_served_folder_in_openvino(finished, options, tmp_path):
    steps = steps_of(options, task_of(options)[0], finished.folder)
    written(steps, formed("slim", "openvino"), tmp_path / "serve")
    python = environment(tmp_path / "venv", *BRIDGE)
    given = [python, "-c", ENCODE, tmp_path / "serve", json.dumps(["a text", "good w3 bad"])]
    opened = subprocess.run(given, capture_output=True, text=True, timeout=300)
    assert opened.returncode == 0, opened.stderr[-2000:]
    vectors = np.array(json.loads(opened.stdout.splitlines()[-1]))
    ours = SentenceTransformer(str(finished.folder / "model" / "torch"), device="cpu")
    texts = ["a text", "good w3 bad"]
    np.testing.assert_allclose(vectors, ours.encode(texts), atol=0.02)  # bfloat16, on some


def test_an_embedding_model_needs_texts_or_a_task(embedder, tmp_path):
    with pytest.raises(Unsupported, match="give --texts FILE, which needs no labels, or a --task"):
        prepare(Options(model=str(embedder), task=""), tmp_path / "run")


def test_dropped_tokens_and_objects_are_refused_before_anything_is_written(
    embedder, options, texts_file, tmp_path
):
    with pytest.raises(UsageError, match="keeps all tokens"):
        prepare(replace(options, tokens=(1.0, 0.5)), tmp_path / "run")
    model = SentenceTransformer(str(embedder), device="cpu")
    with pytest.raises(UsageError, match="given as a folder"):
        sparing.slim(model, texts=str(texts_file), output_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pairs_have_no_vector(embedder, tmp_path):
    lines = [json.dumps({"sentence1": text, "sentence2": text[::-1]}) for text in texts_of(ROWS)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    options = Options(model=str(embedder), task="", texts=str(tmp_path / "pairs.jsonl"), **TINY)
    with pytest.raises(DataError, match="a vector is of one text"):
        prepare(options, tmp_path / "run")


def test_two_vectors_agree_from_the_least_cosine_on():
    dense = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    served = torch.tensor([[3.0, 0.0], [0.8, 0.6], [0.6, 0.8], [torch.nan, 0.0]])
    with pytest.raises(DataError, match="text 2 has the length 0"):
        cosines(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), dense[:2])
    answer = Vector(0.8 - 1e-6)
    assert answer.differs(served, dense).tolist() == [False, False, True, True]
    assert cosines(served, dense)[:3].tolist() == pytest.approx([1, 0.8, 0.6])
    assert Vector(0.5).distance(served[:3], dense[:3]) == pytest.approx(0.2)


def test_vectors_that_moved_are_listed_with_the_least_cosine_first(finished, options, tmp_path):
    task, _ = task_of(options)
    dense = torch.eye(3)[[0, 0, 0]]
    served = torch.tensor([[0.6, 0.8, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    moved = changed_of(task, task.test, served, dense, Vector(0.9))
    assert [(one.index, round(one.cosine, 6)) for one in moved] == [(2, 0.0), (0, 0.6)]
    assert moved[0].texts
    write_changed(tmp_path, moved)
    assert read_changed(tmp_path) == moved
    write_changed(tmp_path, [moved[0], Changed(0, (), "a", "b", 0.5, 0.6)])
    with pytest.raises(DataError, match="several kinds of answers"):
        read_changed(tmp_path)


@pytest.mark.parametrize("change", [{"cosine": "x"}, {"texts": "x"}, {"index": 1.5}])
def test_a_damaged_line_is_named(tmp_path, change):
    line = {"index": 0, "texts": ["x"], "cosine": 0.5} | change
    (tmp_path / "changed.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(DataError, match="line 1 is not a changed answer"):
        read_changed(tmp_path)
    assert Moved(0, ("x",), 0.5).cosine == 0.5


def test_a_dense_vector_of_zeros_is_named_before_anything_is_trained(options, tmp_path):
    folder = save(tmp_path / "zeros", "vector", num_hidden_layers=3)
    model = BertModel.from_pretrained(folder)
    torch.nn.init.zeros_(model.encoder.layer[-1].output.LayerNorm.weight)
    torch.nn.init.zeros_(model.encoder.layer[-1].output.LayerNorm.bias)
    model.save_pretrained(folder)
    ended = run_of(replace(options, model=str(folder)), tmp_path / "run")
    assert "text 1 has the length 0: it has no cosine" in ended.failures[0].error
    assert not (tmp_path / "run" / "models").exists()


def test_a_pooling_without_an_adaptive_form_is_refused_before_anything_is_written(
    options, tmp_path
):
    folder = save(tmp_path / "max", "vector")
    pooling = folder / "1_Pooling" / "config.json"
    stated = json.loads(pooling.read_text()) | {"pooling_mode_mean_tokens": False}
    pooling.write_text(json.dumps(stated | {"pooling_mode_max_tokens": True}))
    with pytest.raises(Unsupported, match="mean or cls; got 'max'"):
        prepare(replace(options, model=str(folder)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_slim_model_is_not_slimmed_again(finished, options, tmp_path):
    again = replace(options, model=str(finished.folder / "model" / "torch"))
    with pytest.raises(Unsupported, match="give the dense one"):
        prepare(again, tmp_path / "run")


def test_half_precision_and_long_texts_are_read(embedder, options, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(embedder, half)
    BertModel.from_pretrained(embedder).half().save_pretrained(half)
    lines = texts_of(ROWS)
    (tmp_path / "texts.txt").write_text("\n".join([*lines, "good " * 600, "x"]) + "\n")
    texts = str(tmp_path / "texts.txt")
    ended = run_of(replace(options, model=str(half), texts=texts), tmp_path / "run")
    assert ended.failures == []
    assert any("cut" in note for note in ended.config["task"]["notes"])
