"""``sparing train`` and ``sparing evaluate``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

import sparing
from sparing.experiment.evaluation import wilson
from sparing.experiment.training import mean_over_seeds
from tests.cli.conftest import SMALL


def test_the_result_is_a_model_that_opens(command, trained):
    model = sparing.load(trained)
    assert type(model).__name__ == "ViTForImageClassification"
    assert model.config.sparing["swap"][0]["mechanism"] == "window"
    outcome = json.loads((trained / "training" / "outcome.json").read_text())
    evaluated = command("evaluate", trained, "--json").json  # on the task it was trained for
    assert evaluated["task"] == "digits"
    assert evaluated["accuracy"]["value"] == outcome["seeds"][0]["accuracy"]
    assert evaluated["accuracy"]["count"] == 360
    low, high = evaluated["accuracy"]["interval"]
    assert low < evaluated["accuracy"]["value"] < high
    assert evaluated["task_options"] == {"patch_size": 4}, "taken from the training"


def test_the_same_command_reads_a_finished_run_back(command, trained):
    before = {path: path.stat().st_mtime_ns for path in trained.glob("*.safetensors")}
    again = command(
        *("train", "digits", "--mechanism", "window", *SMALL, "--output-dir", trained, "--json")
    )
    assert again.json["seeds"][0]["steps"] == 19
    assert {path: path.stat().st_mtime_ns for path in trained.glob("*.safetensors")} == before


def test_it_says_what_is_untrained_and_how_far_from_the_original(command, tmp_path):
    arguments = ("train", "digits", "--mechanism", "linformer", "--layers", "1", *SMALL)
    ended = command(*arguments, "--set", "options.slots=2", "--output-dir", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "untrained: 20 parameters" in ended.out
    assert "left: it was not chosen" in ended.out
    assert "output error" in ended.out
    assert "slots=2" in ended.out
    assert "test accuracy" in ended.out
    assert "epoch 1 of 1" in ended.err


def test_several_seeds_have_a_folder_each_and_a_mean(command, tmp_path):
    arguments = ("train", "digits", "--seeds", "1,3", *SMALL, "--output-dir", tmp_path / "run")
    outcome = command(*arguments, "--json").json
    values = [run["accuracy"] for run in outcome["seeds"]]
    assert [run["seed"] for run in outcome["seeds"]] == [1, 3]
    assert outcome["accuracy"]["mean"] == pytest.approx(sum(values) / 2)
    assert outcome["mechanism"] is None
    for seed in (1, 3):
        sparing.load(tmp_path / "run" / f"seed-{seed}")
    shown = command(*arguments)
    assert "mean of 2 seeds" in shown.out
    evaluated = command("evaluate", tmp_path / "run" / "seed-3", "--task", "digits", "--json")
    assert evaluated.json["accuracy"]["value"] == values[1]


def test_the_same_command_on_another_model_is_another_training(command, tmp_path):
    base, tuned = tmp_path / "base", tmp_path / "tuned"
    assert command("train", "digits", *SMALL, "--output-dir", base).code == 0
    arguments = ("train", "digits", *SMALL, "--model", base, "--output-dir", tuned)
    assert command(*arguments).code == 0
    assert command(*arguments).code == 0  # read back
    again = ("train", "digits", *SMALL, "--seeds", "7,", "--overwrite", "--output-dir", base)
    assert command(*again).code == 0
    ended = command(*arguments)
    assert ended.code == 2
    assert "the model base have changed since" in ended.error


def test_seeds_are_no_more_alike_than_by_steps_of_a_score():
    mean = mean_over_seeds([0.9, 0.9], 0.01)
    low, high = mean["interval"]
    assert low < 0.9 < high


def test_learning_from_a_dense_teacher(command, tmp_path):
    dense, student = tmp_path / "dense", tmp_path / "student"
    assert command("train", "digits", *SMALL, "--output-dir", dense).code == 0
    arguments = ("train", "digits", *SMALL, "--model", dense, "--mechanism", "linear")
    ended = command(*arguments, "--distil-from", dense, "--output-dir", student, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["distance_before_training"]["output_error"] > 0
    assert json.loads((student / "run.json").read_text())["teacher"] != "none"


def test_a_swapped_model_can_be_trained_on(command, trained, tmp_path):
    arguments = ("train", "digits", *SMALL, "--model", trained, "--output-dir", tmp_path / "on")
    assert command(*arguments).code == 0
    assert sparing.load(tmp_path / "on").config.sparing["swap"][0]["mechanism"] == "window"


def test_ctrl_c_keeps_the_state_and_the_same_command_goes_on(command, tmp_path):
    run_dir = tmp_path / "run"
    arguments = ["train", "digits", "--epochs", "12", *SMALL[2:], "--output-dir", str(run_dir)]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparing", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    _wait_for(lambda: (run_dir / "metrics.jsonl").exists(), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "sparing: interrupted" in err
    assert "Traceback" not in out + err
    assert "test accuracy" not in out
    assert list(run_dir.glob("checkpoint-*"))
    ended = command(*arguments, "--json")
    (only,) = ended.json["seeds"]
    assert only["steps"] == 12 * 19
    assert any(note.startswith("resumed from step") for note in only["notes"])


def _wait_for(ready, process, seconds=120):
    end = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come that far"
        time.sleep(0.02)


def test_evaluate_names_split_and_chance(command, trained):
    shown = command("evaluate", trained, "--task", "digits", "--split", "validation")
    assert "validation split" in shown.out
    assert "of 270 right" in shown.out
    assert "chance level" in shown.out


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [(0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0), (81, 263, 0.255289, 0.366210)],
)
def test_the_interval_is_wilsons(right, count, low, high):
    assert wilson(right, count) == pytest.approx((low, high), abs=1e-6)


def test_weights_that_are_not_finite_are_named(command, trained, tmp_path):
    model = sparing.load(trained)
    with torch.no_grad():
        query = next(name for name, _ in model.named_parameters() if ".attention." in name)
        model.get_parameter(query).fill_(float("nan"))
    model.save_pretrained(tmp_path / "swapped")
    sparing.unswap(model)
    model.save_pretrained(tmp_path / "dense")
    on = ("train", "digits", *SMALL, "--output-dir", tmp_path / "run", "--model")
    for model_dir in (tmp_path / "swapped", tmp_path / "dense"):
        for ended in (command("evaluate", model_dir, "--task", "digits"), command(*on, model_dir)):
            assert ended.code == 1
            assert ended.error.endswith(f"{query} are not finite")


@pytest.mark.parametrize("setting", ["mechanism=foo", "task=listops", "seeds=4,5"])
def test_settings_that_have_an_option_of_their_own_are_refused(command, tmp_path, setting):
    ended = command("train", "digits", "--set", setting, "--output-dir", tmp_path / "run")
    assert ended.code == 2
    assert "give the rest as options" in ended.err
    assert not (tmp_path / "run").exists()


TEXTS = ("--set", "recipe.epochs=1", "--set", "task_options.max_tokens=16")


def _rows(path):
    lines = [f"good film {n},{n % 2}" for n in range(60)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def test_a_run_knows_its_own_tokenizer_wherever_it_is_read(
    command, bert, copy_of, tmp_path, monkeypatch
):
    rows, base = _rows(tmp_path / "rows.csv"), copy_of(bert)
    ended = command("train", rows, "--model", base, *TEXTS, "--output-dir", tmp_path / "run")
    assert ended.code == 0, ended.err
    shutil.rmtree(base)
    evaluated = command("evaluate", tmp_path / "run", "--json").json
    assert evaluated["accuracy"]["count"] == 12
    assert not any("changed" in note for note in evaluated["notes"])


def test_mended_data_is_not_answered_by_the_old_model(command, bert, tmp_path):
    rows = _rows(tmp_path / "rows.csv")
    given = ("train", rows, "--model", bert, *TEXTS, "--output-dir", tmp_path / "run")
    assert command(*given).code == 0
    rows.write_text(rows.read_text().replace("film 7,1", "film 7,0"))
    ended = command(*given)
    assert (ended.code, "the files of rows have changed since" in ended.err) == (2, True)
    evaluated = command("evaluate", tmp_path / "run", "--json").json
    assert any("the data has changed since" in note for note in evaluated["notes"])


def test_overwriting_leaves_nothing_of_the_training_before(command, tmp_path):
    folder = tmp_path / "run"
    given = ("train", "digits", *SMALL, "--output-dir", folder)
    assert command(*given).code == 0
    other = command(*given, "--seeds", "2")
    assert (other.code, "--overwrite" in other.error) == (2, True)
    assert command(*given, "--seeds", "2", "--overwrite").code == 0
    assert not list(folder.glob("*.safetensors")), "one seed's model would be taken for the two's"
    assert len(list(folder.glob("seed-*/*.safetensors"))) == 2
    again = command(*given, "--overwrite", "--json")
    assert (again.code, again.json["seeds"][0]["seed"]) == (0, 0)
    assert not list(folder.glob("seed-*/*.safetensors"))


def test_overwriting_leaves_no_tokenizer_behind(command, bert, tmp_path):
    rows, run = _rows(tmp_path / "rows.csv"), tmp_path / "run"
    assert command("train", rows, "--model", bert, *TEXTS, "--output-dir", run).code == 0
    assert (run / "tokenizer.json").is_file()
    options = ("--model", "bert", *TEXTS, "--set", "sizes.layers=1", "--output-dir", run)
    ended = command("train", rows, *options, "--overwrite")
    assert ended.code == 0, ended.err
    assert not list(run.glob("tokenizer*"))
    assert command("evaluate", run).code == 0, "its own words, not the tokenizer of before"


def test_overwriting_spares_what_the_training_begins_from(command, trained, copy_of):
    folder = copy_of(trained)
    given = ("train", "digits", *SMALL, "--output-dir", folder, "--overwrite")
    for part in ("--model", "--distil-from"):
        ended = command(*given, part, folder)
        assert (ended.code, "would drop" in ended.error) == (2, True)
    assert list(folder.glob("*.safetensors"))
