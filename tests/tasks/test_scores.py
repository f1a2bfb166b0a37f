from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.tasks import Examples, Task
from sparing.tasks.shared.scores import METRICS, metric, scores


def _outputs(answers, classes=2):
    return torch.nn.functional.one_hot(torch.tensor(answers), classes).float()


LABELS = torch.tensor([1, 1, 1, 0, 0, 0, 1, 0])
ANSWERS = _outputs([1, 0, 1, 0, 1, 0, 1, 0])  # TP 3, FP 1, FN 1, TN 3


def test_values_by_hand():
    values = scores(("accuracy", "f1", "matthews"), ANSWERS, LABELS)
    assert values["accuracy"] == 6 / 8
    assert values["f1"] == 2 * 3 / (2 * 3 + 1 + 1)
    assert values["matthews"] == pytest.approx((3 * 3 - 1 * 1) / 16)


def test_f1_of_the_second_class_alone():
    labels = torch.tensor([1, 0, 0, 0])
    assert metric("f1").score(_outputs([0, 0, 0, 0]), labels) == 0
    assert metric("f1").score(_outputs([1, 1, 0, 0]), labels) == pytest.approx(2 / 3)
    assert metric("f1").score(_outputs([0, 0]), torch.tensor([0, 0])) == 0


def test_correlations_by_hand():
    values, truth = torch.tensor([[1.0], [2.0], [3.0], [10.0]]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert metric("spearman").score(values, truth) == pytest.approx(1)
    assert metric("pearson").score(values, truth) == pytest.approx(14 / 50**0.5 / 5**0.5, abs=1e-6)
    assert metric("pearson").score(-values, truth) < -0.8


def test_probabilities_are_close_where_their_differences_are_small():
    logits, truth = torch.tensor([[0.0, 50.0]]), torch.tensor([[0.25, 1.0]])
    assert metric("probability_closeness").score(logits, truth) == pytest.approx(1 - 0.125)
    truth = torch.tensor([[0.0], [0.2], [0.9]])
    chance = metric("probability_closeness").chance(truth)
    constants = torch.linspace(0.01, 0.99, 197).logit()[:, None, None].expand(-1, 3, 1)
    best = max(metric("probability_closeness").score(logits, truth) for logits in constants)
    assert chance == pytest.approx(best)


def test_answers_that_never_change_are_worth_nothing():
    same = torch.zeros(4, 1)
    assert metric("pearson").score(same, torch.arange(4.0)) == 0
    assert metric("spearman").score(same, torch.arange(4.0)) == 0
    assert metric("matthews").score(_outputs([1, 1, 1]), torch.tensor([0, 1, 1])) == 0


def test_top_five():
    outputs = torch.arange(8.0).expand(8, 8)
    assert metric("top5").score(outputs, torch.arange(8)) == 5 / 8
    assert metric("top5").score(outputs[:2, :3], torch.tensor([0, 2])) == 1


@pytest.mark.parametrize("name", ["accuracy", "f1", "matthews"])
def test_the_chance_level_is_the_best_constant_answers_score(name):
    for labels in (LABELS, torch.tensor([1, 0, 0]), torch.tensor([1, 1, 1, 0])):
        constants = [_outputs([answer] * len(labels)) for answer in (0, 1)]
        best = max(metric(name).score(outputs, labels) for outputs in constants)
        assert metric(name).chance(labels) == pytest.approx(best)


def test_the_chance_level_of_five_guesses():
    labels = torch.tensor([0, 0, 1, 1, 2, 3, 4, 5])
    assert metric("top5").chance(labels) == 7 / 8


def _task(**options):
    split = Examples("input_ids", [torch.ones(1, dtype=torch.long)], torch.tensor([1]))
    facts = {"labels": ("a", "b"), "tokens": 1, "licence": "", "source": "", **options}
    return Task("t", "tokens", split, split, split, **facts)


def test_a_tasks_metrics_begin_with_the_one_it_is_evaluated_by():
    assert _task().metrics == ("accuracy",)
    task = _task(metric="f1", metrics=("f1", "accuracy"))
    assert (task.metric, task.metrics, task.chance) == ("f1", ("f1", "accuracy"), 1.0)
    with pytest.raises(UsageError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        _task(metric="acuracy")
    assert set(METRICS) >= {"accuracy", "f1", "matthews", "pearson", "spearman", "top5"}
