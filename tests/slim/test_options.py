"""The options of ``sparing slim``: what they refuse, and how much of a task is trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.measure.calibration import examples_needed
from sparing.slim.models import recipes
from sparing.slim.options import LONG_SHARES, with_fewer
from sparing.slim.study import BUDGETS, Options, prepare, task_of
from sparing.tasks import load_task
from sparing.tasks.shared.compared import Compared


@pytest.fixture(scope="module")
def expressions():
    return load_task("listops", min_tokens=8, max_tokens=32, examples=60)


@pytest.mark.parametrize("most", [1, 100, 500])
def test_training_inputs_have_so_many_tokens_at_most(expressions, most):
    fewer = with_fewer(expressions, Options(train_tokens=most))
    tokens = sum(fewer.train.lengths)
    assert len(fewer.train) == 1 or tokens <= most
    assert most == 1 or tokens > most - max(expressions.train.lengths)
    used = f"{len(fewer.train)} of 60 examples"
    assert f"train: {used}, sampled, {most} tokens at most" in fewer.notes


def test_other_splits_stay_as_they_are(expressions):
    fewer = with_fewer(expressions, Options(train_tokens=100))
    assert fewer.validation is expressions.validation
    assert fewer.test is expressions.test


def test_a_draw_is_the_same_twice_and_is_not_the_first_rows(expressions):
    once, again = (
        with_fewer(expressions, Options(train_tokens=100)),
        with_fewer(expressions, Options(train_tokens=100)),
    )
    assert once.train.digest == again.train.digest
    first = expressions.train.subset(range(len(once.train)))
    assert once.train.digest != first.digest


@pytest.mark.parametrize("most", [0, 10**9])
def test_without_a_limit_or_below_it_nothing_is_drawn(expressions, most):
    assert with_fewer(expressions, Options(train_tokens=most)).train is expressions.train


def test_a_picture_counts_all_its_tokens():
    digits = load_task("digits", patch_size=4)
    fewer = with_fewer(digits, Options(train_tokens=10 * digits.tokens))
    assert len(fewer.train) == 10
    assert torch.is_tensor(fewer.train.inputs)


def test_a_split_to_choose_and_calibrate_on_has_twice_the_inputs_of_a_test(expressions):
    fewer = with_fewer(expressions, Options(held_out_examples=60, agree=0.9))
    assert (len(fewer.validation), len(fewer.test)) == (120, 60)
    assert fewer.train is expressions.train
    assert fewer.notes[-1].startswith("test: 60 of ")


def test_each_part_of_texts_is_limited_alone(toy, texts_file):
    task, _ = task_of(Options(model=str(toy), task="", texts=str(texts_file)))
    fewer = with_fewer(task, Options(held_out_examples=90))
    sizes = {name: len(split) for name, split in fewer.splits.items() if name != "train"}
    assert sizes == {"validation": 90, "test": 90, "calibrate": 90}
    some, all_of_them = (rows_of(one.more_tests["calibrate"]) for one in (fewer, task))
    assert len(some) == 90
    assert some < all_of_them


def rows_of(examples):
    """The inputs of a split."""
    return {tuple(row.tolist()) for row in examples.inputs}


def test_a_certificate_keeps_the_inputs_that_it_needs(toy, texts_file):
    task, _ = task_of(Options(model=str(toy), task="", texts=str(texts_file)))
    fewer = with_fewer(task, Options(held_out_examples=5, agree=0.97))
    assert len(fewer.more_tests["calibrate"]) == examples_needed(0.03) > 5


@pytest.mark.parametrize(
    "kind",
    [
        {"compared": Compared(torch.tensor([[0, 1], [2, 3]]), torch.ones(2))},
        {"queries": torch.arange(60)},
    ],
    ids=["pairs", "rankings"],
)
def test_a_test_of_pairs_or_rankings_stays_whole(expressions, kind):
    whole = expressions.test.subset(range(60))
    task = replace(expressions, test=replace(whole, **kind))
    fewer = with_fewer(task, Options(held_out_examples=20, agree=0.8))
    assert fewer.test is task.test
    assert len(fewer.validation) == 40


def test_the_start_says_which_splits_are_not_taken_whole(toy, texts_file, tmp_path):
    options = Options(model=str(toy), task="", texts=str(texts_file), held_out_examples=90)
    cut = prepare(options, tmp_path / "run").notes
    assert [note.partition(":")[0] for note in cut] == ["validation", "calibrate", "test"]
    assert prepare(replace(options, held_out_examples=0), tmp_path / "run").notes == ()


def test_runs_from_before_a_limit_of_inputs_go_on(toy, texts_file, tmp_path):
    options = Options(model=str(toy), task="", texts=str(texts_file))
    assert "held_out_examples" not in prepare(options, tmp_path / "run").config["identity"]


def test_quick_limits_inputs_and_standard_does_not():
    quick, standard = BUDGETS["quick"], BUDGETS["standard"]
    assert quick.train_tokens
    assert quick.held_out_examples
    assert not standard.train_tokens
    assert not standard.held_out_examples
    with pytest.raises(UsageError, match="train_tokens must be at least 0"):
        replace(Options(), train_tokens=-1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"speed": 0.0}, "speed"),
        ({"floor": 1.5}, "floor"),
        ({"agree": 1.0}, "agree"),
        ({"agree": -0.1}, "agree"),
        ({"delta": 0.0}, "delta"),
        ({"epochs": -1}, "epochs"),
        ({"fixed_width_epochs": -1}, "fixed_width_epochs"),
        ({"rounds": 0}, "rounds"),
        ({"hold_out": "lasst"}, "did you mean 'last'"),
    ],
)
def test_impossible_options_are_named(change, words):
    with pytest.raises(UsageError, match=words):
        Options(**change)


@pytest.mark.parametrize(("agree", "changed"), [(0.0, 0.05), (0.97, 0.03), (0.9, 0.1)])
def test_the_changed_share_is_what_agreement_leaves(agree, changed):
    assert Options(agree=agree).changed == changed


def test_long_inputs_are_surveyed_with_fewer_tokens():
    task = load_task("digits", patch_size=4)
    assert Options().token_shares(task) == (1.0,)
    longer = replace(task, tokens=197)
    assert Options().token_shares(longer) == LONG_SHARES
    assert replace(Options(), tokens=(0.6,)).token_shares(longer) == (0.6,)
    assert len(Options().variants(longer)) == len(Options().widths) * len(LONG_SHARES)


@pytest.mark.parametrize(
    ("rows", "epochs", "fixed"),
    [(100, 60, 60), (350, 58, 60), (3_200, 7, 8), (8_000, 3, 3), (60_000, 2, 3)],
)
def test_pretrained_models_see_enough_inputs_however_few_texts_there_are(rows, epochs, fixed):
    digits = load_task("digits", patch_size=4)
    train = digits.train.subset([0] * rows)
    _, ours, at_width = recipes(Options(model="a folder"), replace(digits, train=train), "text")
    assert (ours.epochs, at_width) == (epochs, fixed)


def test_texts_without_labels_count_among_the_inputs_that_are_seen():
    digits = load_task("digits", patch_size=4)
    more = replace(digits, train=digits.train.subset([0] * 10_000))
    _, ours, at_width = recipes(Options(model="a folder"), digits, "text", more)
    assert (ours.epochs, at_width) == (2, 3)


def test_epochs_that_are_given_are_taken():
    digits = load_task("digits", patch_size=4)
    options = Options(epochs=4, dense_epochs=5, fixed_width_epochs=6)
    dense, ours, at_width = recipes(options, digits, "digits")
    assert (dense.epochs, ours.epochs, at_width) == (5, 4, 6)
    dense, ours, at_width = recipes(Options(), digits, "digits")
    assert (ours.epochs, at_width) == (2 * dense.epochs, 3)
