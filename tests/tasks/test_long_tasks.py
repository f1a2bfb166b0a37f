"""Long tasks: chance levels, no shortcut to the class, little padding."""

from __future__ import annotations

import gzip
import os
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from sklearn.ensemble import HistGradientBoostingClassifier

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task
from sparing.tasks.listops import _expression, evaluate
from sparing.tasks.retrieval import _table, halves
from sparing.tasks.shared.table import Row
from sparing.tasks.shared.text import _raw
from sparing.train.order import LengthGrouped

SMALL = {"validation_examples": 20, "test_examples": 400}


def texts(count, seed=0):
    """Reviews of made-up words, their lengths spread as widely as those of people."""
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(400)]
    sizes = [int(chance.lognormvariate(4, 0.7)) + 2 for _ in range(count)]
    return [" ".join(chance.choice(words) for _ in range(size)) for size in sizes]


@pytest.fixture
def reviews(tmp_path):
    for split in ("train", "test"):
        for number, text in enumerate(texts(200, split)):
            review_dir = tmp_path / "imdb" / "aclImdb" / split / ("pos" if number % 2 else "neg")
            review_dir.mkdir(parents=True, exist_ok=True)
            (review_dir / f"{number}_7.txt").write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def arena():
    """ListOps at the arena's lengths."""
    return load_task("listops", min_tokens=500, max_tokens=2000, examples=600, **SMALL)


def best_constant(labels):
    return max(Counter(labels.tolist()).values()) / len(labels)


def padding(lengths, batch_size):
    """The share of pads in batches as training makes them."""
    order = list(LengthGrouped(lengths, batch_size, seed=0))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    whole = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    return 1 - sum(lengths) / whole


def test_listops_at_the_arenas_lengths_has_the_arenas_chance_level(arena):
    assert arena.chance == best_constant(arena.test.labels)
    shares = np.bincount(arena.train.labels, minlength=10) / 600
    # minima and maxima of many make 0 and 9 the most frequent: about 17 of 100 each
    assert set(shares.argsort()[-2:].tolist()) == {0, 9}
    assert 0.13 < shares[[0, 9]].mean() < 0.2
    assert shares[1:9].max() < 0.13
    lengths = np.array(arena.train.lengths) - 1
    assert 500 <= lengths.min() < 560
    assert 1700 < lengths.max() <= 2000


def test_splits_share_no_example(arena, reviews):
    tasks = [
        arena,
        load_task("imdb", data=reviews, tokenizer="bytes", max_tokens=1000),
        load_task("retrieval", data=reviews, max_tokens=1000),
    ]
    for task in tasks:
        rows = [row.numpy().tobytes() for split in task.splits.values() for row in split.inputs]
        assert len(set(rows)) == len(rows), task.name


def test_seeds_and_order(reviews):
    for name, options in (("imdb", {"tokenizer": "bytes"}), ("retrieval", {})):
        one, again, other = (
            load_task(name, data=reviews, seed=seed, **options) for seed in (0, 0, 1)
        )
        for split in one.splits:
            assert all(map(torch.equal, one.split(split).inputs, again.split(split).inputs))
        first, second = (
            {row.numpy().tobytes() for row in task.validation.inputs} for task in (one, other)
        )
        assert first != second


@pytest.mark.parametrize("batch_size", [8, 32])
def test_batches_of_like_length_have_few_pads(arena, batch_size):
    lengths = arena.train.lengths * 20  # as many examples as make whole pools
    assert padding(lengths, batch_size) < 0.03
    assert padding([100] * 77, batch_size) == 0
    shuffled = random.Random(0).sample(lengths, len(lengths))
    whole = sum(
        len(batch) * max(batch)
        for start in range(0, len(shuffled), batch_size)
        for batch in [shuffled[start : start + batch_size]]
    )
    assert 1 - sum(shuffled) / whole > 0.25


def test_lengths_do_not_tell_which_halves_belong_together():
    rows = [Row((text,), 0) for text in texts(3000)]
    pairs = halves(rows, seed=0)
    labels = np.array([pair.label for pair in pairs])
    sizes = np.array([[len(text) for text in pair.texts] for pair in pairs])
    facts = np.stack([*sizes.T, np.abs(sizes[:, 0] - sizes[:, 1]), sizes.sum(1)], 1)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:2000], order[2000:]
    trees = HistGradientBoostingClassifier(max_iter=30, max_depth=3)
    trees.fit(facts[train], labels[train])
    assert trees.score(facts[test], labels[test]) < 0.58
    assert labels.mean() == 0.5


def test_a_review_that_occurs_several_times_is_never_apart_from_itself():
    rows = [Row((text,), 0) for text in texts(40)[:10] * 4]
    whole = {row.texts[0] for row in rows}
    pairs = halves(rows, seed=0)
    assert sum(pair.label for pair in pairs) == 20
    for pair in pairs:
        assert (" ".join(pair.texts) in whole) == pair.label


def test_white_space_does_not_tell_which_halves_belong_together():
    chance = random.Random(0)
    # every other review has paragraphs, which end in two spaces, no-break spaces or new lines
    marks = ["  ", "\u00a0", " \n", "\t"]
    rows = [
        Row((text.replace(" ", chance.choice(marks)) if number % 2 else text,), 0)
        for number, text in enumerate(texts(60))
    ]
    for pair in halves(rows, seed=0):
        for text in pair.texts:
            assert text.split() == text.split(" ")


def test_reviews_that_are_test_reviews_too_make_no_training_pairs(reviews):
    folder = reviews / "imdb/aclImdb"
    same = (folder / "test/neg/4_7.txt").read_text().replace(" ", "<br /><br />", 1)
    (folder / "train/neg/4_7.txt").write_text(same)
    (folder / "train/neg/6_7.txt").write_text((folder / "train/neg/8_7.txt").read_text())
    task = load_task("retrieval", data=reviews, max_tokens=4000)
    assert [len(split) for split in task.splits.values()] == [178, 19, 200]
    note = "train: 2 reviews that are also test reviews, or occur twice, left out"
    assert note in task.notes
    texts = {
        split: {bytes(half) for row in task.split(split).inputs for half in _halves(row)}
        for split in task.splits
    }
    assert not texts["test"] & (texts["train"] | texts["validation"])


def _halves(row):
    second = int((row == 1).nonzero()[1])
    return row[1:second].numpy().tobytes(), row[second + 1 :].numpy().tobytes()


@pytest.mark.parametrize("name", ["imdb", "retrieval"])
def test_a_folder_without_one_class_or_with_an_empty_review(reviews, name):
    options = {"tokenizer": "bytes", "max_tokens": 200}
    empty = reviews / "imdb/aclImdb/test/pos/3_7.txt"
    empty.write_bytes(b"")
    with pytest.raises(DataError, match=r"1 reviews are empty: .*test/pos/3_7.txt.*skip_broken"):
        load_task(name, data=reviews, **options)
    task = load_task(name, data=reviews, **options, skip_broken=True)
    assert "1 empty reviews left out: test/pos/3_7.txt" in task.notes[0]
    for path in (reviews / "imdb/aclImdb/test/pos").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=rf"task {name}: there are no positive test reviews"):
        load_task(name, data=reviews, **options)


def test_reviews_without_a_space_make_no_pairs(tmp_path):
    for split in ("train", "test"):
        for number in range(4):
            review_dir = tmp_path / "aclImdb" / split / ("pos" if number % 2 else "neg")
            review_dir.mkdir(parents=True, exist_ok=True)
            (review_dir / f"{number}_7.txt").write_text(f"word{number}")
    with pytest.raises(DataError, match="no train review can be cut: none has a space"):
        load_task("retrieval", data=tmp_path)


@pytest.fixture
def papers(tmp_path):
    folder = tmp_path / "aan"
    folder.mkdir()
    for name in ("train", "eval", "test"):
        lines = [f"{n % 2}.0\t{n}\t{n + 1}\tpaper {n} of {name}\tother {n}" for n in range(20)]
        (folder / f"new_aan_pairs.{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_retrieval_of_papers(papers):
    data = papers.parent
    task = load_task("retrieval", data=data, pairs="papers")
    assert [len(split) for split in task.splits.values()] == [20, 20, 20]
    (papers / "new_aan_pairs.eval.tsv").unlink()
    with pytest.raises(DataError, match=r"there is no .*eval.tsv"):
        load_task("retrieval", data=data, pairs="papers")
    with pytest.raises(UsageError, match="did you mean 'papers'"):
        load_task("retrieval", data=data, pairs="paper")


def test_papers_are_read_as_bytes(papers):
    # a form feed, a next line mark and bytes that are not UTF-8 occur inside papers
    odd = b"1\t3\t4\tone \x0c two \xc2\x85 three \xff\xfe\tother\r\n0\t5\t6\ta\tb\r\n"
    (papers / "new_aan_pairs.test.tsv").write_bytes(odd)
    task = load_task("retrieval", data=papers.parent, pairs="papers")
    assert task.test.labels.tolist() == [1, 0]
    read = bytes(byte - 2 for byte in task.test.inputs[0].tolist() if byte > 1)
    assert read == b"one \x0c two \xc2\x85 three \xff\xfeother"


def test_papers_are_cut_as_they_are_read(papers):
    # through the middle of a character of three bytes
    first, second = "\u20ac" * 90, "b" * 300
    for line, sizes in (((first, second), (49, 48)), ((first, "b" * 20), (77, 20))):
        row = "\t".join(("1", "3", "4", *line))
        (papers / "new_aan_pairs.test.tsv").write_bytes(f"{row}\n".encode())
        task = load_task("retrieval", data=papers.parent, pairs="papers", max_tokens=99)
        whole = [text.encode()[:size] for text, size in zip(line, sizes, strict=True)]
        expected = [token for text in whole for token in (1, *(byte + 2 for byte in text))]
        assert task.test.inputs[0].tolist() == expected
        assert "test: 1 of 1 texts have more than 99 tokens and were cut" in task.notes
    rows, _ = _table(papers / "new_aan_pairs.test.tsv", 99)
    assert [len(_raw(text)) for text in rows[0].texts] == [99, 20]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2.0\t1\t2\ta\tb", "not a label, two numbers and two texts"),
        ("1.0\t1\t2\ta", "not a label, two numbers and two texts"),
        ("1.0\t1\t2\ta\tb\tc", "not a label, two numbers and two texts"),
        ("1.0\t1\t2\t \tb", "a text is empty"),
        ("", "not a label, two numbers and two texts"),
    ],
)
def test_broken_lines_of_papers_are_named_or_left_out(papers, line, reason):
    path = papers / "new_aan_pairs.eval.tsv"
    path.write_text(f"1.0\t1\t2\ta\tb\n{line}\n0.0\t1\t2\tc\td\n")
    with pytest.raises(DataError, match=rf"eval.tsv: 1 row is broken: line 2 \({reason}\)"):
        load_task("retrieval", data=papers.parent, pairs="papers")
    task = load_task("retrieval", data=papers.parent, pairs="papers", skip_broken=True)
    assert len(task.validation) == 2
    assert f"line 2 ({reason})" in task.notes[0]


def test_papers_that_are_missing_or_no_text(papers):
    path = papers / "new_aan_pairs.eval.tsv"
    path.write_text("\n")
    with pytest.raises(DataError, match=r"eval.tsv holds no pairs"):
        load_task("retrieval", data=papers.parent, pairs="papers")
    with pytest.raises(DataError, match="holds no pairs"):
        load_task("retrieval", data=papers.parent, pairs="papers", skip_broken=True)
    path.write_bytes(b"1\t1\t2\t\xff\tb\n")
    with pytest.raises(DataError, match=r"line 1 \(not UTF-8 text, which tokenizer='bytes' can"):
        load_task("retrieval", data=papers.parent, pairs="papers", tokenizer="somewhere/words")
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"there is no .*eval.tsv"):
        load_task("retrieval", data=papers.parent, pairs="papers")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("listops", {"max_token": 9}, "no option 'max_token'; did you mean 'max_tokens'"),
        ("pathfinder", {"side": 32}, "no option 'side'"),
        ("retrieval", {"pair": "papers"}, "no option 'pair'; did you mean 'pairs'"),
        ("imdb", {"token": "bytes"}, "no option 'token'; did you mean 'tokenizer'"),
        ("cifar10", {"as_token": True}, "no option 'as_token'; did you mean 'as_tokens'"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(name, options, message):
    with pytest.raises(UsageError, match=message):
        load_task(name, **options)


@pytest.mark.slow
def test_expressions_are_distributed_as_the_published_ones():
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with listops/*.tsv.gz")
    path = Path(os.environ["SPARING_DATA"]) / "listops" / "test_d20s.tsv.gz"
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip("\n").split("\t")[1].split() for line in file]
    published = [[token for token in row if token not in "()"] for row in rows]
    published = [row for row in published if len(row) > 1]  # there a single digit is one too
    # as there: 20 levels, 5 arguments, 100,000 different ones, a tenth of which is the test set
    chance, expressions = random.Random(0), dict[tuple[str, ...], None]()
    while len(expressions) < 100_000:
        tokens = _expression(chance, 940, 21, 5)
        if tokens is not None:
            expressions[tuple(tokens)] = None
    sampled = random.Random(1).sample(list(expressions), len(published))
    lengths = [[len(row) for row in rows] for rows in (published, sampled)]
    assert ks_2samp(*lengths).statistic < 0.025
    for tokens in ("[MIN", "[MAX", "[MED", "[SM"):
        shares = [sum(row.count(tokens) for row in rows) for rows in (published, sampled)]
        assert abs(shares[0] / shares[1] - 1) < 0.06
    answers = [
        np.bincount([evaluate(" ".join(row)) for row in rows], minlength=10) / len(rows)
        for rows in (published, sampled)
    ]
    assert np.abs(answers[0] - answers[1]).max() < 0.015


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("imdb", {"tokenizer": "bytes", "max_tokens": 1000}),
        ("imdb", {"tokenizer": "bytes", "max_tokens": 4000}),
        ("retrieval", {"max_tokens": 4000}),
    ],
)
def test_real_texts_are_balanced_and_little_padded(name, options):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with imdb/")
    task = load_task(name, data=Path(os.environ["SPARING_DATA"]), **options)
    assert task.chance == 0.5 == best_constant(task.test.labels)
    assert padding(task.train.lengths, 32) < 0.035
    assert task.subset
