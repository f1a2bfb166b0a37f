"""Parts of texts: disjoint, no text on two sides, of the stated sizes, the same by seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparing.core.errors import DataError, UsageError
from sparing.tasks.texts import Parts, Sizes, parts_of, read_texts
from sparing.tasks.texts.distinct import groups_of, plain
from sparing.tasks.texts.parts import default_sizes, fewest_rows

WORDS = st.integers(0, 60).map(lambda n: f"text{' ' * (n % 3 + 1)}{n // 2}")
SINGLES = st.lists(st.tuples(WORDS), min_size=12, max_size=80)
PAIRS = st.lists(
    st.tuples(st.integers(0, 90).map("a {}".format), st.integers(0, 90).map("b {}".format)),
    min_size=20,
    max_size=60,
)


def sides(parts: Parts) -> dict[str, set[str]]:
    return {name: {plain(t) for row in part.rows for t in row} for name, part in parts}


@settings(max_examples=60, deadline=None)
@given(st.one_of(SINGLES, PAIRS), st.sampled_from(["random", "last"]), st.integers(0, 9))
def test_no_text_is_on_two_sides(rows, hold_out, seed):
    texts = read_texts([row if len(row) == 2 else row[0] for row in rows])
    groups = groups_of(texts.rows)
    free = [g for g in groups if len(g) <= 10] if texts.are_pairs else groups
    sizes = Sizes(2, 3, 1)
    if len(free) < 6 or len(groups) < 7:
        with pytest.raises(DataError):
            parts_of(texts, seed=seed, hold_out=hold_out, sizes=sizes, needed=1)
        return
    parts = parts_of(texts, seed=seed, hold_out=hold_out, sizes=sizes, needed=1)
    assert [len(parts.choose), len(parts.calibrate), len(parts.test)] == [2, 3, 1]
    texts_of = list(sides(parts).values())
    assert sum(map(len, texts_of)) == len(set().union(*texts_of))
    for name, part in parts:
        if name != "train":
            assert part.duplicates == 0
    allowed = Counter(texts.rows)
    taken = Counter(row for _, part in parts for row in part.rows)
    assert not taken - allowed
    again = parts_of(texts, seed=seed, hold_out=hold_out, sizes=sizes, needed=1)
    assert [p.rows for _, p in again] == [p.rows for _, p in parts]


def test_another_seed_gives_other_parts():
    texts = read_texts([f"text {n}" for n in range(500)])
    first, second = (parts_of(texts, seed=seed) for seed in (0, 1))
    assert first.test.rows != second.test.rows


def test_training_repeats_rows_as_the_file_does_and_others_do_not():
    rows = [f"text {n % 700}" for n in range(1400)]
    parts = parts_of(read_texts(rows), seed=0)
    assert parts.train.duplicates == len(parts.train) // 2
    assert parts.test.duplicates == parts.calibrate.duplicates == 0
    assert "are left out" in parts.notes[1]


def test_the_newest_rows_are_test_and_calibration():
    rows = [f"text {n}" for n in range(1000)]
    parts = parts_of(read_texts(rows), seed=3, hold_out="last")
    assert parts.test.rows == tuple((f"text {n}",) for n in range(800, 1000))
    assert parts.calibrate.rows == tuple((f"text {n}",) for n in range(600, 800))
    assert "the newest rows" in parts.notes[0]
    repeated = parts_of(read_texts([*rows, "text 5"]), seed=3, hold_out="last")
    assert repeated.test.rows[-1] == ("text 5",)
    assert ("text 5",) not in repeated.train.rows


@pytest.mark.parametrize(
    ("count", "needed", "sizes"),
    [
        (600, 99, (120, 120, 120)),
        (400, 99, (100, 100, 100)),
        (599, 299, (100, 299, 100)),
        (3_000, 299, (600, 600, 600)),
        (50_000, 100, (5_000, 5_000, 5_000)),
    ],
)
def test_sizes_follow_the_rule(count, needed, sizes):
    parts = parts_of(read_texts([str(n) for n in range(count)]), seed=0, needed=needed)
    assert (len(parts.choose), len(parts.calibrate), len(parts.test)) == sizes
    assert len(parts.train) == count - sum(sizes)
    assert f"train {count - sum(sizes):,}, choose {sizes[0]:,}" in parts.notes[0]


def test_millions_of_rows_have_parts_of_5000():
    assert default_sizes(5_000_000, 299) == Sizes(5_000, 5_000, 5_000)


@pytest.mark.parametrize("needed", [1, 100, 150, 299, 1_000])
def test_too_few_rows_are_refused_with_the_number(needed):
    fewest = fewest_rows(needed)
    rows = [f"text {n}" for n in range(fewest)]
    parts = parts_of(read_texts(rows), seed=0, needed=needed)
    assert len(parts.calibrate) >= needed
    assert min(len(part) for _, part in parts) >= 100
    with pytest.raises(DataError, match=f"holds {fewest - 1:,} texts .*at least {fewest:,}"):
        parts_of(read_texts([*rows[:-1], rows[0]]), seed=0, needed=needed)


def test_impossible_sizes_are_refused():
    texts = read_texts(list("abcdefgh"))
    with pytest.raises(UsageError, match="at least 1 row"):
        parts_of(texts, seed=0, sizes=Sizes(0, 1, 1), needed=1)
    with pytest.raises(UsageError, match="calibration on 2 rows"):
        parts_of(texts, seed=0, sizes=Sizes(1, 2, 1), needed=3)
    with pytest.raises(UsageError, match="hold_out is 'newest', not one of random, last"):
        parts_of(texts, seed=0, hold_out="newest")


def test_a_long_chain_of_pairs_is_trained_on():
    chain = [(f"a {n}", f"a {n + 1}") for n in range(30)]
    others = [(f"b {n}", f"c {n}") for n in range(20)]
    parts = parts_of(read_texts([*chain, *others]), seed=0, sizes=Sizes(5, 5, 5), needed=1)
    assert set(chain) <= set(parts.train.rows)
    assert "1 group of pairs linked by many shared texts" in parts.notes[-1]
    second = [(f"d {n}", f"d {n + 1}") for n in range(30)]
    with pytest.raises(DataError, match="most pairs share a text"):
        parts_of(read_texts([*chain, *second, *others]), seed=0, sizes=Sizes(5, 11, 5), needed=1)
