"""Whether a model and a task mean the same, and runs that came to nothing before they began."""

from __future__ import annotations

import json
import random

import pytest

from sparing.compare.study import Options
from sparing.core.errors import UsageError
from tests.cli.conftest import SMALL

TEXTS = ("--model", "bert", "--epochs", "1", "--set", "task_options.max_tokens=16")
TINY = (*TEXTS, "--set", "sizes.layers=1", "--set", "sizes.width=16", "--set", "sizes.heads=2")


def rows(path, words=("good", "bad"), count=60):
    chance = random.Random(0)
    fill = [f"film{n}" for n in range(5)]
    lines = [f"{words[n % 2]} {chance.choice(fill)},{n % 2}" for n in range(count)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def test_a_model_with_words_of_its_own_is_evaluated_on_no_others(command, tmp_path):
    run = tmp_path / "run"
    ended = command("train", rows(tmp_path / "a.csv"), *TINY, "--output-dir", run)
    assert ended.code == 0, ended.err
    assert command("evaluate", run).code == 0
    other = rows(tmp_path / "b.csv", words=("fine", "poor"))  # as many words, in another order
    ended = command("evaluate", run, "--task", other, "--set", "max_tokens=16")
    assert ended.code == 2
    assert "was trained with other words" in ended.error


def test_classes_in_another_order_are_refused(command, trained, copy_of):
    turned = copy_of(trained)
    config = json.loads((turned / "config.json").read_text())
    names = [config["id2label"][str(n)] for n in range(10)]
    config["id2label"] = {str(n): name for n, name in enumerate(names[::-1])}
    config["label2id"] = {name: n for n, name in enumerate(names[::-1])}
    (turned / "config.json").write_text(json.dumps(config))
    ended = command("evaluate", turned, "--task", "digits", "--set", "patch_size=4")
    assert ended.code == 2
    assert "has the labels 9, 8, 7" in ended.error
    ended = command("slim", turned, "--task", "digits", "--output-dir", turned / "slim")
    assert (ended.code, "has the labels" in ended.error) == (2, True)


def test_the_chance_level_is_that_of_the_split(command, tmp_path):
    lines = [f"word {n},{int(n % 10 < share)}" for n, share in enumerate([9] * 40 + [5] * 40)]
    for name, part in (("train", lines[40:]), ("validation", lines[40:]), ("test", lines[:40])):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "\n".join(part) + "\n")
    run = tmp_path / "run"
    assert command("train", tmp_path, *TINY, "--output-dir", run).code == 0
    chances = {
        split: command("evaluate", run, "--split", split, "--json").json["chance"]
        for split in ("validation", "test")
    }
    assert chances == {"validation": pytest.approx(0.5), "test": pytest.approx(0.9)}


def test_a_run_that_trained_nothing_makes_room_for_the_next(command, tmp_path):
    given = ("train", "digits", *SMALL, "--output-dir", tmp_path / "run")
    failed = command(*given, "--precision", "float16")
    assert failed.code == 2
    ended = command(*given)
    assert ended.code == 0, ended.err
    again = command(*given, "--set", "recipe.learning_rate=0.5")
    assert (again.code, "holds another run" in again.error) == (2, True)


@pytest.mark.parametrize("part", ["teacher", "student"])
def test_what_drops_tokens_has_no_hidden_states_to_follow(command, tmp_path, trained, part):
    import sparing
    from sparing.models import build_model
    from sparing.tasks import load_task

    task = load_task("digits", patch_size=4)
    dense = build_model("vit", task, layers=2, width=16, heads=2)
    dense.save_pretrained(tmp_path / "dense")
    sparing.adapt(dense).save_pretrained(tmp_path / "adaptive")
    names = ("dense", "adaptive") if part == "teacher" else ("adaptive", "dense")
    student, teacher = (tmp_path / name for name in names)
    given = ("train", "digits", *SMALL, "--model", student, "--distil-from", teacher)
    ended = command(*given, "--output-dir", tmp_path / "run")
    assert ended.code == 2
    assert "gives no hidden states of all tokens" in ended.error
    alone = ("--set", "recipe.distillation.hidden_states=0")
    ended = command(*given, *alone, "--output-dir", tmp_path / "run")
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("verb", "setting", "words"),
    [
        ("train", "sizes.layers=a", "layers must be a whole number"),
        ("train", "sizes.layers=1.5", "layers must be a whole number"),
        ("train", "sizes.width=none", "width must be a whole number"),
        ("train", "sizes.dropout=2", "dropout must be in [0, 1)"),
        ("train", "recipe.learning_rate=1e999", "learning_rate must be above 0 and finite"),
        ("compare", "thread_count=0", "thread_count must be at least 1"),
        ("compare", "rounds=0", "rounds must be at least 1"),
        ("compare", "lengths=0", "lengths must be at least 1"),
        ("compare", "energy_seconds=-1", "energy_seconds must be above 0"),
        ("compare", "margin=-1", "margin must be above 0"),
    ],
)
def test_what_could_not_end_or_begin_is_refused(command, tmp_path, verb, setting, words):
    ended = command(verb, "digits", "--set", setting, "--output-dir", tmp_path / "run")
    assert ended.code == 2
    assert words in ended.error
    assert not (tmp_path / "run").exists()


def test_options_of_an_arm_are_options():
    with pytest.raises((UsageError, TypeError), match=r"linformer"):
        Options(options={"linformer": 3})
