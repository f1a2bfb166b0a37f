"""Models, tokenizers and data sets given as objects, and what results print."""

from __future__ import annotations

import json

import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

import sparing
from sparing import api
from sparing.core.errors import Unsupported, UsageError
from sparing.experiment.cells import sweep
from sparing.experiment.inputs.given import given_data, given_model
from sparing.tasks import load_task
from sparing.tasks.texts import read_texts
from sparing.train import Recipe
from tests.cli.conftest import WORDS, memory_in_this_process

SMALL = {
    "recipe": Recipe(epochs=1),
    "lengths": (64,),
    "memory_lengths": (64,),
    "rounds": 5,
    "energy_seconds": 0.02,
}


def dataset(count=60, names=("bad", "good"), **more):
    rows = {
        "sentence": [f"the film was {['bad', 'good'][n % 2]},\nand long {n}" for n in range(count)],
        "label": [n % 2 for n in range(count)],
        "idx": list(range(count)),
    }
    labels = ClassLabel(names=list(names))
    features = Features({"sentence": Value("string"), "label": labels, "idx": Value("int32")})
    return Dataset.from_dict({**rows, **more}, features=features)


def model(seed=0, **more):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=48,
        **more,
    )
    return BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)})


@pytest.fixture(scope="module")
def compared(tmp_path_factory, tokenizer):
    """A comparison of objects alone, and the function that gives it again."""
    folder = tmp_path_factory.mktemp("objects") / "run"
    data = DatasetDict(train=dataset(), test=dataset(20))
    given = {"seeds": 1, "tokenizer": tokenizer, "output_dir": folder, **SMALL}

    def again(other_model=None, rows=data):
        return sparing.compare(rows, ["linear"], model=other_model or model(), **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "peak_memory", memory_in_this_process)
        yield again(), again


def test_compare_takes_objects(compared):
    outcome, _ = compared
    assert outcome.failures == []
    assert outcome.config["task"]["examples"]["test"] == 20
    identity = outcome.config["identity"]
    assert "tokenizer" in identity["task_options"]
    for name in ("model", "task"):
        assert f"{outcome.folder}/.given/" in identity[name]


def test_the_same_objects_are_the_same_run_and_others_are_not(compared):
    outcome, again = compared
    assert again().records[0] == outcome.records[0]
    with pytest.raises(UsageError, match="holds another run: model was"):
        again(other_model=model(seed=1))
    with pytest.raises(UsageError, match="holds another run: task was"):
        again(rows=DatasetDict(train=dataset(62), test=dataset(20)))


def test_an_outcome_prints_its_answer_and_where_everything_lies(compared):
    outcome, _ = compared
    lines = str(outcome).splitlines()
    assert len(lines) <= 40
    assert lines[0] == outcome.answer
    assert outcome.answer.endswith(".")
    assert f"The page: {outcome.folder / 'report.html'}" in lines
    assert outcome.answer.split(":")[0] in (outcome.folder / "report.md").read_text()
    facts = outcome.to_dict()
    assert (facts["answer"], facts["page"]) == (outcome.answer, str(outcome.page))
    assert "<table" in outcome._repr_html_()


def test_evaluate_takes_objects(tokenizer, tmp_path):
    whole = sparing.evaluate(model(), dataset(30), tokenizer=tokenizer)
    assert (whole.evaluation.count, whole.split) == (30, "test")
    assert len(str(whole).splitlines()) <= 40
    assert "accuracy" in str(whole)
    assert "of 30 right" in str(whole)
    json.dumps(whole.to_dict())
    model().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = DatasetDict(train=dataset(), test=dataset(30))
    for given in (tmp_path / "model", model().from_pretrained(tmp_path / "model")):
        assert sparing.evaluate(given, rows).score == whole.score
    assert (
        sparing.evaluate(nn.DataParallel(model()), rows, tokenizer=tokenizer).score == whole.score
    )


def test_prune_takes_objects_and_paths(tokenizer, tmp_path):
    pruned = model()
    report = sparing.prune(pruned, 0.5, task=dataset(), tokenizer=tokenizer, examples=16)
    assert (report.removed, report.heads) == (2, 4)
    assert len(str(report).splitlines()) <= 40
    model().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="needs an output_dir"):
        sparing.prune(tmp_path / "model", 0.5, task=dataset())
    out = tmp_path / "out"
    sparing.prune(tmp_path / "model", 0.5, task=dataset(), examples=16, output_dir=out)
    assert sparing.evaluate(out, dataset()).evaluation.count == 60


def test_slim_refuses_objects_it_cannot_serve_before_it_writes(tokenizer, tmp_path):
    arguments = {"output_dir": tmp_path / "run", "tokenizer": tokenizer}
    several = model(problem_type="multi_label_classification")
    with pytest.raises(Unsupported, match="gives several labels: give --texts FILE"):
        sparing.slim(several, dataset(), **arguments)
    with pytest.raises(UsageError, match="does not say what it was trained for"):
        sparing.slim(model(), **arguments)
    assert not (tmp_path / "run").exists()
    turned = dataset(names=("LABEL_1", "LABEL_0"))
    with pytest.raises(UsageError, match="has the labels LABEL_0, LABEL_1"):
        sparing.slim(model(), turned, **arguments)


@pytest.mark.parametrize("given", ["objects", "paths"])
def test_slim_takes_texts_in_place_of_a_task(tokenizer, tmp_path, monkeypatch, given):
    runs = []
    monkeypatch.setattr(api, "_run", lambda study, options, *_: runs.append(options))
    texts = [f"the film was good {n}" for n in range(5)]
    (tmp_path / "mine.txt").write_text("\n".join(texts))
    model().save_pretrained(tmp_path / "model")
    named = {"model": tmp_path / "model", "texts": tmp_path / "mine.txt"}
    chosen = {"model": model(), "texts": texts} if given == "objects" else named
    sparing.slim(**chosen, tokenizer=tokenizer, output_dir=tmp_path / "run")
    (options,) = runs
    assert options.task == ""
    assert list(read_texts(options.texts).rows) == [(text,) for text in texts]
    assert sparing.load(options.model).config.vocab_size == len(WORDS)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sparing.compare("digits", ["linear"], epoch=1), "did you mean 'epochs'"),
        (lambda: sparing.compare("digits", ["linear"], seed=1), "did you mean 'seeds'"),
        (lambda: sparing.slim("vit", "digits", sped=1), "did you mean 'speed'"),
        (lambda: sparing.advise("bert", token=1), "did you mean 'tokens'"),
        (lambda: sparing.evaluate("x", taks="digits"), "did you mean 'task'"),
        (lambda: sparing.prune("x", 0.5, outputdir="y"), "did you mean 'output_dir'"),
        (
            lambda: sparing.evaluate(nn.Linear(2, 2), "digits"),
            "evaluate needs a transformers model",
        ),
        (lambda: sparing.evaluate(model(), 3), "a task is a name, a path, a datasets.Dataset"),
    ],
)
def test_mistakes_are_usage_errors(call, words):
    with pytest.raises(UsageError, match=words):
        call()


def test_texts_come_back_as_they_were(tmp_path):
    task = load_task(given_data(dataset(names=("b", "a")), tmp_path), vocabulary=300, max_tokens=99)
    assert task.labels == ("0", "1")  # names that do not sort as their numbers stay numbers
    assert any("42 broken" not in note for note in task.notes)
    named = load_task(given_data(dataset(), tmp_path), vocabulary=300, max_tokens=99)
    assert named.labels == ("bad", "good")
    pool = [*named.train.labels, *named.validation.labels, *named.test.labels]
    assert len(pool) == 60


def test_pictures_come_back_as_they_were(tmp_path):
    from datasets import Image
    from PIL import Image as Pictures

    shown = [Pictures.new("RGB", (8, 8), (20 * n, 0, 0)) for n in range(12)]
    features = Features({"image": Image(), "label": ClassLabel(names=["dark", "bright"])})
    rows = Dataset.from_dict({"image": shown, "label": [n // 6 for n in range(12)]}, features)
    path = given_data(DatasetDict(train=rows, test=rows), tmp_path)
    task = load_task(path, image_size=8, patch_size=4)
    assert (task.kind, task.labels) == ("image", ("0", "1"))
    assert task.test.labels.tolist() == [n // 6 for n in range(12)]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": ["a", "b"]}, "has no column 'label'"),
        ({"label": [0, 1]}, "no column of texts or images"),
        ({"input_ids": [[1], [2]], "label": [0, 1]}, "the one before it was tokenized"),
    ],
)
def test_data_that_is_no_task_says_why(tmp_path, columns, words):
    with pytest.raises(UsageError, match=words):
        given_data(Dataset.from_dict(columns), tmp_path)


def test_nothing_is_written_into_a_folder_of_others(tmp_path, tokenizer):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        given_model(model(), tokenizer, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
