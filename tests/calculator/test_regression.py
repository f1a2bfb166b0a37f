"""Predictors trained on the published sums, their loss, and the search for their sizes."""

from __future__ import annotations

from dataclasses import replace

import optuna
import pytest
import torch

from sparing.calculator import search
from sparing.calculator.regression import PLAIN, WARMED, fit_predictor, published_recipe, value_task
from sparing.core.errors import DataError, UsageError
from sparing.core.locking import held_alone
from sparing.predictors import build_predictor
from sparing.tasks import load_task
from sparing.tasks.arithmetic import as_values
from sparing.train import Recipe
from sparing.train.values import ValueLoss


def test_the_recipes_are_the_published_ones():
    plain, warmed = published_recipe("feed_forward"), published_recipe("transformer", 3e-4, seed=2)
    assert plain == PLAIN
    assert (plain.epochs, plain.batch_size, plain.patience, plain.least_gain) == (200, 32, 10, 1e-4)
    assert (warmed.weight_decay, warmed.first_moment, warmed.last_rate_share) == (4e-3, 0.85, 0.1)
    assert (warmed.learning_rate, warmed.seed, WARMED.learning_rate) == (3e-4, 2, 1e-3)


def test_an_accumulator_learns_the_task_and_another_seed_is_another_training(tmp_path):
    recipe = replace(published_recipe("accumulator", 0.03), epochs=6)
    model, result = fit_predictor("accumulator", {}, recipe, tmp_path / "one")
    assert result.metric == "minus squared error"
    assert result.validation_loss == -result.validation_score < 1e-2
    exact = load_task("arithmetic", sets="corrected", inputs="values").split("out+long")
    predictions = model(exact.inputs).logits[:, 0]
    assert (predictions - exact.labels).abs().max() < 0.5
    short = replace(recipe, epochs=1)
    first, again, other = (
        fit_predictor("accumulator", {}, replace(short, seed=seed), tmp_path / name)[0]
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert torch.equal(again.network.weight, first.network.weight)
    assert not torch.equal(other.network.weight, first.network.weight)


def test_values_are_a_task_of_their_own():
    task = value_task("published")
    assert (task.kind, task.tokens, task.vocabulary) == ("values", 15, 0)
    batch = task.collate([task.train[0], task.train[1]])
    assert batch["values"].shape == (2, 15)
    assert torch.equal(task.train.subset([3, 1]).inputs, task.train.inputs[[3, 1]])
    assert set(task.splits) == {"train", "validation", "test", "out", "long"}


def test_the_losses_against_their_formulas():
    model, task = build_predictor("feed_forward", hidden=(4,)).eval(), value_task()
    batch = task.collate([task.train[n] for n in range(8)])
    error = (model(batch["values"]).logits[:, 0] - batch["labels"]).abs()
    squared = ValueLoss()(model, batch, 0)
    torch.testing.assert_close(squared, error.square().mean())
    baseline = {"mean": 2.0, "relative": 0.5}
    relative = (error / batch["labels"].abs().clamp(min=1)).mean()
    expected = ((1 + error.mean() / 2).log() + (1 + relative / 0.5).log()) / 2
    torch.testing.assert_close(ValueLoss("benchmark", baseline)(model, batch, 0), expected)
    with pytest.raises(UsageError, match="needs a baseline's errors"):
        ValueLoss("benchmark")
    with pytest.raises(UsageError, match="did you mean 'squared'"):
        ValueLoss("square")


def test_the_benchmark_as_loss_trains(tmp_path):
    loss = ValueLoss("benchmark", {"mean": 4.0, "relative": 1.0})
    recipe = replace(PLAIN, epochs=3)
    _, result = fit_predictor("feed_forward", {"hidden": (8,)}, recipe, tmp_path, objective=loss)
    losses = [entry["train_loss"] for entry in result.curve]
    assert losses[-1] < losses[0]


def test_patience_counts_what_gains_too_little(tmp_path):
    recipe = replace(PLAIN, epochs=8, patience=2, least_gain=1e6)
    _, result = fit_predictor("feed_forward", {"hidden": (8,)}, recipe, tmp_path)
    assert result.stopped_early
    assert len(result.curve) == 3  # the first, and two that gained less than a million
    assert result.best_step == result.curve[-1]["step"]  # but the best weights are kept


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"first_moment": 1.0}, "first_moment must be in"),
        ({"last_rate_share": 0.1}, "belongs to the schedule cosine"),
        ({"optimizer": "adagrad"}, "optimizer must be adamw, sgd or rmsprop"),
        ({"least_gain": -1.0}, "least_gain must be at least 0"),
        ({"first_moment": 0.8, "optimizer": "sgd"}, "belongs to the optimizer adamw"),
    ],
)
def test_recipes_refuse(given, message):
    with pytest.raises(UsageError, match=message):
        Recipe(**given)


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop"])
def test_other_optimisers_train(optimizer, tmp_path):
    recipe = replace(PLAIN, epochs=2, optimizer=optimizer, learning_rate=1e-3)
    _, result = fit_predictor("gated_sum", {}, recipe, tmp_path)
    assert result.curve[-1]["validation_loss"] < result.curve[0]["validation_loss"]


def test_a_search_goes_on_where_it_ended(tmp_path):
    messages = []
    first = search.search_predictor("feed_forward", 1, tmp_path, epochs=1)
    second = search.search_predictor(
        "feed_forward", 2, tmp_path, epochs=1, on_progress=lambda share, text: messages.append(text)
    )
    assert (first.trials, second.trials) == (1, 2)
    assert second.loss <= first.loss
    assert messages == ["trial 2 of 2", "done"]
    assert search.search_predictor("feed_forward", 2, tmp_path, epochs=1) == second
    model = build_predictor("feed_forward", **second.options)
    assert model(as_values([])).logits.shape == (0, 1)
    assert not list(tmp_path.glob(".trial-*"))
    study = optuna.load_study(
        study_name="feed_forward, 1 epochs, seed 0", storage=f"sqlite:///{tmp_path / search.FILE}"
    )
    assert len(study.trials) == 2
    assert study.trials[0].params != study.trials[1].params


def test_trials_at_a_time_are_all_written(tmp_path):
    best = search.search_predictor("feed_forward", 3, tmp_path, epochs=1, processes=2)
    assert best.trials == 3
    study = optuna.load_study(
        study_name="feed_forward, 1 epochs, seed 0", storage=f"sqlite:///{tmp_path / search.FILE}"
    )
    assert [trial.number for trial in study.trials] == [0, 1, 2]
    # training is the same in another process
    one = study.trials[0]
    again = search.loss_of(
        "feed_forward", tmp_path, 1, 0, one.user_attrs["options"], one.params["learning_rate"]
    )
    assert again == one.value
    assert search.search_predictor("feed_forward", 3, tmp_path, epochs=1, processes=2) == best


def test_a_search_does_not_touch_a_strangers_folder(tmp_path):
    (tmp_path / "trial-0").mkdir()
    with pytest.raises(UsageError, match=r"holds no search \(found trial-0\)"):
        search.search_predictor("gru", 1, tmp_path, epochs=1)
    assert (tmp_path / "trial-0").is_dir()


def test_two_searches_do_not_meet(tmp_path):
    with (
        held_alone(tmp_path, "search"),
        pytest.raises(UsageError, match="in use by another search"),
    ):
        search.search_predictor("gru", 1, tmp_path, epochs=1)


def test_a_trial_that_was_cut_off_is_done_again(tmp_path):
    study = search._open("feed_forward", tmp_path, 1, 0)
    study.ask()
    assert search.search_predictor("feed_forward", 1, tmp_path, epochs=1).trials == 1


def test_what_cannot_be_searched(tmp_path):
    with pytest.raises(UsageError, match="no space to search for 'gated_sum'"):
        search.search_predictor("gated_sum", 1, tmp_path)
    with pytest.raises(UsageError, match="trials must be at least 1"):
        search.search_predictor("gru", 0, tmp_path)
    (tmp_path / search.FILE).write_text("no database")
    with pytest.raises(DataError, match="is not a search of this version, or damaged"):
        search.search_predictor("gru", 1, tmp_path)
