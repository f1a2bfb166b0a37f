"""What mechanisms bring may learn faster than the model around them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import sparing
from sparing.core.errors import CheckpointError, UsageError
from sparing.layers.gates import SkimGate, ThresholdGate
from sparing.train import Recipe, train
from sparing.train.rates import quicken
from tests.train.small import equal, token_model, token_task, weights

RECIPE = Recipe(epochs=2, batch_size=16, learning_rate=1e-4)


def swapped(task):
    model = token_model(task)
    sparing.swap(model, "adaptive", score=0.7)
    return model


def test_only_what_is_a_mechanisms_own_gets_another_rate():
    model = swapped(token_task())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    quicken(optimizer, model, 20.0)
    rates = {
        id(tensor): group["lr"] for group in optimizer.param_groups for tensor in group["params"]
    }
    for name, parameter in model.named_parameters():
        expected = 2.0 if ".sparing." in f".{name}." else 0.1
        assert rates[id(parameter)] == expected, name
    assert sum(rate == 2.0 for rate in rates.values()) > 0
    assert len(rates) == len(list(model.parameters()))


def test_networks_of_gates_count_as_brought_and_thresholds_have_their_own_rate():
    gated = nn.ModuleDict({"skim": SkimGate(8, 1), "threshold": ThresholdGate(8, 1)})
    optimizer = torch.optim.AdamW(gated.parameters(), lr=0.1)
    quicken(optimizer, gated, 20.0)
    rates = {
        id(tensor): group["lr"] for group in optimizer.param_groups for tensor in group["params"]
    }
    for name, parameter in gated.named_parameters():
        assert rates[id(parameter)] == (2.0 if name.startswith("skim") else 0.1), name


def test_a_model_without_mechanisms_keeps_its_groups():
    model = nn.Linear(2, 2)
    groups = [{"params": [model.weight], "weight_decay": 0.5}, {"params": [model.bias]}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    quicken(optimizer, model, 20.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.01]


def test_the_schedule_scales_both_and_scores_move_farther(tmp_path):
    task, moved = token_task(), {}
    for factor in (1.0, 50.0):
        model = swapped(task)
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        recipe = replace(RECIPE, mechanism_rate_factor=factor)
        train(model, task, recipe, output_dir=tmp_path / str(factor))
        moved[factor] = {
            name: float((value.detach() - before[name]).abs().mean())
            for name, value in model.named_parameters()
        }
    for name, little in moved[1.0].items():
        more = moved[50.0][name]
        if ".sparing." in f".{name}.":
            assert not little or more > 20 * little, name
        elif little:
            assert more < 3 * little, name


def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    task, recipe = token_task(), replace(RECIPE, mechanism_rate_factor=50.0)
    whole, parted = swapped(task), swapped(task)
    train(whole, task, recipe, output_dir=tmp_path / "whole")

    def stop(fraction, text):
        if fraction >= 0.5:
            raise KeyboardInterrupt

    monkeypatch.setattr("sparing.train._loop.PROGRESS_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        train(parted, task, recipe, output_dir=tmp_path / "parted", on_progress=stop)
    parted = swapped(task)
    train(parted, task, recipe, output_dir=tmp_path / "parted")
    assert equal(weights(whole), weights(parted))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_none_is_refused(factor):
    with pytest.raises(UsageError, match="mechanism_rate_factor must be above 0 and finite"):
        Recipe(mechanism_rate_factor=factor)


def test_a_run_that_is_older_than_the_factor_is_read_back_with_the_usual_one(tmp_path):
    task = token_task()
    before = train(swapped(task), task, RECIPE, output_dir=tmp_path)
    run_config = json.loads((tmp_path / "run.json").read_text())
    del run_config["recipe.mechanism_rate_factor"]
    (tmp_path / "run.json").write_text(json.dumps(run_config))
    assert train(swapped(task), task, RECIPE, output_dir=tmp_path) == before
    other = replace(RECIPE, mechanism_rate_factor=2.0)
    with pytest.raises(CheckpointError, match=r"its recipe.mechanism_rate_factor is 1.0, now"):
        train(swapped(task), task, other, output_dir=tmp_path)
