from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.tasks import listops, load_task
from sparing.tasks.listops import NUMBERS, evaluate

TOKENS = {number: token for token, number in NUMBERS.items()}
SMALL = {"examples": 300, "validation_examples": 40, "test_examples": 60}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MAX 2 9 4 ]", 9),
        ("[MIN 2 9 4 ]", 2),
        ("[MED 9 1 5 ]", 5),
        ("[MED 1 8 2 9 ]", 5),
        ("[MED 1 2 ]", 1),
        ("[SM 7 8 9 ]", 4),
        ("[FIRST 3 1 2 ]", 3),
        ("[LAST 3 1 2 ]", 2),
        ("[MAX 2 [MIN 4 [SM 9 9 ] ] 3 ]", 4),
        ("( ( ( [SM 6 ) 5 ) ] )", 1),
    ],
)
def test_values(expression, value):
    assert evaluate(expression) == value


@pytest.mark.parametrize("expression", ["", "[MAX 1 2", "1 2", "[MAX ]", "]", "[MEAN 1 2 ]", "12"])
def test_what_is_not_an_expression_is_refused(expression):
    with pytest.raises(UsageError, match="listops"):
        evaluate(expression)


@pytest.fixture(scope="module")
def task():
    return load_task("listops", min_tokens=10, max_tokens=40, max_depth=4, max_arguments=5, **SMALL)


def _text(ids):
    return [TOKENS[int(number)] for number in ids[1:]]


def test_expressions_keep_the_grammar(task):
    lengths, depths, arguments = [], [], []
    for split in (task.train, task.validation, task.test):
        for ids, label in zip(split.inputs, split.labels.tolist(), strict=True):
            tokens = _text(ids)
            assert evaluate(" ".join(tokens)) == label
            assert ids[0] == listops.CLASS
            lengths.append(len(tokens))
            depth, counts = 1, [0]
            for token in tokens:
                if token == "]":
                    arguments.append(counts.pop())
                    continue
                counts[-1] += 1
                if token.startswith("["):
                    counts.append(0)
                depth = max(depth, len(counts))
            depths.append(depth)
    assert (min(lengths), max(lengths)) == (10, 40)
    assert max(depths) == 4
    assert (min(arguments), max(arguments)) == (2, 5)
    assert task.tokens == 41
    assert max(int(ids.max()) for ids in task.train.inputs) < task.vocabulary


def test_no_expression_occurs_twice(task):
    rows = [
        tuple(ids.tolist())
        for split in (task.train, task.validation, task.test)
        for ids in split.inputs
    ]
    assert len(set(rows)) == len(rows) == 400


def test_test_and_validation_do_not_depend_on_the_training_size(task):
    options = {"min_tokens": 10, "max_tokens": 40, "max_depth": 4, "max_arguments": 5}
    other = load_task("listops", **options, **SMALL | {"examples": 5})
    assert all(map(torch.equal, task.test.inputs, other.test.inputs))
    assert all(map(torch.equal, task.validation.inputs, other.validation.inputs))


def test_labels_are_as_balanced_as_the_grammar_makes_them():
    task = load_task(
        "listops",
        min_tokens=8,
        max_tokens=60,
        examples=1000,
        validation_examples=1,
        test_examples=200,
    )
    shares = torch.bincount(task.train.labels) / 1000
    assert len(shares) == 10
    assert 0.05 < shares.min() < shares.max() < 0.2
    assert task.chance == float(torch.bincount(task.test.labels).max()) / 200


def test_seeds_draw_other_expressions(task):
    options = {"min_tokens": 10, "max_tokens": 40, "max_depth": 4, "max_arguments": 5}
    other = load_task("listops", **options, **SMALL, seed=1)
    assert not all(map(torch.equal, task.test.inputs, other.test.inputs))


def test_impossible_sizes_are_refused():
    with pytest.raises(UsageError, match="4 <= min_tokens <= max_tokens"):
        load_task("listops", min_tokens=50, max_tokens=40)
    with pytest.raises(UsageError, match=r"found 0 new expressions of 300 to 310 .*max_depth"):
        load_task("listops", min_tokens=300, max_tokens=310, max_depth=2)
    with pytest.raises(UsageError, match="at least 2"):
        load_task("listops", max_depth=1)


def test_more_than_there_are_is_refused_with_how_many_there_are():
    # 4 operators of two digits
    message = (
        r"found 400 new .* of 4 to 4 tokens, after \d+ tries each, and no more in 50,000 tries"
    )
    with pytest.raises(UsageError, match=message):
        load_task("listops", min_tokens=4, max_tokens=4, **SMALL | {"test_examples": 401})


@pytest.mark.parametrize("accepted", [[9_000, 40_000], [40_000, 80_000, 300_000]])
def test_lengths_that_are_rare_are_waited_for(monkeypatch, accepted):
    # a substitute for the grammar, which gives one that fits at these tries only
    tries = iter(range(1, 400_000))
    monkeypatch.setattr(
        listops,
        "_expression",
        lambda *_: [str(number)] * 5 if (number := next(tries)) in accepted else None,
    )
    stream = listops._fitting(random.Random(0), (5, 5, 3, 3), set())
    assert [int(next(stream)[0]) for _ in accepted] == accepted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_d20s", "test_d14"])
def test_the_evaluator_agrees_with_the_published_expressions(name):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with listops/*.tsv.gz")
    path = Path(os.environ["SPARING_DATA"]) / "listops" / f"{name}.tsv.gz"
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    assert len(rows) == 10_000
    assert all(evaluate(expression) == int(value) for value, expression in rows)


@pytest.mark.parametrize("given", [{"examples": -3}, {"test_examples": 0}])
def test_splits_have_an_expression_at_least(given):
    with pytest.raises(UsageError, match="at least one expression"):
        load_task("listops", **{**SMALL, **given})
