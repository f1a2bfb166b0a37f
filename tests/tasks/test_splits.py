from __future__ import annotations

from collections import Counter

import pytest

from sparing.core.errors import UsageError
from sparing.tasks._splits import (
    hashed_order,
    kept_together,
    pooled_when_rare,
    stratified,
)

LABELS = ["a"] * 70 + ["b"] * 20 + ["c"] * 10
KEYS = [str(index) for index in range(100)]


def test_the_order_is_a_function_of_keys_and_seed():
    assert hashed_order(["a", "b", "c", "d", "e"], 0) == [4, 2, 1, 0, 3]
    assert hashed_order(KEYS, 0) != hashed_order(KEYS, 1)
    assert sorted(hashed_order(KEYS, 0)) == list(range(100))


def test_parts_are_disjoint_and_in_proportion():
    parts = stratified(LABELS, KEYS, (30, 20, 50), 0)
    assert sorted(index for part in parts for index in part) == list(range(100))
    for part in parts:
        counts = Counter(LABELS[index] for index in part)
        for label, share in (("a", 0.7), ("b", 0.2), ("c", 0.1)):
            assert abs(counts[label] - share * len(part)) <= 1


def test_parts_do_not_depend_on_the_order_of_the_rows():
    keys, labels = KEYS[::-1], LABELS[::-1]
    first = stratified(LABELS, KEYS, (30,), 0)[0]
    second = stratified(labels, keys, (30,), 0)[0]
    assert [KEYS[index] for index in first] == [keys[index] for index in second]


def test_classes_are_mixed_within_a_part():
    part = stratified(LABELS, KEYS, (50,), 0)[0]
    assert {LABELS[index] for index in part[:25]} == {"a", "b", "c"}


def test_more_than_there_is_is_refused():
    with pytest.raises(UsageError, match="120 examples requested, but there are 100"):
        stratified(LABELS, KEYS, (60, 60), 0)


def test_rare_classes_are_in_the_first_part_as_often_as_elsewhere():
    labels = ["many"] * 300 + [f"rare {index // 2}" for index in range(300)]
    keys = [str(index) for index in range(600)]
    shares = []
    for seed in range(5):
        test, _ = stratified(labels, keys, (120, 480), seed)
        shares.append(sum(labels[index] != "many" for index in test) / len(test))
    assert 0.45 < sum(shares) / len(shares) < 0.55


def test_rare_numbers_are_one_stratum_and_their_copies_stay_together():
    values = [0.0] * 500 + [float(index // 2) for index in range(1000, 1500)]
    strata = pooled_when_rare(values, (200, 800))
    assert strata == [0] * 500 + [None] * 500
    keys = [str(value) for value in values]
    test, train = stratified(strata, keys, (200, 800), 0)
    shared = {keys[index] for index in test} & {keys[index] for index in train} - {"0.0"}
    assert len(shared) <= 1
    assert sum(values[index] > 0 for index in test) == 100


def test_what_shares_a_text_stays_together():
    texts = [(f"question {index // 2}", f"sentence {index}") for index in range(100)]
    texts += [("question 3", "sentence 40"), ("alone", "alone")]
    parts = kept_together(texts, (40, 10), 0)
    assert sorted(index for part in parts for index in part) == list(range(102))
    assert len(parts[0]) <= 40
    assert len(parts[1]) <= 10
    assert len(parts[0]) >= 38
    texts_of_part = [{text for index in part for text in texts[index]} for part in parts]
    assert (
        not texts_of_part[0] & texts_of_part[1]
        | texts_of_part[0] & texts_of_part[2]
        | texts_of_part[1] & texts_of_part[2]
    )
    assert parts == kept_together(texts, (40, 10), 0)
