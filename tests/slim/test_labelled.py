"""A labelled task of entities: the dense model's answers guide, and the labels score at the end."""

from __future__ import annotations

import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from sparing.core.errors import UsageError
from sparing.experiment.inputs.task import load_for
from sparing.report.page import write_report
from sparing.slim.options import Options
from sparing.slim.study import prepare, task_of
from sparing.tasks.shared.scores import scores
from sparing.train import Recipe, evaluate, train
from sparing.transfer.opening import open_model
from tests.agree.kinds import ENTITIES, LABELS, save
from tests.slim.conftest import TINY, of_name, only, run_of
from tests.tasks.conll import save_conll
from tests.tasks.test_rankings import save_queries
from tests.tasks.test_squad import write_questions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    model = save(folder / "model", "entities", num_hidden_layers=3, initializer_range=0.2)
    source = str(save_conll(folder / "ner", train=120, dev=240, test=60))
    tagger, task = open_model(str(model)), load_for(source, {}, str(model), None)[0]
    recipe = Recipe(epochs=12, batch_size=8, learning_rate=0.01, evaluate_every_epochs=4)
    train(tagger, task, recipe, output_dir=folder / "training-run")
    tagger.save_pretrained(model)
    return Options(model=str(model), task=source, **TINY)


@pytest.fixture(scope="module")
def finished(options, tmp_path_factory):
    return run_of(options, tmp_path_factory.mktemp("run") / "ner", "onnxruntime")


def test_every_form_is_scored_by_the_labels(finished, options):
    assert [failure.error for failure in finished.failures] == []
    task = load_for(options.task, {}, options.model, None)[0]
    assert task.labels == ENTITIES  # the model's order, not the task's own
    right = evaluate(open_model(options.model), task).scores
    assert right["entity_f1"] > 0.3
    for name in (*task.metrics, "same_answer"):
        scored = of_name(finished, "whole_score", metric=name, arm="dense", precision="float32")
        expected = right.get(name, 1.0)
        assert [record.value for record in scored] == pytest.approx([expected] * len(scored))
        assert {record.labels["primary"] for record in scored} == {name == "entity_f1"}
    assert len(of_name(finished, "disagreement")) == 1
    given = task_of(options)[0]
    assert (given.metric, given.metrics[1:]) == ("same_answer", task.metrics)


def test_the_page_shows_both(finished):
    page = write_report(finished.folder)["md"].read_text()
    assert "| Entity F1 |" in page
    assert "Same answer" in page  # plans are chosen by agreement
    (goal,) = [goal for goal in finished.goals if "dense score kept" in goal.name]
    assert goal.value is not None


@pytest.fixture
def reader(tmp_path_factory, monkeypatch):
    """The options of a reader on questions in SQuAD's form; one passage is long."""
    folder = tmp_path_factory.mktemp("reader")
    monkeypatch.setenv("SPARING_DATA", str(folder))
    write_questions(folder / "squad", 60, words=12)
    sizes = {"num_hidden_layers": 3, "max_position_embeddings": 96}
    model = save(folder / "model", "span", **sizes)
    source = folder / "squad" / "dev-v1.1.json"
    content = json.loads(source.read_text())
    long = content["data"][0]["paragraphs"][0]
    long["context"] += " more" * 90
    source.write_text(json.dumps(content))
    options = {"max_tokens": 90, "stride": 15}
    return Options(model=str(model), task="squad", task_options=options, **TINY)


def test_a_reader_is_scored_by_its_answers_in_all_windows(reader, tmp_path, three):
    task = task_of(reader)[0]
    assert (task.metric, task.metrics[1:]) == ("same_answer", ("token_f1", "exact_match"))
    several = "test: 3 of 9 questions have a passage of several windows: the best answer"
    assert any(note.startswith(several) for note in task.notes)
    assert len(task.test) == 9
    result = run_of(reader, tmp_path / "run")
    assert [failure.error for failure in result.failures] == []
    whole = load_for("squad", reader.task_options, reader.model, None)[0]
    right = evaluate(open_model(reader.model), whole)
    for name in ("token_f1", "exact_match"):
        (dense,) = of_name(
            result, "whole_score", metric=name, arm="dense", engine="eager", precision="float32"
        )
        assert dense.count == 9
        assert dense.value == pytest.approx(mean(right.per_example[name]))
        assert dense.labels["primary"] == (name == "token_f1")
    assert "3 of 9 questions" in write_report(result.folder)["md"].read_text()
    steps = three.steps_in(result.folder)
    rows = three.rows_of(steps, three.forms_of(steps))
    scores = {row["score"] for row in rows if row["model"] == "dense"}
    assert any(score == pytest.approx(mean(right.per_example["token_f1"])) for score in scores)


@pytest.fixture
def three(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr("sparing.export.forms.missing_packages", only("onnxruntime"))
    script = importlib.import_module("slim_three_layers")
    monkeypatch.setattr(importlib.import_module("sts_forms"), "LAYERS", 1)
    return script


def test_three_layers_are_trained_and_scored_beside_it(finished, tmp_path, three):
    shutil.copytree(finished.folder, tmp_path / "run")
    steps = three.steps_in(tmp_path / "run")
    rows = three.rows_of(steps, three.forms_of(steps))
    named = {(row["model"], row["precision"]): row for row in rows}
    assert set(named) >= {(m, p) for m in ("dense", "slim") for p in ("float32", "int8")}
    assert named["dense", "float32"]["share"][0] == 1
    assert named["three layers", "float32"]["better"][0] == 0
    for precision in ("float32", "int8"):
        of_run = {record.value for record in of_name(finished, "whole_score", metric="entity_f1")}
        assert min(abs(named["slim", precision]["score"] - value) for value in of_run) < 1e-6
    assert three.layers_table(rows).count("\n") == len(rows) + 1


def test_a_model_of_another_task_is_named(options, tmp_path):
    base = save(tmp_path / "number", "number")
    with pytest.raises(UsageError, match="is not fine-tuned for task ner: train it first with"):
        prepare(replace(options, model=str(base)), tmp_path / "run")
    span = save(tmp_path / "span", "span")
    with pytest.raises(UsageError, match="is not fine-tuned for task ner: train it first with"):
        prepare(replace(options, model=str(span)), tmp_path / "run")
    path = save_queries(tmp_path / "t.csv", 200)
    ranked = {"task": str(path), "task_options": {"answer": "ranking"}, "model": str(base)}
    with pytest.raises(UsageError, match="give --most-difference"):
        prepare(replace(options, **ranked), tmp_path / "run")


def test_rankings_and_several_labels_are_prepared_too(options, tmp_path):
    reranker = save(tmp_path / "number", "number")
    path = save_queries(tmp_path / "t.csv", 200)
    ranked = {"task": str(path), "task_options": {"answer": "ranking"}, "most_difference": 0.1}
    given = replace(options, model=str(reranker), **ranked)
    prepare(given, tmp_path / "run")
    task = task_of(given)[0]
    assert (task.metric, task.metrics[1]) == ("correlation", "map")
    truth = task.truth(task.test)
    perfect = scores(("map", "mrr", "ndcg@10"), truth[:, :1], truth)
    assert perfect == {"map": 1, "mrr": 1, "ndcg@10": 1}
    guard = save(tmp_path / "labels", "labels")
    lines = ["text,label"]
    lines += [
        f"text {n},{'|'.join(name for name in LABELS if n % (2 + len(name)) == 0)}"
        for n in range(900)
    ]
    path.write_text("\n".join(lines) + "\n")
    several = {"task": str(path), "task_options": {"answer": "labels"}, "model": str(guard)}
    prepare(replace(options, **several), tmp_path / "other")
