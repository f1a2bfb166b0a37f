"""Texts without labels: the dense model's answers take their place, and bad files are one line."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

from sparing.core.errors import DataError, SparingError, UsageError
from sparing.experiment.inputs.given import given_texts
from sparing.experiment.registry import find_study
from sparing.export.folder import open_chain
from sparing.slim import models as slim_models
from sparing.slim import texts as slim_texts
from sparing.slim.answer import CLASS
from sparing.slim.inputs import answers_to
from sparing.slim.study import claims_of, steps_of
from sparing.slim.texts import FILE, answer_splits, labelled, texts_task
from sparing.tasks.shared.task import UNLABELLED
from sparing.tasks.texts import read_texts
from tests.slim.conftest import ROWS, label_of, of_name, texts_of

READ = {"options": {}, "seed": 0, "hold_out": "random", "changed": 0.05, "delta": 0.05}
PARTS = {"train", "validation", "calibrate", "test"}


@pytest.fixture(scope="module")
def given(toy, texts_file):
    """The texts as a task."""
    return texts_task(str(texts_file), str(toy), **READ)


@pytest.fixture
def steps(given, texts_options, texts_run, tmp_path):
    """Steps in a folder where the dense model has answered."""
    shutil.copyfile(texts_run.folder / FILE, tmp_path / FILE)
    return steps_of(texts_options, given, tmp_path)


def _rows(examples):
    return {tuple(row.tolist()) for row in examples.inputs}


def test_the_parts_are_disjoint_and_their_sizes_are_noted(given):
    rows = {name: _rows(split) for name, split in given.splits.items()}
    assert set(rows) == PARTS
    names = sorted(rows)
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            assert not rows[name] & rows[other]
    assert sum(map(len, given.splits.values())) == ROWS
    (note,) = [note for note in given.notes if note.startswith("parts of")]
    sizes = {"train": "train", "validation": "choose", "calibrate": "calibrate", "test": "test"}
    for split, name in sizes.items():
        assert f"{name} {len(given.splits[split])}" in note


def test_the_newest_rows_may_be_held_out(toy, texts_file):
    from transformers import AutoTokenizer

    task = texts_task(str(texts_file), str(toy), **{**READ, "hold_out": "last"})
    tokenizer = AutoTokenizer.from_pretrained(toy)
    last = texts_file.read_text().splitlines()[-len(task.test) - len(task.splits["calibrate"]) :]
    expected = {tuple(tokenizer(text)["input_ids"]) for text in last}
    assert _rows(task.test) | _rows(task.splits["calibrate"]) == expected


def test_labels_are_the_answers_of_the_dense_model(given, steps, toy):
    assert not labelled(given)
    assert given.metric == "agreement"
    dense = BertForSequenceClassification.from_pretrained(toy).eval()
    for name, split in steps.task.splits.items():
        if name == "train":
            continue
        answers = answers_to(given, split, dense)
        assert torch.equal(split.labels, answers.argmax(-1))
    assert answers_to(given, given.test, dense).shape == (len(given.test), 2)


def test_training_has_no_labels_and_importance_has_sampled_ones(steps, monkeypatch):
    """A class is sampled from the probabilities: rows that the model is unsure of differ."""
    models = steps.models
    assert set(models.taught_on.train.labels.tolist()) == {UNLABELLED}
    logits = load_file(models.folder / FILE)["train"]
    sampled = models.task.train.labels
    assert set(sampled.tolist()) <= {0, 1}
    sure = logits.softmax(-1).amax(-1) > 1 - 1e-6
    assert torch.equal(sampled[sure], logits.argmax(-1)[sure])
    flat = {**load_file(models.folder / FILE), "train": torch.zeros_like(logits)}
    monkeypatch.setattr(slim_texts, "read_tensors", lambda _: flat)
    even = slim_texts.answered(models.given, models.folder, 0, CLASS).train.labels.double()
    assert 0.35 < float(even.mean()) < 0.65
    again = slim_texts.answered(models.given, models.folder, 0, CLASS).train.labels
    assert torch.equal(again.double(), even)
    assert not torch.equal(
        slim_texts.answered(models.given, models.folder, 1, CLASS).train.labels, again
    )
    seen = []
    monkeypatch.setattr(slim_models, "importance", lambda _, batches: seen.extend(batches))
    monkeypatch.setattr(slim_models, "order_by_importance", lambda *_: None)
    models.ordered()
    assert seen
    assert all(set(batch["labels"].tolist()) <= {0, 1} for batch in seen)


def test_shares_of_answers_and_agreement_are_recorded(texts_run, given):
    shares = {r.labels["class"]: r.value for r in of_name(texts_run, "dense_answers")}
    assert set(shares) == set(given.labels)
    assert sum(shares.values()) == pytest.approx(1)
    for record in of_name(texts_run, "whole_score", metric="agreement"):
        same = {
            name: record.labels[name]
            for name in ("arm", "engine", "precision", "threshold", "cascade")
        }
        (agreement,) = of_name(texts_run, "agreement", **same)
        assert record.value == pytest.approx(agreement.value, abs=0.011)


def test_without_labels_no_score_is_promised(texts_options):
    assert [claim.text for claim in claims_of(texts_options)][
        -1
    ] == "answers of the dense model kept"


def test_before_the_dense_model_has_answered_there_is_no_task(given, texts_options, tmp_path):
    models = steps_of(texts_options, given, tmp_path).models
    with pytest.raises(UsageError, match="has not answered the texts yet"):
        models.task  # noqa: B018


def test_damaged_answers_are_one_line(steps):
    path = steps.models.folder / FILE
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match=f"{FILE} is missing or damaged") as seen:
        steps.models.task  # noqa: B018
    assert "\n" not in str(seen.value)


def test_answers_that_are_not_finite_are_refused_by_their_text(given, toy, tmp_path):
    model = BertForSequenceClassification.from_pretrained(toy)
    with torch.no_grad():
        model.classifier.bias[0] = torch.nan
    with pytest.raises(DataError, match="answer to train text 1 is not a finite number"):
        answer_splits(model, given, tmp_path, CLASS)
    assert not (tmp_path / FILE).exists()


@pytest.fixture(scope="module")
def labels_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("labels") / "texts.csv"
    rows = [f"{text},LABEL_{label_of(text)}" for text in texts_of(ROWS)]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_labels_beside_texts_are_the_score(toy, labels_file, texts_options, tmp_path):
    task = texts_task(str(labels_file), str(toy), **READ)
    assert labelled(task)
    assert task.metric == "accuracy"
    steps = steps_of(replace(texts_options, texts=str(labels_file)), task, tmp_path)
    assert not steps.models.labelless
    assert steps.task is task
    assert torch.equal(steps.models.taught_on.train.labels, task.train.labels)
    dense = steps.dense_logits
    assert steps.keeps_floor(dense)
    assert not steps.keeps_floor(-dense)


def test_without_labels_the_floor_is_no_check(steps):
    assert steps.keeps_floor(-steps.dense_logits)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no texts"),
        ("\n\n  \n", "holds no texts"),
        ("one text alone\n", "holds 1 texts that share nothing"),
        ("the same text\n" * 900, "holds 1 texts that share nothing"),
        ("\n".join(texts_of(150)), "needs at least 400"),
    ],
)
def test_too_few_texts_are_refused_with_the_number(texts_options, tmp_path, content, words):
    (tmp_path / "few.txt").write_text(content)
    options = replace(texts_options, texts=str(tmp_path / "few.txt"))
    with pytest.raises(SparingError, match=words) as seen:
        find_study("slim").run(options, tmp_path / "run")
    assert "\n" not in str(seen.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agree": 0.999}, "needs at least 3,295"),
        ({"texts": "nowhere.txt"}, "no file nowhere.txt"),
        ({"task_options": {"colums": "text"}}, "task_options: .*colums"),
        ({"hold_out": "first"}, "random or last"),
    ],
)
def test_what_cannot_be_promised_is_refused_before_it_begins(
    texts_options, tmp_path, change, words
):
    with pytest.raises(SparingError, match=words) as seen:
        find_study("slim").run(replace(texts_options, **change), tmp_path / "run")
    assert "\n" not in str(seen.value)
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_tokenizer_is_one_line(toy, texts_options, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(toy / name, model / name)
    with pytest.raises(SparingError, match="tokenizer") as seen:
        find_study("slim").run(replace(texts_options, model=str(model)), tmp_path / "run")
    assert "\n" not in str(seen.value)


@pytest.mark.parametrize(("weight", "words"), [(torch.nan, "are not finite"), (3e38, "answer to")])
def test_answers_that_are_no_numbers_end_the_run_in_one_line(
    toy, texts_options, tmp_path, weight, words
):
    """NaN weights are refused before it begins, an overflow when the dense model answers."""
    shutil.copytree(toy, tmp_path / "model")
    model = BertForSequenceClassification.from_pretrained(toy)
    with torch.no_grad():
        model.classifier.weight.fill_(weight)
    model.save_pretrained(tmp_path / "model")
    options = replace(texts_options, model=str(tmp_path / "model"))
    try:
        result = find_study("slim").run(options, tmp_path / "run")
    except SparingError as error:
        message = str(error)
    else:
        assert result.failures[0].cell == "dense-answers"
        message = result.failures[0].error
    assert words in message
    assert "finite" in message
    assert "\n" not in message


def test_what_is_served_reads_longer_texts_than_the_file_has(texts_run, given):
    """A text of tomorrow may be longer than all of today's: the model's own limit holds."""
    chain = open_chain(texts_run.folder / "model" / "serve")
    longest = max(max(part.lengths) for part in given.splits.values())
    limit = 48  # the toy's positions
    assert longest + 1 < limit

    def answer(tokens):
        ids = torch.full((1, tokens), 7)
        return chain({"input_ids": ids, "attention_mask": torch.ones_like(ids)})[0]

    assert answer(longest + 1).isfinite().all()
    assert answer(limit).isfinite().all()
    with pytest.raises(UsageError, match="takes at most 48"):
        answer(limit + 1)


def test_pairs_that_are_given_as_objects_keep_both_texts(tmp_path):
    pairs = [(f"question {n}", f"answer {n}") for n in range(30)]
    read = read_texts(given_texts(pairs, tmp_path))
    assert list(read.rows) == pairs
    labelled = [(*pair, str(n % 2)) for n, pair in enumerate(pairs)]
    frame = [dict(zip(("question", "answer", "label"), row, strict=True)) for row in labelled]
    read = read_texts(given_texts(Dataset.from_list(frame), tmp_path))
    assert list(read.rows) == pairs
    assert list(read.labels) == [row[2] for row in labelled]
    single = read_texts(given_texts([text for text, _ in pairs], tmp_path))
    assert list(single.rows) == [(text,) for text, _ in pairs]
