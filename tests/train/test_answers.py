from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from sparing.core.errors import UsageError
from sparing.tasks import Examples
from sparing.train import Distillation, Recipe, evaluate, train
from sparing.train.answers import label_loss, predictions_of
from sparing.train.distillation import output_divergence
from tests.train.small import equal, token_model, token_task, weights


def number_task(metrics=("pearson", "spearman")):
    """The share of one of two tokens in a row, as a number."""
    task = token_task()

    def split(examples):
        shares = [float((row[1:] == 3).double().mean()) for row in examples.inputs]
        return Examples("input_ids", examples.inputs, torch.tensor(shares))

    splits = {name: split(task.split(name)) for name in ("train", "validation", "test")}
    kind = {"answer": "number", "metric": metrics[0], "metrics": metrics}
    return replace(task, **splits, **kind, labels=("share",))


def test_whole_labels_are_classes_and_others_values():
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2, 1, 1])
    assert label_loss(logits, labels) == F.cross_entropy(logits, labels)
    values = torch.tensor([1.0, 0.0, 2.0, 1.0])
    losses = label_loss(logits[:, :1], values, reduction="none")
    torch.testing.assert_close(losses, (logits[:, 0] - values) ** 2)
    half = label_loss(logits[:, :1].bfloat16(), values)
    assert half.dtype == torch.float32
    assert predictions_of(logits, labels, "class")[1] == (logits.argmax(-1) == labels).tolist()
    assert predictions_of(logits[:, :1], values, "number") == (logits[:, 0].tolist(), None)


def test_several_labels_each_have_a_loss_against_their_probability():
    logits = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    goal = torch.tensor([[1.0, 0.25], [0.0, 0.5]])
    shares = logits.sigmoid()
    expected = -(goal * shares.log() + (1 - goal) * (1 - shares).log()).mean(1)
    losses = label_loss(logits, goal, reduction="none", answer="labels")
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(label_loss(logits, goal, answer="labels"), expected.mean())
    assert predictions_of(logits, goal, "labels") == ([[0], [0, 1]], None)


def test_numbers_are_learnt_and_evaluated_by_their_metric(tmp_path):
    task = number_task()
    model = token_model(task)
    assert model.config.num_labels == 1
    before = evaluate(model, task)
    recipe = Recipe(epochs=12, batch_size=8, learning_rate=0.02)
    result = train(model, task, recipe, output_dir=tmp_path / "run")
    evaluation = evaluate(model, task)
    assert evaluation.loss < 0.5 * before.loss
    assert evaluation.score == evaluation.scores["pearson"] > 0.8
    assert list(evaluation.scores) == ["pearson", "spearman"]
    assert evaluation.count == len(task.test)
    assert (result.metric, result.validation_accuracy) == ("pearson", None)
    assert result.validation_score == max(entry["validation_score"] for entry in result.curve)
    assert all("validation_accuracy" not in entry for entry in result.curve)
    again = token_model(task, seed=5)
    assert train(again, task, recipe, output_dir=tmp_path / "run") == result
    assert equal(weights(model), weights(again))


def test_numbers_are_neither_right_nor_wrong():
    task = number_task()
    evaluation = evaluate(token_model(task), task)
    for name in ("accuracy", "correct"):
        with pytest.raises(UsageError, match="numbers have no accuracy: use pearson or spearman"):
            getattr(evaluation, name)


def test_predictions_and_scores_are_in_the_examples_own_order():
    task = replace(token_task(), metric="matthews", metrics=("matthews", "accuracy", "f1"))
    evaluation = evaluate(token_model(task), task, "train", batch_size=7)
    labels = task.train.labels
    assert evaluation.correct == [
        a == b for a, b in zip(evaluation.predictions, labels, strict=True)
    ]
    assert evaluation.accuracy == evaluation.scores["accuracy"]
    assert evaluation.score == evaluation.scores["matthews"] == evaluation.scores[evaluation.metric]


def test_the_best_epoch_is_chosen_by_the_tasks_metric(tmp_path):
    task = replace(token_task(), metric="matthews", metrics=("matthews", "accuracy"))
    model = token_model(task)
    recipe = Recipe(epochs=4, batch_size=8, learning_rate=0.02)
    result = train(model, task, recipe, output_dir=tmp_path)
    best = max(result.curve, key=lambda e: (e["validation_score"], -e["validation_loss"]))
    assert (result.metric, result.best_step) == ("matthews", best["step"])
    assert result.validation_accuracy == best["validation_accuracy"]
    assert evaluate(model, task, "validation").score == best["validation_score"]


def test_a_teacher_of_numbers_is_followed(tmp_path):
    task = number_task()
    teacher, student = token_model(task, dropout=0.0), token_model(task, seed=4, dropout=0.0)
    before = evaluate(teacher, task).predictions
    recipe = Recipe(
        epochs=15, batch_size=8, learning_rate=0.02, distillation=Distillation(0.0, 1.0, 0.0)
    )

    def distance():
        after = evaluate(student, task).predictions
        return sum((a - b) ** 2 for a, b in zip(before, after, strict=True))

    first = distance()
    teacher.train()
    train(student, task, recipe, output_dir=tmp_path, teacher=teacher)
    assert teacher.training  # as it came
    assert distance() < 0.3 * first
    one, two = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [4.0]])
    assert output_divergence(one, two, 3.0) == 2.5


def test_a_model_of_other_outputs_is_refused():
    task = number_task()
    with pytest.raises(UsageError, match="gives 2 outputs, but task majority has 1"):
        evaluate(token_model(token_task()), task)
