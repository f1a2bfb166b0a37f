"""The runner of slim over tasks, seeds and texts without labels."""

from __future__ import annotations

import argparse
import importlib
import json
from dataclasses import replace

import pytest
import torch
from transformers import BertTokenizerFast

from sparing.tasks import Examples, load_task
from tests.tasks.tokenizers import save_bert

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(60))]


@pytest.fixture
def slim_tasks():
    return importlib.import_module("slim_tasks")


@pytest.fixture
def texts(tmp_path):
    """500 texts with a label each, one of them twice."""
    rows = [{"text": f"w{n % 60} w{n // 60} w{n % 7}", "label": n % 2} for n in range(500)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]))
    return path


@pytest.fixture
def given(slim_tasks, monkeypatch, tmp_path):
    """The arguments of a command line, as ``main`` reads them."""

    def read(*words):
        monkeypatch.setattr("sys.argv", ["slim_tasks.py", *map(str, words)])
        return slim_tasks.arguments()

    return read


def test_samples_have_no_labels_and_smaller_ones_are_in_larger_ones(slim_tasks, texts, tmp_path):
    large, small = (slim_tasks.sample_texts(texts, n, tmp_path / "out") for n in (450, 400))
    rows, part = (path.read_text().splitlines() for path in (large, small))
    assert (len(set(rows)), rows[:400]) == (450, part)
    assert {name for row in rows for name in json.loads(row)} == {"text"}
    with pytest.raises(SystemExit, match="500 distinct texts, fewer than 501"):
        slim_tasks.sample_texts(texts, 501, tmp_path / "out")


def test_a_task_gives_the_training_texts_that_its_runs_leave_out(
    slim_tasks, given, tmp_path, monkeypatch
):
    rows = [[n, n + 1] for n in range(5, 45)]

    def load_for(name, options, model, data):
        count = options["examples"] or len(rows) - 8
        parts = {"train": rows[8 : 8 + count], "validation": rows[:4], "test": rows[4:8]}
        splits = {
            name: Examples(
                "input_ids", list(map(torch.tensor, part)), torch.zeros(len(part)).long()
            )
            for name, part in parts.items()
        }
        return replace(load_task("listops", examples=20), **splits, tokenizer=Words()), options

    class Words:
        def decode(self, ids, **_):
            return " ".join(f"w{n}" for n in ids)

    monkeypatch.setattr(slim_tasks, "load_for", load_for)
    monkeypatch.setitem(slim_tasks.TASKS, "sst2", {"task_options": {"examples": 20}})
    path = slim_tasks.unseen_texts("sst2", argparse.Namespace(model="m", output_dir=tmp_path))
    texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert texts == [f"w{a} w{b}" for a, b in rows[28:]]
    words = given("--model", "m", "--texts", "sst2", "--sizes", 12, "--output-dir", tmp_path)
    options = slim_tasks.options_of("texts-12", 0, words)
    assert len((tmp_path / "texts" / "12.jsonl").read_text().splitlines()) == 12
    assert options.texts.endswith("12.jsonl")


def test_every_task_has_settings_of_todays_options(slim_tasks, given, monkeypatch):
    monkeypatch.setattr(slim_tasks, "split_sentences", lambda task, folder: None)
    words = given("--model", "m", "--set", "rounds=2", "--speed", "1.5")
    for name in slim_tasks.TASKS:
        options = slim_tasks.options_of(name, 3, words)
        assert (options.seed, options.rounds, options.speed) == (3, 2, 1.5)
        assert options.task == ("text" if name in slim_tasks.SENTENCES else name)
        assert not options.texts


def test_runs_are_named_by_task_or_by_the_number_of_texts(slim_tasks, given, texts):
    assert slim_tasks.names_of(given("--model", "m", "--tasks", "sst2,mrpc")) == ["sst2", "mrpc"]
    sizes = given("--model", "m", "--texts", texts, "--sizes", "500,2000")
    assert slim_tasks.names_of(sizes) == ["texts-500", "texts-2000"]
    with pytest.raises(SystemExit, match="no task is called 'sst'"):
        slim_tasks.names_of(given("--model", "m", "--tasks", "sst"))


def test_trainings_alone_are_not_pooled(slim_tasks, given, texts, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(slim_tasks, "run_one", lambda name, seed, *_: done.append((name, seed)))
    words = ("--model", "m", "--texts", texts, "--sizes", 450, "--output-dir", tmp_path)
    given(*words, "--until", "fixed-width")
    slim_tasks.main()
    assert done == [("texts-450", 0), ("texts-450", 1), ("texts-450", 2)]
    given(*words)
    with pytest.raises(SystemExit, match="no finished run"):
        slim_tasks.main()


@pytest.mark.slow
def test_a_run_without_labels_is_made_pooled_and_timed(
    slim_tasks, given, texts, tmp_path, capsys, monkeypatch
):
    model = tmp_path / "model"
    save_bert(model, len(WORDS))
    BertTokenizerFast(vocab={word: n for n, word in enumerate(WORDS)}).save_pretrained(model)
    settings = ("epochs=1", "fixed_width_epochs=1", "rounds=1", "timed_examples=20")
    words = [word for setting in (*settings, "memory=false") for word in ("--set", setting)]
    given(
        *("--model", model, "--texts", texts, "--sizes", 450, "--seeds", 0, "--speed", 1.05),
        *("--output-dir", tmp_path / "runs", *words),
    )
    slim_tasks.main()
    assert "| texts-450 | 0 | " in capsys.readouterr().out
    summary = json.loads((tmp_path / "runs" / "summary.json").read_text())
    assert summary["no labels"]["runs"][0]["task"] == "texts-450"
    run = tmp_path / "runs" / "texts-450-0"
    assert (run / "model" / "serve").is_dir()
    for script, words in (
        ("slim_from_bert", (run, "--texts", 4, "--rounds", 1)),
        ("slim_labels", (run.parent, "--task", "sst2")),
    ):
        module = importlib.import_module(script)
        written = tmp_path / f"{script}.json"
        monkeypatch.setattr("sys.argv", [script, *map(str, words), "--output", str(written)])
        if script == "slim_labels":  # the answers to its own texts are the labels
            steps = module.steps_in(run)
            monkeypatch.setattr(module, "load_for", lambda *_, steps=steps: (steps.task, {}))
        module.main()
        lines = json.loads(written.read_text())["rows"]
        assert lines
    (line,) = lines
    assert line["dense_accuracy"] == 1
    assert line["equal"] == line["served_accuracy"]
