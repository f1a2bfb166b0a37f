"""``sparing prune``."""

from __future__ import annotations

import pytest

import sparing
from sparing.transfer.families.known import find_blocks

TASK = ("--task", "digits", "--set", "patch_size=4", "--examples", "64")


@pytest.fixture(scope="session")
def dense(tmp_path_factory):
    """A small dense vision transformer of four heads in each of its layers."""
    from tests.cli.conftest import SMALL, run_command

    folder = tmp_path_factory.mktemp("dense") / "model"
    ended = run_command("train", "digits", *SMALL, "--output-dir", folder)
    assert ended.code == 0, ended.err
    return folder


def test_it_removes_heads_says_what_that_did_and_saves(command, dense, tmp_path):
    output_dir, before = tmp_path / "pruned", (dense / "model.safetensors").read_bytes()
    ended = command("prune", dense, *TASK, "--heads", "0.5", "--output-dir", output_dir, "--json")
    assert ended.code == 0, ended.err
    result = ended.json
    assert result["removed"] == result["heads"] // 2
    assert result["removed_params"] > 0
    assert {"before", "after", "difference", "interval"} <= result["scores"]["accuracy"].keys()
    assert result["latency"]["rounds"] >= 5
    assert result["latency"]["before_ms"] > 0
    pruned = sparing.load(output_dir)
    assert sum(len(block.remaining) for block in find_blocks(pruned)) == result["heads"] // 2
    assert (dense / "model.safetensors").read_bytes() == before
    evaluated = command("evaluate", output_dir, *TASK[:4], "--json").json
    after = result["scores"]["accuracy"]["after"]
    assert evaluated["scores"]["accuracy"]["value"] == pytest.approx(after)


def test_it_prints_lines_for_a_person(command, dense, tmp_path):
    ended = command("prune", dense, *TASK, "--heads", "0.2", "--output-dir", tmp_path / "pruned")
    assert ended.code == 0, ended.err
    for words in ("heads removed", "heads left; removed:", "accuracy", "times as fast", "saved in"):
        assert words in ended.out
    again = ("--heads", "0.5", "--output-dir", tmp_path / "further", "--json")
    further = command("prune", tmp_path / "pruned", *TASK, *again)
    assert further.json["removed"] == further.json["heads"] // 2


def test_heads_go_in_stages_with_training_between(command, dense, tmp_path):
    output_dir = tmp_path / "pruned"
    given = ("--heads", "0.5", "--steps", "2", "--epochs-between", "1", "--learning-rate", "1e-3")
    ended = command("prune", dense, *TASK, *given, "--output-dir", output_dir)
    assert ended.code == 0, ended.err
    for words in ("heads left  accuracy, validation", "before training, ", "after, ", "saved in"):
        assert words in ended.out
    assert sum(len(block.remaining) for block in find_blocks(sparing.load(output_dir))) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["pruned"]
    other = (*given[:3], "1", *given[4:], "--output-dir", tmp_path / "other", "--json")
    stages = command("prune", dense, *TASK, *other).json["stages"]
    assert [stage["left"] for stage in stages] == [2]
    assert stages[0]["steps"] > 0


def test_mistakes_are_one_line_and_write_nothing(command, dense, trained, tmp_path):
    output_dir = tmp_path / "pruned"
    for model, heads, folder, words in (
        (dense, "0.5", dense, "is not empty"),
        (dense, "1.5", output_dir, "share between 0 and 1"),
        (trained, "0.5", output_dir, "unswap first"),
        (tmp_path / "nowhere", "0.5", output_dir, "no model"),
    ):
        ended = command("prune", model, *TASK, "--heads", heads, "--output-dir", folder)
        assert ended.code in (1, 2)
        assert words in ended.error
    assert not output_dir.exists()


def test_a_folder_beside_that_is_not_its_own_is_left_alone(command, dense, tmp_path):
    beside = tmp_path / "pruned.stages"
    beside.mkdir()
    (beside / "mine.txt").touch()
    given = ("prune", dense, *TASK, "--heads", "0.5", "--output-dir", tmp_path / "pruned")
    ended = command(*given, "--steps", "2", "--epochs-between", "1")
    assert (ended.code, "holds no pruning" in ended.err) == (2, True)
    assert command(*given).code == 0
    assert (beside / "mine.txt").is_file()


def test_an_interrupted_pruning_in_stages_says_that_it_goes_on(
    command, dense, tmp_path, monkeypatch
):
    def stopped(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("sparing.transfer.gradual.prune_gradually", stopped)
    monkeypatch.setattr("sparing.transfer.pruning.prune", stopped)
    given = ("prune", dense, *TASK, "--heads", "0.5", "--output-dir", tmp_path / "pruned")
    assert "the same command resumes it" not in command(*given).error
    ended = command(*given, "--steps", "2", "--epochs-between", "1")
    assert (ended.code, "the same command resumes it" in ended.error) == (130, True)
