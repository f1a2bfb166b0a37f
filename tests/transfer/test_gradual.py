"""Heads that go in stages, with training between: the count, the table, and going on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import sparing
from sparing.core.errors import UsageError
from sparing.core.locking import held_alone
from sparing.measure.machine import threads
from sparing.train import Recipe
from sparing.transfer import gradual
from sparing.transfer.families.known import find_blocks
from sparing.transfer.gradual import labelled_batches, prune_gradually
from tests.train.small import equal, token_model, token_task, weights

RECIPE = Recipe(epochs=1, batch_size=16, learning_rate=1e-2)
TASK = token_task()


def model():
    return token_model(TASK, layers=2, heads=4)


def pruned(folder, **changes):
    network = model()
    given = {"recipe": RECIPE, "stages": 2, "examples": 32, "folder": folder} | changes
    return network, prune_gradually(network, TASK, given.pop("heads", 0.5), **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return pruned(tmp_path_factory.mktemp("gradual"))


def test_heads_go_in_equal_stages_and_each_is_trained(done):
    network, report = done
    assert [stage.left for stage in report.stages] == [6, 4]
    assert report.removed == 4
    assert sum(len(block.remaining) for block in find_blocks(network)) == 4
    assert all(stage.trained.steps == 4 for stage in report.stages)
    assert report.removed_params > 0
    content = json.loads(json.dumps(report.to_dict()))
    assert [stage["left"] for stage in content["stages"]] == [6, 4]
    lines = report.table().splitlines()
    assert "8" in lines[1]
    assert "before training," in lines[2]
    assert f"{report.stages[1].after:.4f} after" in lines[3]


def test_each_stage_sees_the_data_in_another_order(tmp_path):
    pruned(tmp_path / "p")
    records = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("p/stage-*/run.json"))]
    assert [run["recipe.seed"] for run in records] == [RECIPE.seed, RECIPE.seed + 1]


def test_what_comes_out_saves_and_loads(done, tmp_path):
    network, _ = done
    network.save_pretrained(tmp_path)
    assert equal(weights(sparing.load(tmp_path)), weights(network))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Several threads may sum in another order; trainings are compared bit by bit."""
    with threads(1):
        yield


def test_an_interrupted_pruning_goes_on_as_if_nothing_had_been(done, tmp_path, monkeypatch):
    calls = []

    def once(*args, **named):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return train(*args, **named)

    train = gradual.train
    monkeypatch.setattr(gradual, "train", once)
    with pytest.raises(KeyboardInterrupt):
        pruned(tmp_path)
    monkeypatch.setattr(gradual, "train", train)
    prunings = []
    real = gradual.prune
    monkeypatch.setattr(gradual, "prune", lambda *a, **n: prunings.append(1) or real(*a, **n))
    network, report = pruned(tmp_path)
    assert prunings == []  # what goes was decided before the interruption
    assert equal(weights(network), weights(done[0]))
    assert [stage.after for stage in report.stages] == [s.after for s in done[1].stages]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stages": 9}, "4 heads go in 1 to 4 stages, not in 9"),
        ({"stages": 0}, "not in 0"),
        ({"heads": 1.0}, "between 0 and 1"),
        ({"heads": 0.01}, "0 of 8 heads are removed already"),
    ],
)
def test_impossible_wishes_are_named(tmp_path, changes, words):
    with pytest.raises(UsageError, match=words):
        pruned(tmp_path, **changes)


def test_a_folder_with_another_pruning_is_refused(tmp_path):
    prune_gradually(model(), TASK, 0.25, recipe=RECIPE, stages=1, examples=32, folder=tmp_path)
    with pytest.raises(UsageError, match=r"its heads is 0\.25, now it is 0\.5"):
        pruned(tmp_path)
    with pytest.raises(UsageError, match="another pruning: its recipe"):
        pruned(tmp_path, heads=0.25, stages=1, recipe=replace(RECIPE, epochs=2))
    other = token_model(TASK, layers=2, heads=4, seed=1)
    with pytest.raises(UsageError, match="another pruning: its weights"):
        prune_gradually(other, TASK, 0.25, recipe=RECIPE, stages=1, examples=32, folder=tmp_path)
    with (
        held_alone(tmp_path, "pruning"),
        pytest.raises(UsageError, match="in use by another pruning"),
    ):
        pruned(tmp_path, heads=0.25, stages=1)


def test_answers_in_a_text_carry_their_ends():
    labels = torch.stack([torch.arange(60) % 3, torch.arange(60) % 3 + 1], 1)
    train = replace(TASK.train, labels=labels)
    task = replace(TASK, answer="span", train=train, labels=("start", "end"), metric="token_f1")
    batch = labelled_batches(task, 40)[0]
    assert "labels" not in batch
    assert torch.equal(batch["end_positions"], batch["start_positions"] + 1)
    assert sum(len(example["input_ids"]) for example in labelled_batches(task, 40)) == 40
    answers = token_model(task, layers=2, heads=4)
    assert sparing.prune(answers, 0.5, labelled_batches(task, 40)).removed == 4
