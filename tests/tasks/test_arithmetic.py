"""Arithmetic: the published sets to the letter, exact values, draws, and what errors come to."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.tasks import load_task
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.calculation_scores import (
    bounded_score,
    by_operands,
    legacy_score,
    value_scores,
)
from sparing.tasks.shared.expressions import Expression, draw, draw_many, evaluate, parse
from sparing.tasks.shared.published import DIGESTS, corrected, digest, published


def test_the_published_sets_are_drawn_to_the_letter():
    sets = published()
    sizes = {"train": 1907, "validation": 636, "in": 1457, "out": 2048, "long": 700}
    assert {name: len(rows) for name, rows in sets.items()} == sizes
    assert {name: digest(rows) for name, rows in sets.items()} == DIGESTS


def test_what_is_known_of_the_published_sets_holds():
    sets = published()
    inside = {example.text for name in ("train", "validation", "in") for example in sets[name]}
    assert len(inside) == 4000
    assert sum(sum(map(abs, example.operands)) == 22 for example in sets["out"]) == 192
    share = sum(-5 in example.operands for example in sets["out"]) / 2048
    assert share == pytest.approx(0.33, abs=0.005)
    assert [len(example.operands) for example in sets["long"][200:300]] == [4] * 100


def test_the_corrected_sets_share_nothing():
    sets = corrected()
    texts = {name: {example.text for example in examples} for name, examples in sets.items()}
    for one, other in itertools.combinations(texts, 2):
        assert not texts[one] & texts[other], (one, other)
    assert all(len(texts[name]) == len(examples) for name, examples in sets.items())
    trained = {operand for example in sets["train"] for operand in example.operands}
    for name in ("out", "out+long"):
        assert not trained & {operand for example in sets[name] for operand in example.operands}
    assert {len(example.operands) for example in sets["long"]} == {4, 5, 6, 7, 8}
    assert len(sets["out"]) == 9**3 * 4


def test_predicting_zero_gives_the_known_errors():
    sets = published()
    mean = {
        name: value_scores(examples, [0.0] * len(examples)).mean for name, examples in sets.items()
    }
    assert mean["in"] == pytest.approx(4.02, abs=0.005)
    assert mean["out"] == pytest.approx(9.75, abs=0.005)
    assert mean["long"] == pytest.approx(5.76, abs=0.005)


def test_two_shared_weights_solve_every_published_set():
    sets = published()

    def parts(examples):
        rows = [
            (
                sum(example.operands),
                sum(
                    (operator == "+") * operand
                    for operator, operand in zip(
                        ("+", *example.operators), example.operands, strict=True
                    )
                ),
            )
            for example in examples
        ]
        return torch.tensor(rows, dtype=torch.float64)

    values = torch.tensor([[example.value] for example in sets["train"]], dtype=torch.float64)
    weights = torch.linalg.lstsq(parts(sets["train"]), values).solution
    assert weights.flatten().tolist() == pytest.approx([-1, 2])
    for examples in sets.values():
        assert value_scores(examples, (parts(examples) @ weights).flatten().tolist()).exact == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 - -2 + 0", 5),
        ("3--2", 5),
        ("-7", -7),
        ("2 * (3 - -4) - 5", 9),
        ("2 + 3 * 4", 14),
        ("1 - 2 - 3", -4),
        ("(1 - (2 - 3))", 2),
        ("(" * 3000 + "1" + ")" * 3000, 1),
    ],
)
def test_values_are_exact(text, value):
    assert evaluate(text) == value


def test_values_are_pythons_own():
    chance = random.Random(0)
    for _ in range(300):
        one = draw(chance, chance.randint(1, 9), 5, "+-*")
        assert evaluate(one.text) == eval(one.text)
        assert parse(one.text) == one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a number is missing at the end"),
        ("1 +", "a number is missing at the end"),
        ("1 2", "two numbers without an operator"),
        ("1 / 0", "division is not known"),
        ("1 ^ 2", "is no number, operator or bracket: character 3"),
        ("1 + x", "'x' is no number, operator or bracket: character 5"),
        ("1 + \N{ARABIC-INDIC DIGIT THREE}", "is no number"),
        ("+3", r"'\+' does not belong there: character 1"),
        ("1 - - - 2", "does not belong there: character 7"),
        ("-(1)", "a sign before a bracket"),
        ("(1", "a bracket is not closed"),
        ("1)", "closed that was not opened"),
        ("()", "does not belong there"),
        ("9" * 5000, "a number of 5000 digits is too long"),
        ("1+" * 5000 + "a", r"character 10001 of '1\+1"),
    ],
)
def test_mistakes_are_named_with_their_place(text, message):
    with pytest.raises(UsageError, match=message) as error:
        evaluate(text)
    assert len(str(error.value)) < 160


def test_brackets_are_refused_where_a_sum_is_due():
    with pytest.raises(UsageError, match="brackets are not read here"):
        parse("(1 + 2)")
    with pytest.raises(UsageError, match="2 numbers have 1 operators"):
        Expression((1, 2), ())


def test_draws_differ_and_keep_out_of_what_is_excluded():
    first = draw_many(200, (2, 4), 3, seed=1)
    assert len({example.text for example in first}) == 200
    assert draw_many(200, (2, 4), 3, seed=1) == first
    other = draw_many(200, (2, 4), 3, seed=2, excluded={example.text for example in first})
    assert not {example.text for example in first} & {example.text for example in other}
    exact = draw_many(50, (3, 3), 4, seed=1, exact_digits=True)
    assert {len(str(abs(n))) for example in exact for n in example.operands} == {4}
    with pytest.raises(UsageError, match="there are too few different expressions for 900"):
        draw_many(900, (2, 2), 1, seed=0, operators="+", exact_digits=True)


def test_errors_by_hand():
    sums = [parse("1 + 1"), parse("2 - 5"), parse("4 - 4"), parse("1 + 2 + 3")]
    scores = value_scores(sums, [2.4, -4.0, None, math.inf])
    assert (scores.exact, scores.missing, scores.worst) == (0.25, 2, 1.0)
    assert scores.mean == pytest.approx(0.7)
    assert scores.relative == pytest.approx((0.2 + 1 / 3) / 2)
    assert value_scores(sums[2:3], [0.5]).exact == 0
    nothing = value_scores(sums, [None] * 4)
    assert (nothing.mean, nothing.exact, nothing.missing) == (None, 0, 4)
    split = by_operands(sums, [2.0, -3.0, 0.0, 5.0])
    assert {count: scores.exact for count, scores in split.items()} == {2: 1.0, 3: 0.0}
    with pytest.raises(UsageError, match="3 predictions for 4 expressions"):
        value_scores(sums, [1.0] * 3)


def test_the_bounded_score_is_fifty_at_the_baseline_and_a_hundred_at_the_truth():
    baseline = {"in": 0.2, "out": 2.0}
    assert bounded_score(baseline, baseline) == pytest.approx(50)
    assert bounded_score({"in": 0.0, "out": 0.0}, baseline) == pytest.approx(100)
    assert bounded_score({"in": 0.2, "out": 1e9}, baseline) < 1
    with pytest.raises(UsageError, match="no error on long"):
        bounded_score({"long": 1.0}, baseline)


def test_the_published_score_is_one_at_the_baseline_and_infinite_at_the_truth():
    sets = published()
    wrong = {name: [example.value + 0.5 for example in examples] for name, examples in sets.items()}
    relative = value_scores(sets["out"], wrong["out"]).relative
    baseline = {"in": 0.5, "out": 0.5, "long": 0.5, "relative": relative}
    assert legacy_score(sets, wrong, baseline) == pytest.approx(1)
    half = {name: [example.value + 0.25 for example in examples] for name, examples in sets.items()}
    assert legacy_score(sets, half, baseline) == pytest.approx(4)
    truth = {
        name: [float(example.value) for example in examples] for name, examples in sets.items()
    }
    assert legacy_score(sets, truth, baseline) == math.inf
    with pytest.raises(UsageError, match="predictions of in are not all finite"):
        legacy_score(sets, {**truth, "in": [math.nan] * len(truth["in"])}, baseline)


def test_the_faulty_published_long_error_calls_the_truth_wrong():
    """What the published code first computed: answers in range taken for those of long sums."""
    sets = published()
    inside = [example.value for example in sets["in"]]
    long = [example.value for example in sets["long"]]
    wrong_array = sum(abs(y) - p for y, p in zip(long, inside, strict=False)) / len(long)
    wrong_size = sum(abs(y) - y for y in long) / len(long)
    assert wrong_size == pytest.approx(5.64, abs=0.01)
    assert wrong_array > 5
    assert value_scores(sets["long"], [float(y) for y in long]).mean == 0


def test_the_published_input_is_values_codes_and_padding():
    rows = as_values([parse("3 - -2 + 0"), parse("1 + 1")])
    assert rows.shape == (2, 15)
    assert rows[0].tolist() == [3, 0, -2, 1, 0, *[0.5] * 10]
    assert as_values(published()["long"]).shape == (700, 15)
    with pytest.raises(UsageError, match="has 17 parts, not 15"):
        as_values([parse("1" + " + 1" * 8)])
    with pytest.raises(UsageError, match="no code for"):
        as_values([parse("2 * 2")])


def test_it_is_a_task_of_characters_with_further_tests():
    task = load_task("arithmetic")
    assert [len(split) for split in task.splits.values()] == [1907, 636, 1457, 2048, 700]
    assert (task.answer, task.metric, task.kind) == ("number", "exact", "tokens")
    first = published()["train"][0]
    signs = "0123456789+-*() "
    assert "".join(signs[i - 2] for i in task.train[0]["input_ids"][1:].tolist()) == first.text
    assert task.train.labels[0] == first.value
    assert task.chance == pytest.approx(113 / 1457)
    drawn = load_task("arithmetic", sets="drawn", operands=4, digits=3, examples=50)
    assert len(drawn.train) == 50
    assert set(load_task("arithmetic", sets="corrected").splits) >= {"out", "long", "out+long"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": "publishd"}, "did you mean 'published'"),
        ({"sets": "drawn", "operators": "+/"}, r"some of \+ - \*; got '\+/'"),
        ({"sets": "drawn", "operands": 1}, "operands must be at least 2"),
        ({"sets": "drawn", "digits": 9}, "not exact in float32"),
        ({"sets": "drawn", "digits": 400, "operators": "*"}, "not exact in float32"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(UsageError, match=message):
        load_task("arithmetic", **options)


def test_a_stray_bracket_is_called_one():
    with pytest.raises(UsageError, match="brackets are not read here"):
        parse("1)+2")
