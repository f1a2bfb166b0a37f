from __future__ import annotations

from collections import Counter

import pytest

from sparing.core.errors import UsageError
from sparing.tasks._splits import hashed_order, stratified

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
    with pytest.raises(UsageError, match="120 examples asked for, but there are 100"):
        stratified(LABELS, KEYS, (60, 60), 0)
