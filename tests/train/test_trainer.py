from __future__ import annotations

import json
import random
import shutil
import signal
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sparing.core.errors import CheckpointError, UsageError
from sparing.core.progress import progress_to
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train import Distillation, Recipe, evaluate, train
from sparing.train.order import LengthGrouped
from sparing.train.surroundings import generators_kept
from sparing.train.trainer import resolve_precision
from tests.train.small import equal, token_model, token_task, weights

WEIGHTS = "model.safetensors"
RECIPE = Recipe(epochs=4, batch_size=8, learning_rate=0.02, seed=3)


@pytest.fixture(scope="module")
def task():
    return token_task()


class _StopAt:
    """Ctrl-C once a share of the training is done."""

    def __init__(self, fraction):
        self.fraction = fraction

    def __call__(self, fraction, text):
        if fraction >= self.fraction:
            self.fraction = 2
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def instant_progress(monkeypatch):
    monkeypatch.setattr("sparing.train._loop.PROGRESS_SECONDS", 0)


def test_training_learns_and_leaves_what_it_says(task, tmp_path, capfd):
    model = token_model(task)
    events, waited = [], []
    with progress_to(lambda *event: waited.append(event)):  # no event: the call has a callback
        result = train(
            model,
            task,
            RECIPE,
            output_dir=tmp_path,
            on_progress=lambda *event: events.append(event),
        )
    assert result.steps == 4 * 8
    assert result.examples_seen == 4 * len(task.train)
    assert [entry["epoch"] for entry in result.curve] == [1, 2, 3, 4]
    assert result.validation_accuracy == max(entry["validation_accuracy"] for entry in result.curve)
    assert result.curve[-1]["train_loss"] < result.curve[0]["train_loss"]
    assert result.train_time_s > 0
    assert events[-1][0] == 1
    assert waited == []
    assert capfd.readouterr() == ("", "")
    evaluation = evaluate(model, task, "validation")
    assert evaluation.accuracy == result.validation_accuracy
    assert evaluation.loss == pytest.approx(result.validation_loss, rel=1e-6)
    reread = type(model).from_pretrained(tmp_path)
    assert equal(weights(model), weights(reread))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["train", "validation"] * 4


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.9])
def test_an_interrupted_run_ends_with_the_same_bits(task, tmp_path, instant_progress, fraction):
    whole = token_model(task)
    expected = train(whole, task, RECIPE, output_dir=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(
            token_model(task),
            task,
            RECIPE,
            output_dir=tmp_path / "parts",
            on_progress=_StopAt(fraction),
        )
    torch.manual_seed(99)
    resumed = token_model(task, seed=1)
    result = train(resumed, task, RECIPE, output_dir=tmp_path / "parts")
    assert equal(weights(whole), weights(resumed))
    assert result.curve == expected.curve
    assert result.examples_seen == expected.examples_seen
    assert "resumed" in result.notes[-1]
    metrics = [(tmp_path / run / "metrics.jsonl").read_text() for run in ("whole", "parts")]
    assert metrics[0] == metrics[1]


def test_vit_resumes_although_transformers_renames_its_weights(tmp_path, instant_progress):
    task = load_task("digits", patch_size=4)
    recipe = Recipe(epochs=2, batch_size=256, save_every_steps=2)
    whole = build_model("vit", task, width=8, layers=1)
    train(whole, task, recipe, output_dir=tmp_path / "whole")
    model = build_model("vit", task, width=8, layers=1)
    with pytest.raises(KeyboardInterrupt):
        train(model, task, recipe, output_dir=tmp_path / "parts", on_progress=_StopAt(0.7))
    resumed = build_model("vit", task, width=8, layers=1)
    train(resumed, task, recipe, output_dir=tmp_path / "parts")
    assert equal(weights(whole), weights(resumed))


def test_a_killed_run_goes_on_from_its_last_checkpoint(task, tmp_path):
    whole = token_model(task)
    train(whole, task, RECIPE, output_dir=tmp_path / "whole")

    def killed(fraction, text):
        if fraction > 0.6:
            raise RuntimeError("power cut")

    parts = tmp_path / "parts"
    with pytest.raises(RuntimeError, match="power cut"):
        train(token_model(task), task, RECIPE, output_dir=parts, on_progress=killed)
    with (parts / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tr')
    resumed = token_model(task)
    train(resumed, task, RECIPE, output_dir=parts)
    assert equal(weights(whole), weights(resumed))


def _whole_and_parts(task, folder):
    """A model trained in one go, and another run's folder that was left on the way."""
    whole, parts = token_model(task), folder / "parts"
    train(whole, task, RECIPE, output_dir=folder / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(token_model(task), task, RECIPE, output_dir=parts, on_progress=_StopAt(0.7))
    saved = sorted(parts.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    return whole, parts, saved


def test_the_last_checkpoint_damaged(task, tmp_path, instant_progress):
    whole, parts, (*_, newest) = _whole_and_parts(task, tmp_path)
    file = newest / "optimizer.pt"
    file.write_bytes(file.read_bytes()[:-100])
    resumed = token_model(task)
    result = train(resumed, task, RECIPE, output_dir=parts)
    assert newest.name in result.notes[0]
    assert equal(weights(whole), weights(resumed))


def test_all_checkpoints_damaged(task, tmp_path, instant_progress):
    with pytest.raises(KeyboardInterrupt):
        train(token_model(task), task, RECIPE, output_dir=tmp_path, on_progress=_StopAt(0.7))
    for file in tmp_path.glob("checkpoint-*/model.safetensors"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(CheckpointError, match="no checkpoint can be used"):
        train(token_model(task), task, RECIPE, output_dir=tmp_path)
    train(token_model(task), task, RECIPE, output_dir=tmp_path, resume="never")


def test_the_first_checkpoint_torn_while_it_was_written(task, tmp_path, instant_progress):
    whole, torn, (first, *other_paths) = _whole_and_parts(task, tmp_path)
    for path in other_paths:
        shutil.rmtree(path)
    (first / "trainer_state.json").unlink()  # it is written last
    again = token_model(task)
    result = train(again, task, RECIPE, output_dir=torn)
    assert f"{first.name} passed over: it is not whole" in result.notes[0]
    assert equal(weights(whole), weights(again))


def test_a_finished_run_is_read_back(task, tmp_path):
    first, again = token_model(task), token_model(task, seed=7)
    expected = train(first, task, RECIPE, output_dir=tmp_path)
    assert train(again, task, RECIPE, output_dir=tmp_path) == expected
    assert equal(weights(first), weights(again))
    assert not list(tmp_path.glob("checkpoint-*"))
    (tmp_path / f"checkpoint-{expected.best_step}").mkdir()  # killed while it was removed
    third = token_model(task, seed=8)
    assert train(third, task, RECIPE, output_dir=tmp_path) == expected
    assert equal(weights(first), weights(third))


def test_a_finished_run_whose_saved_names_differ_keeps_its_own(task, tmp_path, monkeypatch):
    def renamed(model, folder):
        model.save_pretrained(folder)
        stored = {f"old.{name}": tensor for name, tensor in load_file(folder / WEIGHTS).items()}
        save_file(stored, folder / WEIGHTS)

    monkeypatch.setattr("sparing.train.trainer.write_pretrained", renamed)
    first, again = token_model(task), token_model(task, seed=7)
    expected = train(first, task, RECIPE, output_dir=tmp_path)
    assert train(again, task, RECIPE, output_dir=tmp_path) == expected
    assert equal(weights(first), weights(again))
    assert [path.name for path in tmp_path.glob("checkpoint-*/*")] == [WEIGHTS]


def test_another_run_in_the_folder_is_not_touched(task, tmp_path):
    train(token_model(task), task, RECIPE, output_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"its recipe.seed is 3, now it is 4"):
        train(token_model(task), task, replace(RECIPE, seed=4), output_dir=tmp_path)
    with pytest.raises(CheckpointError, match="its model is"):
        train(token_model(task, width=16), task, RECIPE, output_dir=tmp_path)


def test_seeds_decide_and_nothing_else(task, tmp_path):
    runs = []
    for number, seed in enumerate((0, 0, 1)):
        torch.manual_seed(number)
        random.seed(number)
        model = token_model(task, seed=0)
        train(model, task, Recipe(epochs=1, seed=seed), output_dir=tmp_path / str(number))
        runs.append(weights(model))
    assert equal(runs[0], runs[1])
    assert not equal(runs[0], runs[2])


def test_the_users_generators_are_left_alone(task, tmp_path):
    # Python's own cannot be compared here: the checks of the annotations draw from it.
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    train(token_model(task), task, Recipe(epochs=1), output_dir=tmp_path)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_generators_are_put_back():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with generators_kept():
        random.random()
    assert random.random() == expected


def test_early_stopping_restores_the_best(task, tmp_path):
    recipe = Recipe(epochs=30, batch_size=8, learning_rate=0.05, patience=2)
    model = token_model(task)
    result = train(model, task, recipe, output_dir=tmp_path)
    assert result.stopped_early
    assert len(result.curve) < 30
    best = max(result.curve, key=lambda e: (e["validation_accuracy"], -e["validation_loss"]))
    assert best["step"] == result.best_step == result.curve[-3]["step"]
    assert evaluate(model, task, "validation").accuracy == best["validation_accuracy"]


def test_a_stopped_run_that_was_cut_off_while_finishing_trains_no_further(
    task, tmp_path, monkeypatch
):
    recipe = Recipe(epochs=30, batch_size=8, learning_rate=0.05, patience=2)

    def cut_off(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sparing.train.trainer._finish", cut_off)
        with pytest.raises(KeyboardInterrupt):
            train(token_model(task), task, recipe, output_dir=tmp_path)
    steps = max(int(path.name[11:]) for path in tmp_path.glob("checkpoint-*"))
    assert train(token_model(task), task, recipe, output_dir=tmp_path).steps == steps


def test_a_loss_that_is_not_finite_names_where_it_began(task, tmp_path):
    model = token_model(task)
    with torch.no_grad():
        model.classifier.bias[0] = float("nan")
    with pytest.raises(UsageError, match=r"the parameter classifier.bias is not finite"):
        train(model, task, RECIPE, output_dir=tmp_path)


def test_an_input_that_is_not_finite_is_named(tmp_path):
    task = load_task("digits", patch_size=4)
    task.train.inputs[7, 0, 2, 2] = float("inf")
    with pytest.raises(UsageError, match="the input pixel_values is not finite"):
        train(build_model("vit", task, width=8, layers=1), task, output_dir=tmp_path)


def test_distillation_follows_the_teacher(task, tmp_path):
    teacher, student = token_model(task, dropout=0.0), token_model(task, seed=4, dropout=0.0)

    def distance():
        batch = task.collate([task.test[index] for index in range(len(task.test))])
        with torch.no_grad():
            answers = [
                model.eval()(**batch, output_hidden_states=True) for model in (teacher, student)
            ]
        return [
            float((answers[0].logits - answers[1].logits).square().mean()),
            float((answers[0].hidden_states[-1] - answers[1].hidden_states[-1]).square().mean()),
        ]

    before = distance()
    weights_before = weights(teacher)
    recipe = Recipe(
        epochs=15, batch_size=8, learning_rate=0.02, distillation=Distillation(0.0, 1.0, 1.0)
    )
    train(student, task, recipe, output_dir=tmp_path, teacher=teacher)
    assert all(after < 0.5 * first for after, first in zip(distance(), before, strict=True))
    assert equal(weights(teacher), weights_before)


@pytest.mark.filterwarnings("ignore:this processor has no instructions")
def test_bfloat16_leaves_a_float32_model_and_the_next_run_alone(task, tmp_path):
    model = token_model(task)
    forward = model.forward
    train(model, task, Recipe(epochs=1, precision="bfloat16"), output_dir=tmp_path / "half")
    assert all(tensor.dtype == torch.float32 for tensor in model.parameters())
    assert model.forward == forward
    after, alone = token_model(task), token_model(task)
    train(after, task, Recipe(epochs=1), output_dir=tmp_path / "after")
    train(alone, task, Recipe(epochs=1), output_dir=tmp_path / "alone")
    assert equal(weights(after), weights(alone))
    assert not equal(weights(after), weights(model))


@pytest.mark.parametrize("native", [True, False])
def test_precision_is_resolved_by_the_device(native, monkeypatch):
    monkeypatch.setattr("sparing.train.trainer.multiplies_bfloat16", lambda: native)
    assert resolve_precision("auto", cpu=True) == "float32"
    assert resolve_precision("fast", cpu=True) == ("bfloat16" if native else "float32")
    with nullcontext() if native else pytest.warns(UserWarning, match="tens of times"):
        assert resolve_precision("bfloat16", cpu=True) == "bfloat16"
    with pytest.raises(UsageError, match="needs an accelerator"):
        resolve_precision("float16", cpu=True)


def test_unknown_trackers_are_named(task, tmp_path):
    with pytest.raises(UsageError, match="nosuch"):
        train(token_model(task), task, Recipe(trackers=("nosuch",)), output_dir=tmp_path)


def test_a_folder_that_cannot_be_written(task, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        train(token_model(task), task, RECIPE, output_dir=tmp_path / "file" / "run")


def test_a_full_disk_gives_one_line(task, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparing.train.checkpoints.save_file", full)
    with pytest.raises(UsageError, match="No space left on device"):
        train(token_model(task), task, RECIPE, output_dir=tmp_path)


def test_checkpoints_hold_the_models_own_names(task, tmp_path, instant_progress):
    whole, _, saved = _whole_and_parts(task, tmp_path)
    assert {frozenset(load_file(path / WEIGHTS)) for path in saved} == {
        frozenset(whole.state_dict())
    }


def test_each_epoch_has_its_own_order(task, tmp_path, monkeypatch):
    epochs = []
    monkeypatch.setattr(
        LengthGrouped, "__iter__", lambda self: epochs.append(self.epoch) or iter(range(len(self)))
    )
    train(token_model(task), task, RECIPE, output_dir=tmp_path)
    assert epochs == [0, 1, 2, 3]


def test_no_examples_are_refused(task, tmp_path):
    with pytest.raises(UsageError, match="no training examples"):
        train(token_model(task), replace(task, train=task.train.subset([])), output_dir=tmp_path)


def test_no_signal_handler_is_left(task, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    train(token_model(task), task, Recipe(epochs=1), output_dir=tmp_path)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_data_is_another_run(task, tmp_path):
    train(token_model(task), task, RECIPE, output_dir=tmp_path)
    labels = 1 - task.train.labels
    turned = replace(task, train=replace(task.train, labels=labels))
    with pytest.raises(CheckpointError, match="holds another run: its data is"):
        train(token_model(task), turned, RECIPE, output_dir=tmp_path)
    run_config = json.loads((tmp_path / "run.json").read_text())
    del run_config["data"]  # as older versions left it
    (tmp_path / "run.json").write_text(json.dumps(run_config))
    assert train(token_model(task), turned, RECIPE, output_dir=tmp_path).steps > 0


def test_without_validation_nothing_is_trained(task, tmp_path):
    bare = replace(task, validation=task.validation.subset([]))
    with pytest.raises(UsageError, match="no validation examples to choose the best epoch by"):
        train(token_model(task), bare, RECIPE, output_dir=tmp_path)
