"""Tasks that a person brings along, and what is shown of those that there are."""

from __future__ import annotations

import pytest

from sparing.cli.shared.settings import apply
from sparing.compare import study as compare
from sparing.slim import study as slim
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
    run_dir = tmp_path / "run"
    arguments = ("--epochs", 1, *SMALL, "--output-dir", run_dir)
    ended = command("train", reviews, *arguments)
    assert ended.code == 0, ended.err
    assert "test: 8 rows cut from the training file" in ended.out
    evaluated = command("evaluate", run_dir, "--task", reviews, "--json").json
    assert evaluated["task"] == "reviews"
    assert (evaluated["metric"], evaluated["chance"]) == ("accuracy", 0.5)
    assert evaluated["accuracy"] == evaluated["scores"]["accuracy"]
    low, high = evaluated["scores"]["matthews"]["interval"]
    assert low <= evaluated["scores"]["matthews"]["value"] <= high


def test_numbers_have_their_own_metrics(command, reviews, tmp_path):
    run_dir, kind = tmp_path / "run", ("--set", "task_options.answer=number")
    outcome = command(
        "train", reviews, *kind, "--epochs", 1, *SMALL, "--output-dir", run_dir, "--json"
    ).json
    assert (outcome["metric"], outcome["accuracy"]) == ("pearson", None)
    assert outcome["score"]["mean"] == outcome["seeds"][0]["scores"]["pearson"]
    shown = command("evaluate", run_dir, "--task", reviews)
    assert shown.code == 0, shown.err
    assert "pearson" in shown.out
    assert "right" not in shown.out
    evaluated = command("evaluate", run_dir, "--task", reviews, "--json").json
    assert evaluated["accuracy"] is None
    assert list(evaluated["scores"]) == ["pearson", "spearman"]


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


def test_answers_in_passages_are_trained_and_evaluated(command, tmp_path):
    write_questions(tmp_path / "squad", 14)
    words = save_tokenizer(tmp_path / "tokenizer")
    given = [f"tokenizer={words}", "max_tokens=90", "stride=15", "test_examples=6"]
    settings = [part for setting in given for part in ("--set", f"task_options.{setting}")]
    run_dir, data = tmp_path / "run", ("--data", tmp_path)
    ended = command(
        *("train", "squad", "--model", "bert", "--epochs", 1, *SMALL, *settings, *data),
        *("--mechanism", "window", "--set", "options.radius=8", "--output-dir", run_dir, "--json"),
    )
    outcome = ended.json
    evaluated = command("evaluate", run_dir, "--task", "squad", *data, "--json").json
    assert list(evaluated["scores"]) == ["token_f1", "exact_match"]
    assert evaluated["scores"]["token_f1"]["value"] == outcome["score"]["mean"]
    for score in evaluated["scores"].values():
        low, high = score["interval"]
        assert low <= score["value"] <= high
    assert "test holds 6 of 9 dev questions" in evaluated["notes"][-1]
    assert "of 6 right" in command("evaluate", run_dir, "--task", "squad", *data).out


def test_what_is_taken_of_a_file_is_printed_before_anything_runs(command, reviews, tmp_path):
    lines = reviews.read_text().splitlines()
    rows = [f"id\t{lines[0]}", *(f"{number}\t{line}" for number, line in enumerate(lines[1:]))]
    reviews.write_text("\n".join(rows))
    run, taken = tmp_path / "run", "texts: text; label: label; left out: id; test: a fifth"
    trained = command("train", reviews, "--epochs", 1, *SMALL, "--output-dir", run)
    assert taken in trained.err.splitlines()[0]
    assert trained.err.count(taken) == 1
    evaluated = command("evaluate", run, "--json")
    assert taken in evaluated.err
    assert evaluated.json["task"] == "reviews"


def test_messages_give_options_in_the_form_of_the_verb(command, reviews, tmp_path):
    run = tmp_path / "run"
    done = command("train", reviews, "--epochs", 1, *SMALL, "--output-dir", run)
    assert done.code == 0, done.err
    reviews.write_text(reviews.read_text() + "no label here\n")
    rest = {
        "train": (reviews, "--epochs", 1, *SMALL, "--output-dir", tmp_path / "other"),
        "evaluate": (run, "--task", reviews),
        "prune": (run, "--task", reviews, "--heads", 0.5, "--output-dir", tmp_path / "pruned"),
        "compare": (reviews, "--output-dir", tmp_path / "compared"),
        "slim": (run, "--task", reviews, "--output-dir", tmp_path / "slim"),
        "study": ("hugginggreen", "--set", f"tasks={reviews}", "--output-dir", tmp_path / "study"),
    }
    for verb, arguments in rest.items():
        form = command(verb, *arguments).error.partition("leave such rows out with ")[2].split()
        assert form[0] == "--set"
        if verb in ("train", "evaluate"):
            ended = command(verb, *arguments, *form)
            assert "1 broken row left out: line 42" in ended.out, ended.err
        elif verb == "prune":
            assert form[1] == "skip_broken=true"
        elif verb == "study":
            assert form[1] == "task_options.TASK.skip_broken=true"
        else:
            options = compare.Options() if verb == "compare" else slim.BUDGETS["quick"]
            assert apply(options, form[1:]).task_options["skip_broken"] is True


@pytest.mark.parametrize("verb", ["train", "compare", "slim", "evaluate", "prune", "study"])
def test_a_data_folder_that_is_not_there_is_refused(command, trained, tmp_path, verb):
    out = ("--output-dir", tmp_path / "run")
    arguments = {
        "train": ("digits", *out),
        "compare": ("digits", *out),
        "slim": ("vit", "--task", "digits", *out),
        "evaluate": (trained,),
        "prune": (trained, "--task", "digits", "--heads", 0.5, *out),
        "study": ("compare", *out),
    }[verb]
    ended = command(verb, *arguments, "--data", tmp_path / "nowhere")
    assert ended.code == 2
    assert "nowhere does not exist" in ended.error
