"""Two processes with half of each batch end as one process with all of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from sparing.core.errors import DataError, ProcessLost, Unsupported, UsageError
from sparing.core.interrupts import Terminated
from sparing.core.ranks import share_of
from sparing.train import train, trainer
from sparing.train.metering import Totals
from sparing.train.processes import environment_world, read_error, run_in, write_error
from tests.train.several import CASES, StopAt, fail, run_all, run_case

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


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
@pytest.mark.parametrize("whole", [1, 2, 5, 7, 16])
def test_shares_are_all_examples_once(whole, processes):
    shares = [share_of(whole, number, processes) for number in range(processes)]
    rows = [row for one in shares if not one.empty for row in range(one.start, one.stop)]
    assert rows == list(range(whole))
    sizes = [0 if one.empty else one.stop - one.start for one in shares]
    assert max(sizes) - min(sizes) <= 1
    assert all(one.rows == slice(0, 1) for one in shares if one.empty)


LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"WORLD_SIZE": "two"}, UsageError, "WORLD_SIZE is 'two'"),
        ({"WORLD_SIZE": "0"}, UsageError, "WORLD_SIZE is '0'"),
        ({"WORLD_SIZE": "2"}, UsageError, "WORLD_SIZE is 2, but RANK is not set"),
        (LAUNCHED | {"RANK": "2"}, UsageError, "RANK is 2, but WORLD_SIZE is 2"),
        (
            {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "::1"},
            UsageError,
            "one process of several",
        ),
        (LAUNCHED | {"ACCELERATE_USE_FSDP": "true"}, Unsupported, "FSDP: .*1 billion parameters"),
    ],
)
def test_launchers_that_went_wrong_are_named(given, error, words):
    with pytest.raises(error, match=words):
        environment_world(given)


def test_a_whole_environment_is_read():
    assert environment_world({}) == 1
    assert environment_world({"ACCELERATE_USE_CPU": "True"}) == 1
    assert environment_world(LAUNCHED) == 2


def test_fewer_gpus_than_processes(monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("sparing.train.trainer.on_cpu", lambda recipe: False)
    model, _, recipe, _ = CASES["classes"]()
    with pytest.raises(UsageError, match="2 processes for 1 GPUs"):
        trainer.join_for(model, recipe, trainer.usual_loss("", None, recipe.distillation))


class Unsplit:
    """A loss that does not say whether its means are over all processes."""

    teacher = None

    def describe(self):
        """Nothing."""
        return {}

    def __call__(self, model, batch, step):
        """No loss is needed here."""
        raise AssertionError


def test_what_cannot_be_shared_is_refused(monkeypatch):
    model, _, recipe, _ = CASES["classes"]()
    loss = trainer.usual_loss("", None, recipe.distillation)
    monkeypatch.setattr(trainer, "join", lambda cpu: 9)
    with pytest.raises(UsageError, match="9 processes for batches of 8 examples"):
        trainer.join_for(model, recipe, loss)
    recipe = replace(recipe, batch_size=9)
    trainer.join_for(model, recipe, loss)
    with pytest.raises(Unsupported, match="Unsplit does not say"):
        trainer.join_for(model, recipe, Unsplit())
    model.config.layerdrop = 0.1
    with pytest.raises(Unsupported, match="layerdrop"):
        trainer.join_for(model, recipe, loss)


class Counter:
    """Joules of the machine and of this process."""

    whole_machine = frozenset({"package_j"})

    def start(self):
        """Nothing to begin."""

    def stop(self):
        """A window."""
        return {"package_j": 5.0, "cpu_j": 2.0, "late_j": 1.0}


def test_energy_is_summed_over_processes_except_of_the_whole_machine(monkeypatch):
    others = [{"package_j": 6.0, "cpu_j": 3.0}]
    monkeypatch.setattr("sparing.train.metering.everywhere", lambda window: [window, *others])
    totals = Totals(Counter())
    for number in (1, 2):
        totals.go_on()
        assert totals.read() == {"package_j": 5.0 * number, "cpu_j": 5.0 * number}


def test_errors_are_the_same_in_another_process():
    for error in (UsageError("a"), DataError("b")):
        again = read_error(write_error(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
    assert type(read_error(write_error(KeyError("c")))) is RuntimeError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "error", "words"),
    [
        ("loss", UsageError, r"^the loss is nan at step 1: the input pixel_values is not finite"),
        ("one", UsageError, "^process 1 alone fails$"),
        ("killed", ProcessLost, "^process 1 of 2 ended by SIGKILL"),
        ("ended", ProcessLost, "ended with exit code 5"),
        ("interrupted", KeyboardInterrupt, "^$"),
        ("terminated", Terminated, "^$"),
    ],
)
def test_what_fails_in_one_process_is_raised_once(way, error, words, tmp_path, capfd):
    with pytest.raises(error, match=words):
        run_in(2, fail, way, tmp_path)
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    assert captured.out == ""


TRAINING = ("train", "digits", "--epochs", "3", "--set", "sizes.layers=1")
TRAINING += ("--set", "recipe.save_every_steps=4", "--set", "recipe.precision=float32")


def _begun(command, folder):
    """A started command and its ranks, once a checkpoint is whole: the next one has begun."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not [path for path in folder.glob("checkpoint-*") if path.name != "checkpoint-4"]:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    ranks = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    return process, sorted(ranks, key=lambda one: one.create_time())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "whom", "code", "line"),
    [
        (signal.SIGKILL, 0, 1, "process 0 of 2 ended by SIGKILL"),
        (signal.SIGKILL, 1, 1, "process 1 of 2 ended by SIGKILL"),
        (signal.SIGTERM, None, 143, "ended by SIGTERM"),
        (signal.SIGINT, 1, 130, "interrupted"),
    ],
)
def test_a_command_that_ends_goes_on_later(number, whom, code, line, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "sparing", *TRAINING, "--output-dir", str(folder)]
    process, ranks = _begun([*command, "--processes", "2"], folder)
    assert len(ranks) == 2
    (process if whom is None else ranks[whom]).send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert not any(rank.is_running() for rank in ranks)
    assert out == ""
    (said,) = [text for text in err.splitlines() if text.startswith("sparing: ")]
    assert line in said
    assert "the same command resumes" in said
    assert "Traceback" not in err
    again = subprocess.run([*command, "--processes", "2"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    notes = json.loads((folder / "result.json").read_text())["notes"]
    assert any(note.startswith("resumed from step") for note in notes)
    assert again.stdout.count("test accuracy") == 1


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_launchers_print_once(launcher, tmp_path):
    ways = {
        "torchrun": ("--nproc-per-node", "2"),
        "accelerate": ("launch", "--multi_gpu", "--num_processes", "2"),
    }
    program = str(Path(sys.executable).with_name(launcher))
    command = [program, *ways[launcher], "-m", "sparing", *TRAINING, "--output-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("chance level") == 1
    wrong = subprocess.run([*command, "--epochs", "-1"], capture_output=True, text=True)
    assert wrong.returncode != 0
    assert len([text for text in wrong.stderr.splitlines() if text.startswith("sparing: ")]) == 1
