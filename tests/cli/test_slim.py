"""``sparing slim``: what it refuses, and why, before it reads data; what it plans and prints."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertTokenizerFast,
)

from tests.cli.conftest import WORDS

SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 24,
}
KINDS = {
    "classifier": (BertForSequenceClassification, {}),
    "three": (BertForSequenceClassification, {"num_labels": 3}),
    "token": (BertForTokenClassification, {"num_labels": 3}),
    "several": (BertForSequenceClassification, {"problem_type": "multi_label_classification"}),
    "number": (BertForSequenceClassification, {"num_labels": 1}),
    "sentences": (BertModel, {}),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of small models of each kind, their tokenizers beside them, and texts."""
    root = tmp_path_factory.mktemp("kinds")
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)})
    torch.manual_seed(0)
    for name, (kind, more) in KINDS.items():
        kind(BertConfig(**SIZES, **more)).save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    (root / "sentences" / "modules.json").write_text("[]")
    for name, length in (("short", 5), ("long", 40)):
        lines = [
            f"{' '.join(['good', 'bad'][n % 2] for _ in range(length))},{n % 2}" for n in range(80)
        ]
        (root / f"{name}.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    return root


def test_an_embedding_model_without_its_parts_is_refused(command, models, tmp_path):
    given = (models / "sentences", "--task", models / "short.csv", "--output-dir", tmp_path / "o")
    ended = command("slim", *given)
    assert ended.code == 2
    assert "an encoder and its pooling are needed" in ended.error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("model", ["token", "several", "number"])
def test_a_model_of_another_answer_than_the_tasks_is_named(command, models, tmp_path, model):
    given = (models / model, "--task", models / "short.csv")
    ended = command("slim", *given, "--output-dir", tmp_path / "o")
    assert ended.code == 2
    assert "is not fine-tuned for task short: train it first with sparing train" in ended.error
    for verb, rest in (("evaluate", ()), ("prune", ("--heads", "0.5"))):
        rest += ("--output-dir", tmp_path / "o") if verb == "prune" else ()
        ended = command(verb, *given, *rest)
        assert ended.code == 2
        assert "but task short needs one class" in ended.error or "classes, but" in ended.error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("verb", ["slim", "compare", "train", "evaluate", "prune"])
def test_how_many_tokens_a_model_reads_is_said_before_it_begins(command, models, tmp_path, verb):
    model, task, output_dir = models / "classifier", models / "long.csv", tmp_path / "o"
    given = {
        "slim": (model, "--task", task, "--output-dir", output_dir),
        "compare": (task, "--model", model, "--output-dir", output_dir),
        "train": (task, "--model", model, "--output-dir", output_dir),
        "evaluate": (model, "--task", task),
        "prune": (model, "--task", task, "--heads", "0.5", "--output-dir", output_dir),
    }
    ended = command(verb, *given[verb])
    assert ended.code == 2
    assert "reads at most 24 tokens, but task long has up to 42" in ended.error
    assert not output_dir.exists()


def test_roberta_has_two_positions_that_no_token_takes(command, models, tmp_path):
    from transformers import RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(**{**SIZES, "max_position_embeddings": 42}, pad_token_id=0)
    RobertaForSequenceClassification(config).save_pretrained(tmp_path / "model")
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)})
    tokenizer.save_pretrained(tmp_path / "model")
    for verb in (
        ("slim", tmp_path / "model", "--task", models / "long.csv"),
        ("compare", models / "long.csv", "--model", tmp_path / "model"),
    ):
        ended = command(*verb, "--output-dir", tmp_path / "o")
        assert "reads at most 41 tokens, but task long has up to 42" in ended.error


def test_without_a_task_it_asks_for_one(command, models, trained, tmp_path):
    ended = command("slim", models / "classifier", "--quick")
    assert ended.code == 2
    assert "does not say what it was trained for: give --task" in ended.error
    ended = command("slim", models / "token")
    assert "gives a label for each token: give --texts FILE" in ended.error
    assert ended.error.endswith("or a --task")
    ended = command("slim", trained, "--output-dir", tmp_path / "o")  # trained on digits here
    assert "carries a swap" in ended.error
    ended = command("slim", "bert")
    assert "give --task" in ended.error


@pytest.mark.parametrize("verb", ["slim", "compare"])
def test_a_model_of_texts_and_a_task_of_images(command, models, tmp_path, verb):
    model = models / "classifier"
    given = (model, "--task", "digits") if verb == "slim" else ("digits", "--model", model)
    ended = command(verb, *given, "--output-dir", tmp_path / "o")
    assert "reads texts, but task digits gives images" in ended.error


def test_its_plan_names_the_steps_and_a_new_head(command, models, tmp_path):
    given = (
        "slim",
        models / "three",
        "--task",
        models / "short.csv",
        "--output-dir",
        tmp_path / "o",
    )
    ended = command(*given, "--plan")
    assert ended.code == 0, ended.err
    for words in (
        "distil (1)",
        "minutes left",
        "three has 3 classes and the task 2: a new head is",
    ):
        assert words in ended.out
    planned = command(*given, "--plan", "--json").json
    assert {cell["key"] for cell in planned["cells"]} >= {"dense", "distil", "verify/batch-1"}
    assert not any(cell["done"] for cell in planned["cells"])
    assert planned["minutes_left"] > 0
    assert not (tmp_path / "o").exists()


def test_a_task_and_texts_exclude_each_other(command, models, tmp_path):
    given = ("slim", models / "classifier", "--task", models / "short.csv")
    ended = command(*given, "--texts", models / "short.csv", "--output-dir", tmp_path / "o")
    assert ended.code == 2
    assert "give --task or --texts, not both" in ended.error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["agree", "texts", "hold_out", "speed"])
def test_a_setting_that_has_its_option_is_refused(command, models, name):
    ended = command("slim", models / "classifier", "--texts", "x.txt", "--set", f"{name}=0.97")
    assert ended.code == 2
    assert f"--set {name}: give --" in ended.error


def test_too_few_texts_for_the_promise_are_refused_with_the_number(command, models, tmp_path):
    ended = command(
        "slim",
        models / "classifier",
        "--texts",
        models / "short.csv",
        "--output-dir",
        tmp_path / "o",
    )
    assert ended.code != 0
    assert "needs at least 400" in ended.error
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("processes", "world", "words"),
    [
        (0, "", "--processes must be at least 1; got 0"),
        (2, "2", "leave torchrun or accelerate out"),
    ],
)
def test_processes_that_cannot_be_started(command, models, monkeypatch, processes, world, words):
    monkeypatch.setenv("WORLD_SIZE", world or "1")
    given = (models / "classifier", "--texts", models / "short.csv", "--processes", processes)
    ended = command("slim", *given)
    assert ended.code == 2
    assert words in ended.error


@pytest.mark.slow
def test_a_command_of_two_processes_says_once_what_is_wrong(command, models, tmp_path):
    """Too few texts: both find that, and one line says so."""
    folder = tmp_path / "run"
    given = (models / "classifier", "--texts", models / "short.csv", "--output-dir", folder)
    ended = command("slim", *given, "--processes", 2)
    assert ended.code == 1
    assert "needs at least 400" in ended.error
    assert not folder.exists()
