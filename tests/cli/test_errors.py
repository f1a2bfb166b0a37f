"""What a person does wrongly, or the machine: one clear line, the right code, never a traceback."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, SMALL_COMPARE

PRUNE = ("prune", "./nowhere", "--task", "digits", "--heads", "0.5", "--output-dir", "out")
LINFORMER = ("compare", "digits", "--mechanisms", "linformer")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["comprae"], "Did you mean 'compare'?"),
        (["compare", "--mechansims", "x"], "--mechanisms"),
        (["list", "mechanism"], "did you mean 'mechanisms'?"),
        (["show", "linformr"], "did you mean 'linformer'"),
        (["show", "no.such.module"], "no module 'no.such.module'"),
        (["check", "kerformr"], "did you mean 'kerformer'"),
        (["check", "softmax", "--checks", "determinsm"], "did you mean 'determinism'?"),
        (["compare", "digit"], "did you mean 'digits'?"),
        (["compare", "digits", "--mechanisms", "linformr"], "did you mean 'linformer'"),
        (["compare", "digits", "--model", "vitt"], "did you mean 'vit'?"),
        (["compare", "digits", "--set", "recipe.epoch=3"], "did you mean 'epochs'?"),
        (["compare", "digits", "--set", "task_options.patch_sise=3"], "did you mean 'patch_size'?"),
        ([*LINFORMER, "--set", "options.linformer.slot=3"], "did you mean 'slots'?"),
        ([*LINFORMER, "--set", "options.linformr.slots=3"], "did you mean 'linformer'"),
        ([*LINFORMER, "--set", "sizes.layer=3"], "did you mean 'layers'?"),
        (["study", "compar"], "did you mean 'compare'?"),
        (["study", "compare", "--budget", "quik"], "did you mean 'quick'?"),
        (["train", "digts"], "did you mean 'digits'?"),
        (["train", "digits", "--model", "vt"], "did you mean 'vit'?"),
        (["train", "digits", "--mechanism", "windw"], "did you mean 'window'?"),
        (["train", "digits", "--set", "recipe.batchsize=3"], "did you mean 'batch_size'?"),
        (
            ["train", "digits", "--mechanism", "window", "--set", "options.radiuss=3"],
            "did you mean 'radius'?",
        ),
        (["measure", "linformr"], "did you mean 'linformer'"),
        (["measure", "linformer", "--set", "slotz=3"], "did you mean 'slots'?"),
    ],
)
def test_an_unknown_name_gets_the_nearest(command, tmp_path, arguments, words):
    if arguments[0] in ("train", "compare", "study"):
        arguments = [*arguments, "--output-dir", tmp_path / "run"]
    ended = command(*arguments)
    assert ended.code == 2
    assert words in ended.error
    assert ended.out == ""
    assert not (tmp_path / "run" / "records.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "digits", "--set", "sizes.heads=5"], "5 heads do not divide the width 32"),
        ([*LINFORMER, "--set", "sizes.heads=5"], "5 heads do not divide the width 32"),
        (["train", "digits", "--model", "bert"], "bert reads tokens, but task digits gives images"),
        (["train", "digits", "--set", "task_options.patch_size=3"], "must be 1, 2, 4 or 8"),
        (["train", "digits", "--epochs", "-1"], "epochs must be at least 1; got -1"),
        (["train", "digits", "--epochs", "many"], "Invalid value for '--epochs'"),
        (["train", "digits", "--seeds", "0"], "--seeds takes a number of seeds"),
        (["train", "digits", "--seeds", "a,b"], "--seeds takes whole numbers"),
        (["train", "digits", "--seeds", "1,1"], "names a seed twice"),
        (["train", "digits", "--set", "recipe.seed=4"], "give --seeds instead"),
        (["slim", "vit", "--seed", "1", "--set", "seed=4"], "--set seed: give --seed instead"),
        (["slim", "vit", "--set", "model=bert"], "give the first argument instead"),
        (["train", "digits", "--precision", "bfloat32"], "did you mean 'float32' or 'bfloat16'?"),
        (["train", "digits", "--precision", "float16"], "needs an accelerator"),
        (["train", "digits", "--layers", "0"], "name one with --mechanism"),
        (["train", "digits", "--mechanism", "window", "--layers", "7"], "there is no layer 7"),
        (["train", "digits", "--mechanism", "window", "--layers", "one"], "cannot read layers"),
        (["train", "digits", "--distil-from", "./nowhere"], "there is no such folder"),
        (["train", "digits", "--track", "tensorbord"], "tensorbord"),
        (["train", "digits", "--set", "recipe.learning_rate=-1"], "learning_rate must be above 0"),
        (["compare", "digits", "--seeds", "x"], "--seeds takes whole numbers"),
        (["compare", "digits", "--set", "lengths=()"], "lengths must name at least one"),
        (["compare", "digits", "--mechanisms", "window,window"], "mechanisms are named twice"),
        (["measure", "window", "--tokens", "0"], "--tokens must be at least 1; got 0"),
        (["measure", "window", "--batch", "0"], "--batch must be at least 1; got 0"),
        (["measure", "window", "--rounds", "0"], "--rounds must be at least 1"),
        (["measure", "window", "--energy-seconds", "0"], "--energy-seconds must be above 0"),
        (["measure", "window", "--set", "radius=-1"], "radius"),
        (["measure", "window", "--against", "softmax"], "--against takes a model"),
        (["measure", "./nowhere"], "there is no such folder"),
        (["measure", "./nowhere", "--heads", "4"], "--heads and --dim are a mechanism's"),
        (["calculate", "1 + 2", "--seed", "3"], "no such option: --seed"),
        ([*PRUNE, "--steps", "2"], "--steps needs training between stages"),
        ([*PRUNE, "--learning-rate", "1e-3"], "--learning-rate needs training"),
        ([*PRUNE, "--precision", "fast"], "--precision needs training"),
        (["show", "softmax", "--heads", "0"], "must be a positive integer; got 0"),
        (["list", "tasks", "--traits"], "--traits belongs to mechanisms"),
        (["train"], "Missing"),
    ],
)
def test_what_cannot_be_is_named(command, tmp_path, arguments, words):
    if arguments[0] in ("train", "compare") and len(arguments) > 1:
        arguments = [*arguments, "--output-dir", tmp_path / "run"]
    ended = command(*arguments)
    assert ended.code == 2
    assert words in ended.error
    assert ended.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["windw"], "did you mean 'window'?"),
        (["window", "--set", "radiuss=2"], "did you mean 'radius'?"),
        (["window", "--layers", "3"], "there is no layer 3"),
        (["window", "--set", "radius"], "--set takes path=value"),
        ([], "either a mechanism or --plan"),
    ],
)
def test_swap_names_what_is_wrong(command, bert, tmp_path, arguments, words):
    ended = command("swap", bert, *arguments, "--output-dir", tmp_path / "swapped")
    assert ended.code == 2
    assert words in ended.error
    assert not list((tmp_path / "swapped").glob("*"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no plan such as"),
        ('{"0": 3}', "3 is not a mechanism"),
        ('{"0": ["window"]}', "is not a mechanism"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_plan_that_is_none(command, bert, tmp_path, content, words):
    plan = tmp_path / "plan.json"
    if content is not None:
        plan.write_text(content)
    ended = command("swap", bert, "--plan", plan, "--output-dir", tmp_path / "swapped")
    assert ended.code == 1
    assert words in ended.error


def test_lengths_above_a_maximum(command, bert, tmp_path):
    ended = command("measure", bert, "--tokens", 49)
    assert ended.code == 2
    assert "at most 48" in ended.error
    model_dir = tmp_path / "swapped"
    arguments = ("swap", bert, "linformer", "--tokens", "16", "--output-dir", model_dir)
    assert command(*arguments, "--set", "slots=4").code == 0
    ended = command("measure", model_dir, "--tokens", 17)
    assert ended.code == 2
    assert "at most 16" in ended.error


def test_a_model_of_another_task_is_refused(command, trained, bert):
    ended = command("evaluate", trained, "--task", "listops", "--set", "examples=10")
    assert ended.code == 2
    assert "reads pixel_values, but task listops gives input_ids" in ended.error
    ended = command("evaluate", bert)
    assert (ended.code, "give --task" in ended.error) == (2, True)
    ended = command("evaluate", bert, "--task", "digits")
    assert "reads input_ids, but task digits gives pixel_values" in ended.error
    ended = command("evaluate", trained, "--task", "digits", "--set", "patch_size=2")
    assert "4 pixels a patch, but task digits has 2" in ended.error
    ended = command("evaluate", trained, "--task", "digits", "--split", "tst")
    assert "did you mean 'test'?" in ended.error
    ended = command("measure", trained, "--tokens", 64)
    assert "an image has as many as it has" in ended.error


FASHION = ("train", "fashion-mnist", "--epochs", "1")


def test_a_missing_data_folder_says_what_to_put_where(command, tmp_path, monkeypatch):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    arguments = (*FASHION, "--output-dir", tmp_path / "run")
    ended = command(*arguments)
    assert ended.code == 1
    assert "give --data or set SPARING_DATA, and put train-images-idx3-ubyte" in ended.error
    assert "fashion-mnist/" in ended.error
    ended = command(*arguments, "--data", tmp_path / "nowhere")
    assert "nowhere does not exist" in ended.error
    monkeypatch.setenv("SPARING_DATA", str(tmp_path))
    ended = command(*arguments)
    assert "put train-images-idx3-ubyte" in ended.error
    ended = command("train", "sst2", "--output-dir", tmp_path / "run")
    assert ended.code == 1
    assert "put train.tsv" in ended.error


def _idx(shape, content):
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + content


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (_idx((20, 28, 28), bytes(784 * 19)), "should hold 15680 elements but holds 14896"),
        (gzip.compress(_idx((20, 28, 28), bytes(784 * 20)))[:40], "is cut short"),
        (b"PNG, to be sure, and nothing else", "is not an idx file"),
        (b"", "is not an idx file"),
    ],
    ids=["short", "short-gzip", "foreign", "empty"],
)
def test_data_files_cut_short_or_of_another_format(command, tmp_path, images, words):
    zipped = images[:2] == b"\x1f\x8b"
    (tmp_path / f"train-images-idx3-ubyte{'.gz' if zipped else ''}").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(_idx((20,), bytes(20)))
    ended = command(*FASHION, "--data", tmp_path, "--output-dir", tmp_path / "run")
    assert ended.code == 1
    assert words in ended.error
    assert "train-images-idx3-ubyte" in ended.error


def test_a_table_of_another_format(command, tmp_path):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\ngood\t1\nbad\n")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ngood\t1\n")
    ended = command("train", "sst2", "--data", tmp_path, "--output-dir", tmp_path / "run")
    assert ended.code == 1
    assert "train.tsv: 1 row is broken: line 3 (1 column, not 2)" in ended.error


def test_texts_that_cannot_be_read(command, bert, trained, tmp_path):
    texts = tmp_path / "texts.txt"
    arguments = ("--output-dir", tmp_path / "swapped", "--texts", texts)
    assert "there is no file" in command("swap", bert, "window", *arguments).error
    texts.write_text("\n\n")
    assert "holds no texts" in command("swap", bert, "window", *arguments).error
    texts.write_bytes(b"\xff\xfe\x00")
    ended = command("swap", bert, "window", *arguments)
    assert ended.code == 1
    assert "not UTF-8" in ended.error
    texts.write_text("good film\n")
    ended = command("swap", trained, "window", *arguments)
    assert ended.code == 2
    assert "comes without one" in ended.error


def _cut(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def _spoil(folder):
    (folder / "model.safetensors").write_bytes(b"\x00" * 500)


def _take_weights(folder):
    (folder / "model.safetensors").unlink()


def _take_config(folder):
    (folder / "config.json").unlink()


def _cut_config(folder):
    (folder / "config.json").write_text('{"model_type": "vi')


def _foreign_config(folder):
    (folder / "config.json").write_text('{"name": "somebody else\'s"}')


def _newer_config(folder):
    _change_config(folder, lambda config: config["sparing"].update(version=99))


def _other_shape(folder):
    _change_config(folder, lambda config: config.update(intermediate_size=32))


def _other_layers(folder):
    _change_config(folder, lambda config: config["sparing"]["swap"][0].update(layer=9))


def _change_config(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_cut, "the weights cannot be read"),
        (_spoil, "the weights cannot be read"),
        (_take_weights, "the weights cannot be read"),
        (_take_config, "holds no config.json"),
        (_cut_config, "cannot be read"),
        (_foreign_config, "is not a transformers configuration"),
        (_newer_config, "newer sparing (version 99)"),
        (_other_shape, ""),
        (_other_layers, "no self-attention layer 9"),
    ],
)
def test_a_damaged_model_is_named(command, trained, copy_of, spoil, words):
    folder = copy_of(trained)
    shutil.rmtree(folder / "training")
    spoil(folder)
    ended = command("evaluate", folder, "--task", "digits", "--set", "patch_size=4")
    assert ended.code == 1
    assert words in ended.error
    assert str(folder) in ended.error


def test_a_damaged_run_is_named(command, trained, copy_of):
    folder = copy_of(trained)
    arguments = ("train", "digits", "--mechanism", "window", *SMALL, "--output-dir", folder)
    other = command(*arguments, "--set", "recipe.batch_size=32")
    assert other.code == 2
    assert "holds another run: recipe was" in other.error
    (folder / "result.json").write_text('{"steps": ')
    ended = command(*arguments)
    assert ended.code == 1
    assert "result.json cannot be read" in ended.error
    (folder / "training" / "config.json").write_text("{")
    ended = command(*arguments)
    assert ended.code == 1
    assert "config.json cannot be read: it is not JSON" in ended.error


def _below_a_file(folder):
    (folder / "file").write_text("")
    return folder / "file" / "run"


def _in_proc(folder):
    return Path("/proc/sparing")


@pytest.mark.parametrize("folder_of", [_below_a_file, _in_proc])
@pytest.mark.parametrize("arguments", [SMALL_COMPARE, ("train", "digits"), "swap"])
def test_a_folder_that_cannot_be_written(command, bert, tmp_path, folder_of, arguments):
    arguments = ("swap", bert, "window") if arguments == "swap" else arguments
    folder = folder_of(tmp_path)
    ended = command(*arguments, "--output-dir", folder)
    assert ended.code == 2
    assert f"cannot write to {folder}" in ended.error
    assert ended.out == ""


def test_swap_keeps_what_is_there(command, bert, tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    ended = command("swap", bert, "window", "--output-dir", tmp_path)
    assert ended.code == 2
    assert "is not empty" in ended.error
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_hub_that_cannot_be_reached_or_has_no_such_model(command, tmp_path):
    ended = command("swap", "nobody/nothing", "window", "--output-dir", tmp_path / "swapped")
    assert ended.code == 2
    assert "no model 'nobody/nothing'" in ended.error


def test_a_model_that_is_a_file(command, bert, tmp_path):
    ended = command("evaluate", bert / "config.json", "--task", "digits")
    assert ended.code == 2
    assert "is a file; give the folder" in ended.error


def test_settings_of_the_environment_are_checked(command, monkeypatch):
    monkeypatch.setenv("SPARING_WATTS_PER_CORE", "many")
    ended = command("doctor")
    assert ended.code == 2
    assert "SPARING_WATTS_PER_CORE='many'" in ended.error


def test_a_fault_of_ours_is_one_line_and_says_how_to_see_more(monkeypatch, capsys):
    from sparing.cli import main

    def fail(*_):
        raise ZeroDivisionError("a fault\nwith details")

    monkeypatch.setattr("sparing.experiment.installed.installed", fail)
    for level, shown in (("", False), ("debug", True)):
        monkeypatch.setenv("SPARING_LOG_LEVEL", level)
        with pytest.raises(SystemExit) as ended:
            main(["list", "studies"])
        assert ended.value.code == 1
        error = capsys.readouterr().err
        assert (
            "internal error, ZeroDivisionError: a fault (SPARING_LOG_LEVEL=debug shows more)"
            in error
        )
        assert ("Traceback" in error) == shown


def test_a_mistake_in_a_process_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "sparing", "show", "linformr"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    hint = "did you mean 'linformer' or 'longformer'?"
    assert done.stderr == f"sparing: unknown mechanism 'linformr'; {hint}\n"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [SMALL_COMPARE, ("train", "digits", *SMALL), "swap"])
def test_a_disk_that_is_really_full(command, bert, tmp_path, arguments):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        swap = arguments == "swap"
        arguments = ("swap", bert, "window") if swap else arguments
        ended = command(*arguments, "--output-dir", disk / "run")
        assert ended.code == 1
        assert "No space left" in ended.error or "os error 28" in ended.error
    finally:
        subprocess.run(["umount", str(disk)], check=True)
