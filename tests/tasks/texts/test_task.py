"""A task of texts for a model: its tokens, its classes, and what is noted or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from sparing.core.errors import UsageError
from sparing.tasks.shared.task import UNLABELLED
from sparing.tasks.shared.text import fast_tokenizer
from sparing.tasks.texts import Parts, Sizes, parts_of, read_texts, task_of_texts
from sparing.tasks.texts.task import token_limit_of
from sparing.train import evaluate
from tests.tasks.tokenizers import save_bert, save_tokenizer

SIZES = Sizes(4, 4, 4)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny BERT with 48 positions, and its tokenizer of letters."""
    folder = save_tokenizer(tmp_path / "model")
    save_bert(folder, len(fast_tokenizer(str(folder))))
    return folder


def parts(rows: list[str], labels: list[str | None] | None = None, **more) -> Parts:
    source = rows if labels is None else {"text": rows, "label": labels}
    return parts_of(read_texts(source), seed=0, sizes=SIZES, needed=1, **more)


def numbered(count: int, word: str = "a film") -> list[str]:
    return [f"{word} {'x' * (n % 5)} {n}" for n in range(count)]


@pytest.mark.parametrize(
    ("change", "answer", "metric"),
    [
        ({"problem_type": "multi_label_classification"}, "labels", "probability_closeness"),
        ({"num_labels": 1}, "number", "correlation"),
    ],
)
def test_labels_are_not_read_for_several_labels_and_numbers(
    model: Path, change, answer, metric
) -> None:
    config = BertConfig.from_pretrained(model, **change)
    BertForSequenceClassification(config).save_pretrained(model)
    task = task_of_texts(parts(numbered(30), ["spam"] * 30), model)
    assert (task.answer, task.metric, task.classes) == (answer, metric, config.num_labels)
    assert "labels are not used: the dense model's answers are" in task.notes
    opened = BertForSequenceClassification.from_pretrained(model)
    with pytest.raises(UsageError, match="the split validation of task the mapping has no labels"):
        evaluate(opened, task, "validation")


def test_texts_without_labels_are_a_task_of_the_models_classes(model: Path) -> None:
    task = task_of_texts(parts(numbered(30)), model)
    assert task.labels == ("LABEL_0", "LABEL_1")
    assert {name: len(part) for name, part in task.splits.items()} == {
        "train": 18,
        "validation": 4,
        "test": 4,
        "calibrate": 4,
    }
    for split in task.splits.values():
        assert set(split.labels.tolist()) == {UNLABELLED}
    text = "".join(task.texts(task.test.inputs[0].tolist()))
    assert text.startswith("[CLS]a")
    with pytest.raises(UsageError, match="the split test of task the list has no labels"):
        _ = task.chance
    opened = BertForSequenceClassification.from_pretrained(model)
    with pytest.raises(UsageError, match="the split validation of task the list has no labels"):
        evaluate(opened, task, "validation")
    batch = task.collate([task.test[0], task.test[1]])
    assert batch["input_ids"].shape[0] == 2


def test_the_same_task_comes_from_the_opened_model(model: Path) -> None:
    opened = BertForSequenceClassification.from_pretrained(model)
    task = task_of_texts(parts(numbered(30)), (opened, fast_tokenizer(str(model))))
    assert task.digest == task_of_texts(parts(numbered(30)), str(model)).digest


@pytest.mark.parametrize(
    ("names", "labels", "numbers"),
    [
        (("LABEL_0", "LABEL_1"), ("0", "1"), (0, 1)),
        (("LABEL_0", "LABEL_1"), ("neg", "pos"), (0, 1)),
        (("pos", "neg"), ("Neg", "pos"), (1, 0)),
        (("pos", "neg"), ("0", "1"), (0, 1)),
    ],
)
def test_labels_are_the_models_classes(model: Path, names, labels, numbers) -> None:
    opened = BertForSequenceClassification.from_pretrained(model)
    opened.config.id2label = dict(enumerate(names))
    rows = numbered(30)
    held = parts(rows, [labels["9" in row] for row in rows])
    task = task_of_texts(held, (opened, fast_tokenizer(str(model))))
    expected = [numbers["9" in row[0]] for row in held.train.rows]
    assert task.train.labels.tolist() == expected
    assert task.chance >= 0.5


def test_other_labels_are_refused(model: Path) -> None:
    opened = BertForSequenceClassification.from_pretrained(model)
    opened.config.id2label = {0: "pos", 1: "neg"}
    held = parts(numbered(30), ["good", "neg"] * 15)
    with pytest.raises(UsageError, match="has the labels good, and the model the classes pos, neg"):
        task_of_texts(held, (opened, fast_tokenizer(str(model))))


def test_a_held_out_part_has_all_labels_or_none(model: Path) -> None:
    held = parts(numbered(30), ["0", "1", None] * 10)
    task = task_of_texts(held, model)
    assert set(task.train.labels.tolist()) == {0, 1, UNLABELLED}
    assert set(task.test.labels.tolist()) == {UNLABELLED}
    assert any("test: some rows have no label" in note for note in task.notes)


def test_texts_are_cut_to_the_models_limit_with_a_note(model: Path) -> None:
    rows = [*numbered(20), *(f"{'y' * 60} {n}" for n in range(10))]
    task = task_of_texts(parts(rows), model)
    assert task.tokens == 48
    assert any("have more than 48 tokens and were cut" in note for note in task.notes)
    assert task_of_texts(parts(rows), model, max_tokens=16).tokens == 16


def test_texts_in_another_language_are_warned_of(model: Path) -> None:
    rows = [f"это русский текст номер {'ж' * n}" for n in range(30)]
    task = task_of_texts(parts(rows), model)
    assert any("warning: 100% of all tokens are unknown" in note for note in task.notes)
    plain = task_of_texts(parts(numbered(30)), model)
    assert not any("warning" in note for note in plain.notes)


def test_pairs_have_token_types(model: Path) -> None:
    pairs = parts_of(
        read_texts([(f"a {n}", f"b {n}") for n in range(30)]), seed=0, sizes=SIZES, needed=1
    )
    task = task_of_texts(pairs, model)
    assert task.token_types == 2
    assert torch.cat([*task.test.token_types]).unique().tolist() == [0, 1]


def test_another_models_tokenizer_is_refused(model: Path, tmp_path: Path) -> None:
    save_bert(tmp_path / "small", 20)
    small = BertForSequenceClassification.from_pretrained(tmp_path / "small")
    with pytest.raises(UsageError, match=r"is another model's: it makes token .* has 20 tokens"):
        task_of_texts(parts(numbered(30)), (small, fast_tokenizer(str(model))))
    with pytest.raises(UsageError, match="no tokenizer at"):
        task_of_texts(parts(numbered(30)), tmp_path / "small")
    with pytest.raises(UsageError, match="no model at"):
        task_of_texts(parts(numbered(30)), tmp_path / "none")


def test_the_limit_is_that_of_the_configuration_and_the_tokenizer(model: Path) -> None:
    tokenizer = fast_tokenizer(str(model))
    roberta = BertConfig(max_position_embeddings=514, pad_token_id=1)
    roberta.model_type = "xlm-roberta"
    assert token_limit_of(roberta, tokenizer) == 512
    assert token_limit_of(BertConfig(max_position_embeddings=64), tokenizer) == 64
    tokenizer.model_max_length = 32
    assert token_limit_of(BertConfig(max_position_embeddings=64), tokenizer) == 32
    assert token_limit_of(object(), None) == 512
