"""A training cell: what it records, at which rate it trains, and what it does not do again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import NotFinite, UsageError
from sparing.experiment.arms import shuffled
from sparing.experiment.cells.rates import Tuned, training_cell, trainings
from sparing.experiment.inputs.recipes import recipe_for, require_accelerator
from sparing.experiment.run import slug
from sparing.train import Recipe, default_recipe
from tests.train.small import token_model, token_task

RATES = (1e3, 1e-2)
TASK = token_task()


def tuned(folder, rates=RATES):
    return Tuned(
        lambda seed: token_model(TASK, seed),
        TASK,
        lambda seed, rate: Recipe(epochs=2, batch_size=20, learning_rate=rate, seed=seed),
        rates,
        lambda seed, rate: folder / f"{seed}-{rate:g}",
        5.0,
    )


def cell(folder, seed, **changes):
    def record(trained):
        labels = {"arm": "a", "seed": seed}
        curve = trained.curve(labels, lambda entry: {"epoch": entry["epoch"]}, 20)
        return [*trained.records(labels), *curve]

    given = {"thread_count": 1, "weight": 2.5} | changes
    return training_cell(f"a/{seed}", lambda: tuned(folder), seed, record, **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cell")
    return folder, cell(folder, 1).work()


def values(records, name):
    return [record.value for record in records if record.name == name]


def test_a_cell_trains_at_the_best_rate_of_the_first_seed_and_records_what_it_took(done):
    folder, records = done
    assert {path.name for path in folder.iterdir()} == {"0-1000", "0-0.01", "1-0.01"}
    assert values(records, "learning_rate") == [1e-2]
    assert values(records, "params") == [token_model(TASK).num_parameters()]
    assert values(records, "steps") == [6.0]
    assert values(records, "epochs") == [2.0]
    scores = [record for record in records if record.name == "validation_score"]
    assert [record.labels["epoch"] for record in scores] == [1, 2]
    assert {record.count for record in scores} == {20}
    energy = [record for record in records if record.name == "train_energy_j"]
    assert energy
    assert all(record.labels["component"] and record.value >= 0 for record in energy)
    assert all({"arm": "a", "seed": 1}.items() <= record.labels.items() for record in records)


def test_a_finished_training_is_read_back_with_its_energy(done, monkeypatch):
    folder, records = done
    monkeypatch.setattr("sparing.train.trainer._train", None)
    again = cell(folder, 1).work()
    for name in ("train_time_s", "steps", "validation_loss", "train_energy_j", "validation_score"):
        assert values(again, name) == values(records, name), name


def test_where_every_rate_diverges_the_cell_fails(tmp_path):
    with pytest.raises(NotFinite, match=r"diverges at every rate of 1e\+30, 1e\+29"):
        tuned(tmp_path, (1e30, 1e29)).run(1)


def test_the_first_seed_counts_as_a_training_at_every_rate():
    assert [trainings(RATES, seed) for seed in (0, 1)] == [2, 1]


def test_what_a_study_does_not_give_is_as_in_the_default_recipe():
    usual = replace(default_recipe("digits"), patience=None)
    assert recipe_for("digits", {"epochs": 0, "learning_rate": None}) == usual
    given = recipe_for("digits", {"epochs": 3}, seed=2, precision="float32")
    assert given == replace(usual, epochs=3, seed=2, precision="float32")


def test_a_budget_that_needs_an_accelerator_says_what_helps(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    require_accelerator("", "days on a processor")
    with pytest.raises(UsageError, match="days on a processor; use the budget standard, or --set"):
        require_accelerator("accelerator", "days on a processor")


def test_an_order_follows_from_its_name_alone():
    orders = {tuple(shuffled("abcd", f"question:{seed}")) for seed in range(40)}
    assert len(orders) > 10
    assert shuffled("abcd", "x") == shuffled(list("abcd"), "x")


def test_a_name_for_keys_has_letters_digits_and_hyphens():
    assert slug("linformer, k = 16") == "linformer-k-16"
