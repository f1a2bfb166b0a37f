"""More texts without labels: ours is distilled on them, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformers import BertTokenizer

from sparing.core.errors import UsageError
from sparing.experiment.registry import find_study
from sparing.slim import models as slim_models
from sparing.slim import study as slim
from sparing.slim.search import fixed_width
from sparing.tasks.shared.unlabelled import UNLABELLED
from tests.tasks.tokenizers import save_bert, save_tokenizer


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A fine-tuned BERT of a few characters, its task, and a file of more texts."""
    root = tmp_path_factory.mktemp("texts")
    tokenizer = BertTokenizer.from_pretrained(save_tokenizer(root / "model"))
    save_bert(root / "model", len(tokenizer))
    rows = [f"{'good' if n % 2 else 'bad'} film {n}\t{n % 2}" for n in range(60)]
    (root / "task").mkdir()
    (root / "task" / "train.tsv").write_text("\n".join(["text\tlabel", *rows[:50]]) + "\n")
    (root / "task" / "test.tsv").write_text("\n".join(["text\tlabel", *rows[50:]]) + "\n")
    more = [f"another text {n}" for n in range(9)]
    (root / "more.txt").write_text("\n".join([*more, "bad film 50"]) + "\n")
    return root


def options(workspace, **more):
    given = {
        "model": str(workspace / "model"),
        "task": str(workspace / "task"),
        "fixed_width_epochs": 1,
    }
    return slim.Options(**given, unlabelled=(str(workspace / "more.txt"),), **more)


def steps(workspace, **more):
    slim_options = options(workspace, **more)
    task, _ = slim.load_for(slim_options.task, slim_options.task_options, slim_options.model, None)
    return task, slim.steps_of(slim_options, task, workspace / "run")


def test_they_are_sampled_and_held_out_texts_are_not_among_them(workspace):
    task, run_steps = steps(workspace)
    taught = run_steps.models.taught
    assert len(taught.train) == len(task.train) + 9
    assert "1 that share" in taught.notes[-1]
    few = steps(workspace, unlabelled_examples=4)[1].models.taught
    assert len(task.train) + 3 <= len(few.train) <= len(task.train) + 4


class Seen(Exception):
    """Training would begin on this task."""


def look(_model, task, *_args, **_options):
    raise Seen(task)


@pytest.mark.parametrize(
    ("name", "extra"),
    [("train_adaptive", 9), ("train_static", 9), ("train_at_width", 9), ("train_dense", 0)],
)
def test_ours_is_distilled_on_them_and_the_dense_model_is_not(workspace, monkeypatch, name, extra):
    task, run_steps = steps(workspace)
    models = run_steps.models
    monkeypatch.setattr(slim_models, "train", look)
    monkeypatch.setattr(fixed_width, "train", look)
    model = models.ordered()
    models.__dict__["fine_tuned"] = name != "train_dense"

    calls = {
        "train_adaptive": lambda: models.train_adaptive(),
        "train_static": lambda: models.train_static(model.plan, "static"),
        "train_at_width": lambda: fixed_width.train_at_width(
            models, model, model.plan, workspace / "fixed-width", 1
        ),
        "train_dense": lambda: models.train_dense(),
    }
    with pytest.raises(Seen) as seen:
        calls[name]()
    labels = seen.value.args[0].train.labels
    assert len(labels) == len(task.train) + extra
    assert int((labels == UNLABELLED).sum()) == extra


def test_what_names_no_texts_ends_the_run_before_it_begins(workspace, tmp_path):
    slim_options = replace(options(workspace), unlabelled=("sst3",))
    with pytest.raises(UsageError, match="unknown task 'sst3'"):
        find_study("slim").run(slim_options, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="unlabelled_examples"):
        options(workspace, unlabelled_examples=-1)
