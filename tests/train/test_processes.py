"""Two processes with half of each batch end as one process with all of it."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from sparing.train import train
from sparing.train.processes import run_in
from tests.train.several import CASES, StopAt, run_all, run_case

SAME = 1e-8


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A folder of trainings in two processes; two of them begin or end in one."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sparing.train._loop.PROGRESS_SECONDS", 0)
        model, task, recipe, given = CASES["classes"]()
        with pytest.raises(KeyboardInterrupt):
            train(
                model,
                task,
                recipe,
                output_dir=folder / "begun by one",
                on_progress=StopAt(0.6),
                **given,
            )
    run_in(2, run_all, folder)
    return folder


def farthest(first, second):
    """The largest difference of any weight."""
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_as_one(both, tmp_path, name):
    result = run_case(name, tmp_path)
    two = json.loads((both / name / "result.json").read_text())
    assert two["steps"] == result.steps
    assert two["examples_seen"] == result.examples_seen
    weights = [load_file(folder / f"{name}.safetensors") for folder in (tmp_path, both)]
    assert farthest(*weights) < SAME
    assert farthest(weights[0], CASES[name]()[0].state_dict()) > 100 * SAME  # it was trained
    assert len(two["curve"]) == len(result.curve)
    for entry, other in zip(result.curve, two["curve"], strict=True):
        entry.pop("validation_latency_ms", None)
        other.pop("validation_latency_ms", None)
        assert entry == pytest.approx(other, rel=1e-6, abs=1e-8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of a training that nothing interrupted, in one process."""
    folder = tmp_path_factory.mktemp("one")
    run_case("classes", folder)
    return load_file(folder / "classes.safetensors")


def test_one_process_goes_on_with_what_two_began(both, whole):
    assert not (both / "begun by two" / "result.json").exists()
    (checkpoint,) = (both / "begun by two").glob("checkpoint-1*")
    assert sorted(path.name for path in checkpoint.glob("rng_state*")) == ["rng_state.pth"]
    model, task, recipe, given = CASES["classes"]()
    result = train(model, task, recipe, output_dir=both / "begun by two", **given)
    assert "resumed from step" in result.notes[-1]
    assert farthest(whole, model.state_dict()) < SAME


def test_two_processes_go_on_with_what_one_began(both, whole):
    result = json.loads((both / "begun by one" / "result.json").read_text())
    assert "resumed from step" in result["notes"][-1]
    assert farthest(whole, load_file(both / "begun by one" / "model.safetensors")) < SAME
