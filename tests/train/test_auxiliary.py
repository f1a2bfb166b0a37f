"""Losses that layers report: their weight over the steps, what they do, and when a run ends."""

from __future__ import annotations

import json

import pytest
import torch

import sparing
from sparing.core.errors import UsageError
from sparing.train import Auxiliary, Recipe, adaptive_recipe, train
from sparing.train._auxiliary import fell_below, mean_score, replaces, with_auxiliary
from tests.train.small import equal, token_model, token_task, weights


def test_the_printed_schedule():
    weight_at = Auxiliary().weight_at
    weights = [weight_at(step, 1000) for step in (0, 99, 100, 500, 949)]
    assert weights == [0, 0, 0.01, 0.01, pytest.approx(0.01)]
    assert weight_at(974, 1000) == pytest.approx(0.03)
    assert weight_at(999, 1000) == pytest.approx(0.05)
    assert [weight_at(step, 10) for step in (0, 1, 8, 9)] == [0, 0.01, 0.01, 0.05]  # short, too
    assert Auxiliary(rise_share=0.0, warmup_share=0.0).weight_at(9, 10) == 0.01
    printed = adaptive_recipe(0.9)
    assert (printed.learning_rate, printed.batch_size, printed.epochs) == (5e-5, 32, 4)
    assert printed.auxiliary.baseline == 0.9


def test_what_is_added_is_a_mean_over_layers():
    loss = torch.tensor(2.0)
    log = {"a/auxiliary_loss": [torch.tensor(0.5)], "b/auxiliary_loss": [torch.tensor(0.7)]}
    log["a/score"] = [torch.full((2, 4), 0.25), torch.full((2, 4), 0.75)]
    assert with_auxiliary(loss, log, 0.1).item() == pytest.approx(2.06)
    assert with_auxiliary(loss, log, 0.0) is loss
    assert with_auxiliary(loss, {"a/score": log["a/score"]}, 0.1) is loss
    assert mean_score(log) == 0.5
    assert mean_score({}) is None


def curve(*scores):
    return [{"validation_score": score, "validation_loss": 1 - score} for score in scores]


def test_a_run_ends_below_the_floor_and_keeps_the_last_above():
    floor = Auxiliary(baseline=0.8)
    assert not fell_below(curve(0.5, 0.7), floor), "it has not been above yet"
    assert not fell_below(curve(0.5, 0.77), floor)
    assert fell_below(curve(0.5, 0.77, 0.75), floor)
    assert not fell_below(curve(0.5, 0.77, 0.1), Auxiliary())
    low, good, better = curve(0.5, 0.77, 0.8)
    assert replaces(good, better, floor)
    assert not replaces(low, good, floor)
    assert replaces(good, low, floor)
    assert not replaces(good, better, Auxiliary())


def adaptive(task, **options):
    model = token_model(task)
    sparing.swap(model, "adaptive", **{"score": 0.7, "threshold": None, **options})
    return model


def test_the_loss_lowers_the_scores(tmp_path):
    task, final_scores = token_task(), {}
    for weight in (0.0, 20.0):
        model = adaptive(task)
        auxiliary = Auxiliary(weight, weight, 0.0, 0.0)
        recipe = Recipe(epochs=6, batch_size=20, learning_rate=5e-2, auxiliary=auxiliary)
        folder = tmp_path / str(weight)
        result = train(model, task, recipe, output_dir=folder)
        scores = [entry["mean_head_score"] for entry in result.curve]
        assert all(entry["validation_latency_ms"] > 0 for entry in result.curve)
        written = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [e["mean_head_score"] for e in written if e["kind"] == "validation"] == scores
        final_scores[weight] = scores[-1]
    assert final_scores[20.0] < final_scores[0.0] - 0.1


def test_a_score_below_the_floor_ends_the_run(tmp_path, monkeypatch):
    task, scores = token_task(), iter([0.6, 0.8, 0.79, 0.5, 0.9])

    def evaluated(*args, **kwargs):
        from sparing.train.evaluation import Evaluation

        score = next(scores)
        return Evaluation("accuracy", {"accuracy": score}, 1.0, [0], [True])

    monkeypatch.setattr("sparing.train._loop.evaluate", evaluated)
    recipe = Recipe(epochs=5, batch_size=20, auxiliary=Auxiliary(baseline=0.8))
    result = train(adaptive(task), task, recipe, output_dir=tmp_path)
    assert [entry["validation_score"] for entry in result.curve] == [0.6, 0.8, 0.79, 0.5]
    assert result.stopped_early
    assert result.validation_score == 0.79


def test_nothing_changes_without_such_layers(tmp_path):
    task, final_weights = token_task(), []
    for weight in (0.0, 20.0):
        model = token_model(task)
        recipe = Recipe(epochs=1, batch_size=20, auxiliary=Auxiliary(weight, weight, 0.0, 0.0))
        torch.manual_seed(0)
        result = train(model, task, recipe, output_dir=tmp_path / str(weight))
        assert "mean_head_score" not in result.curve[0]
        final_weights.append(weights(model))
    assert equal(*final_weights)


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": -1.0},
        {"warmup_share": 0.8, "rise_share": 0.3},
        {"floor_share": 0.0},
    ],
)
def test_wrong_settings(wrong):
    with pytest.raises(UsageError, match="auxiliary"):
        Auxiliary(**wrong)
