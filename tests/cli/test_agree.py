"""``sparing agree``: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agree.models import rows, save_model


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return save_model(folder / "a"), save_model(folder / "b", noise=0.4)


@pytest.fixture
def texts(tmp_path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(["id,body", *(f"{n},{row}" for n, row in enumerate(rows(120)))]))
    return path


def test_it_prints_the_agreement_and_the_changed_texts(command, models, texts):
    ended = command("agree", *models, "--texts", texts, "--timed", 20)
    assert ended.code == 0
    assert "texts: body; label: none; left out: id" in ended.err
    assert "B gives the same answer as A on" in ended.out
    assert "With 95 % confidence at least" in ended.out
    assert "Speed: B is" in ended.out
    assert "Changed answers, from A to B:" in ended.out


def test_files_are_written_and_json_is_one_object(command, models, texts, tmp_path):
    changed, output = tmp_path / "changed.csv", tmp_path / "result.json"
    more = ("--changed", changed, "--output", output, "--timed", 0, "--json")
    ended = command("agree", *models, "--texts", texts, "--columns", "body", *more)
    content = ended.json
    assert content == json.loads(output.read_text())
    assert content["texts"] == 120
    assert len(changed.read_text().splitlines()) == content["changed"] + 1
    names = [record["name"] for record in content["records"]]
    assert names == ["agreement", "changed_answers", "logit_drift", "largest_logit_shift"]


def test_a_missed_goal_has_its_exit_code_and_says_why(command, models, texts):
    more = ("--texts", texts, "--timed", 0, "--at-least", 0.97)
    ended = command("agree", *models, *more)
    assert ended.code == 3
    assert "is shown to be at least" in ended.error
    assert "and 97 % is required" in ended.error
    same = command("agree", models[0], models[0], *more)
    assert same.code == 0
    both = command("agree", *models, *more, "--reference", models[0])
    assert both.code == 3
    assert f"the agreement of {models[1]}" in both.error
    assert "A agrees more" in both.out


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--at-least", 0.99), 1, "needs at least 299"),
        (("--at-least", 2), 2, "at_least must be"),
        (("--changed", "out.txt"), 2, r"written as .jsonl or .csv"),
        (("--columns", "boby"), 1, "did you mean 'body'"),
        (("--encoding", "utf-16"), 1, "is not utf-16 text"),
        (
            ("--threshold", 0.7),
            2,
            "threshold is for models that give several labels; these give one class",
        ),
    ],
)
def test_mistakes_are_one_line(command, models, texts, more, code, said):
    ended = command("agree", *models, "--texts", texts, *more)
    assert ended.code == code
    assert said in ended.error


def test_the_error_names_the_option_for_columns(command, models, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("one,two,three\na b,c d,e f\ng,h i,j k\n")
    ended = command("agree", *models, "--texts", path)
    assert "--columns=NAME,NAME" in ended.error


@pytest.mark.parametrize("path", ["~nouser/x", "./none", "none.onnx"])
def test_a_model_that_is_not_there_is_named(command, models, texts, path):
    for pair in ((path, models[0]), (models[0], path)):
        ended = command("agree", *pair, "--texts", texts)
        assert ended.code == 2
        assert path[:7] in ended.error


def test_the_result_is_printed_before_files_are_written(command, models, texts, tmp_path):
    (tmp_path / "file").write_text("in the way")
    output = tmp_path / "file" / "result.json"
    ended = command("agree", *models, "--texts", texts, "--timed", 0, "--output", output)
    assert ended.code in (1, 2)
    assert "B gives the same answer as A" in ended.out
