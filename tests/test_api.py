"""The Python twin of ``sparing compare``: the same records, a page, a table in the notebook."""

from __future__ import annotations

import json

import pytest

import sparing
from sparing.experiment.cells import sweep
from sparing.train import Recipe
from tests.cli.conftest import memory_in_this_process

SMALL = {
    "task_options": {"patch_size": 4},
    "recipe": Recipe(epochs=1),
    "lengths": (64,),
    "memory_lengths": (64,),
    "rounds": 5,
    "energy_seconds": 0.02,
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "peak_memory", memory_in_this_process)
        output_dir = tmp_path_factory.mktemp("api") / "run"
        yield sparing.compare("digits", ["linear"], seeds=2, output_dir=output_dir, **SMALL)


def test_it_gives_records_and_a_page(outcome):
    assert outcome.pages["html"].exists()
    accuracies = [r for r in outcome.records if r.name == "accuracy"]
    assert {(r.labels["arm"], r.labels["seed"]) for r in accuracies} == {
        (arm, seed) for arm in ("softmax", "linear") for seed in (0, 1)
    }
    assert {r.name for r in outcome.records} >= {
        "accuracy_difference",
        "latency_ratio",
        "peak_ratio",
        "flops_ratio",
        "energy_ratio",
        "attention_share",
        "crossover_tokens",
    }


def test_it_shows_as_its_table(outcome):
    table = outcome._repr_html_()
    assert "<table" in table
    assert "linear" in table


def test_the_goals_are_those_on_disk(outcome):
    written = json.loads((outcome.study.folder / "goals.json").read_text())["goals"]
    assert [goal["name"] for goal in written] == [goal.name for goal in outcome.study.goals]
    assert all(goal["met"] in (True, False, "undecided") for goal in written)


def test_a_trained_arm_opens_again(outcome):
    model = sparing.load(outcome.study.folder / "models" / "linear-0")
    assert "linear" in str([type(m).__module__ for m in model.modules()])


def test_an_arm_that_does_not_exist(tmp_path):
    with pytest.raises(sparing.UsageError, match="did you mean 'linear'"):
        sparing.compare("digits", ["linaer"], output_dir=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
