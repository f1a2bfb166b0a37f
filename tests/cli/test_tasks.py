"""Tasks that a person brings along, and what is told of those that there are."""

from __future__ import annotations

import pytest

from tests.tasks.test_squad import write_questions
from tests.tasks.tokenizers import save_tokenizer

SMALL = ("--set", "sizes.layers=1", "--set", "sizes.width=8", "--set", "sizes.heads=1")


@pytest.fixture
def reviews(tmp_path):
    rows = [f"a {'fine' if i % 2 else 'dull'} film number {i}\t{i % 2}" for i in range(40)]
    path = tmp_path / "reviews.tsv"
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return path


def test_a_path_is_a_task_wherever_one_is_named(command, reviews, tmp_path):
    place = tmp_path / "run"
    arguments = ("--epochs", 1, *SMALL, "--output-dir", place)
    ended = command("train", reviews, *arguments)
    assert ended.code == 0, ended.err
    assert "test: 8 rows cut from the training file" in ended.out
    judged = command("evaluate", place, "--task", reviews, "--json").json
    assert judged["task"] == "reviews"
    assert (judged["metric"], judged["chance"]) == ("accuracy", 0.5)
    assert judged["accuracy"] == judged["scores"]["accuracy"]
    low, high = judged["scores"]["matthews"]["interval"]
    assert low <= judged["scores"]["matthews"]["value"] <= high


def test_numbers_have_their_own_metrics(command, reviews, tmp_path):
    place, kind = tmp_path / "run", ("--set", "task_options.answer=number")
    outcome = command(
        "train", reviews, *kind, "--epochs", 1, *SMALL, "--output-dir", place, "--json"
    ).json
    assert (outcome["metric"], outcome["accuracy"]) == ("pearson", None)
    assert outcome["score"]["mean"] == outcome["seeds"][0]["scores"]["pearson"]
    shown = command("evaluate", place, "--task", reviews)
    assert shown.code == 0, shown.err
    assert "pearson" in shown.out
    assert "right" not in shown.out
    judged = command("evaluate", place, "--task", reviews, "--json").json
    assert judged["accuracy"] is None
    assert list(judged["scores"]) == ["pearson", "spearman"]


def test_what_is_wrong_with_ones_own_file_is_one_line(command, reviews, tmp_path):
    reviews.write_text(reviews.read_text() + "no label here\n")
    arguments = (*SMALL, "--output-dir", tmp_path / "run")
    ended = command("train", reviews, *arguments)
    assert ended.code == 1
    assert "reviews.tsv: 1 row is broken: line 42 (1 column, not 2)" in ended.error
    assert (
        "did you mean 'label'"
        in command("train", reviews, "--set", "task_options.lable=x", *arguments).error
    )
    assert "there is no file or folder" in command("train", "./nowhere", *arguments).error
    assert "did you mean 'cola'" in command("train", "colla", *arguments).error


def test_facts_of_all_tasks(command):
    rows = command("list", "tasks", "--facts", "--json").json["tasks"]
    names = command("list", "tasks", "--json").json["tasks"]
    assert list(rows) == names
    for row in rows.values():
        assert row["metrics"]
        assert row["licence"]
        assert row["source"]
        assert row["splits"]
    assert rows["stsb"]["metrics"] == ["pearson", "spearman"]
    shown = command("list", "tasks", "--facts").out
    assert "cola: matthews, accuracy; chance 0.000" in shown
    assert "text: accuracy, matthews; chance depends on the data" in shown
    assert command("list", "--facts").code == 2


def test_answers_in_passages_are_trained_and_judged(command, tmp_path):
    write_questions(tmp_path / "squad", 14)
    words = save_tokenizer(tmp_path / "tokenizer")
    given = [f"tokenizer={words}", "max_tokens=90", "stride=15", "test_examples=6"]
    asked = [part for each in given for part in ("--set", f"task_options.{each}")]
    place, data = tmp_path / "run", ("--data", tmp_path)
    ended = command(
        *("train", "squad", "--model", "bert", "--epochs", 1, *SMALL, *asked, *data),
        *("--mechanism", "window", "--set", "options.radius=8", "--output-dir", place, "--json"),
    )
    outcome = ended.json
    judged = command("evaluate", place, "--task", "squad", *data, "--json").json
    assert list(judged["scores"]) == ["token_f1", "exact_match"]
    assert judged["scores"]["token_f1"]["value"] == outcome["score"]["mean"]
    for score in judged["scores"].values():
        low, high = score["interval"]
        assert low <= score["value"] <= high
    assert "test holds 6 of 9 dev questions" in judged["notes"][-1]
    assert "of 6 right" in command("evaluate", place, "--task", "squad", *data).out
