"""Embeddings on pairs of sentences: overlap with STS-B, correlations, and the table."""

from __future__ import annotations

import gzip
import importlib
import json
import sys

import numpy as np
import pytest
from scipy import stats

from tests.agree.kinds import save

COUNT = 40


@pytest.fixture
def sts():
    return importlib.import_module("sts")


def sentence(number):
    return f"The film no {number} is \u201cgood\u201d" if number % 3 else f"a {number} b"


def pairs(first, count=COUNT):
    chance = np.random.default_rng(first)
    return [
        (f"{chance.uniform(0, 5):.3f}", sentence(first + n), sentence(first + 7 * n))
        for n in range(count)
    ]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two years, of which the second shares its first ten pairs with STS-B's training set."""
    root = tmp_path / "data"
    (root / "sts").mkdir(parents=True)
    (root / "glue" / "STS-B").mkdir(parents=True)

    def write(path, rows):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines("\t".join(row) + "\n" for row in rows)

    for name, first in (("2012-a", 0), ("2012-b", 100), ("2013-c", 200)):
        write(root / "sts" / f"{name}.tsv.gz", pairs(first))
    facts = ("x", "y", "z", "0")
    test = [(*facts, *row) for row in pairs(300)]
    write(root / "glue" / "STS-B" / "original_sts-test.tsv.gz", test)
    shared = [
        (*"1234567", two.replace("\u201c", '"').upper(), one, score)
        for score, one, two in pairs(200)[:10]
    ]
    write(root / "glue" / "STS-B" / "train.tsv.gz", [("head",) * 10, *shared])
    write(root / "glue" / "STS-B" / "dev.tsv.gz", [("head",) * 10])
    monkeypatch.setenv("SPARING_DATA", str(root))
    return root


def test_shared_pairs_are_those_with_the_same_words_in_either_order(sts, data):
    *years, stsb = sts.read_pairs(data)
    assert [pairs.year for pairs in years] == ["2012", "2012", "2013"]
    assert [int(pairs.shared.sum()) for pairs in years] == [0, 0, 10]
    assert years[2].shared[:10].all()
    assert (stsb.year, len(stsb.rows), int(stsb.shared.sum())) == ("stsb", COUNT, 0)


def test_a_year_counts_as_much_as_another(sts, data):
    sets = sts.read_pairs(data)[:-1]
    generator = np.random.default_rng(0)
    cosines = [generator.normal(size=COUNT) for _ in sets]
    whole = [np.arange(COUNT)] * len(sets)
    single = [stats.spearmanr(x, p.scores).statistic for x, p in zip(cosines, sets, strict=True)]
    expected = ((single[0] + single[1]) / 2 + single[2]) / 2
    assert sts.result(sets, cosines, whole) == pytest.approx(expected)


def test_models_are_evaluated_beside_the_first(sts, data, tmp_path, monkeypatch, capsys):
    models = [save(tmp_path / name, "vector", noise=n) for name, n in (("one", 0), ("two", 0.4))]
    output = tmp_path / "out.json"
    words = ["sts.py", *map(str, models), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sts, "DRAWS", 20)
    sts.main()
    rows = json.loads(output.read_text())["rows"]
    assert [row["model"] for row in rows] == ["one", "two"]
    assert rows[0]["kept"] == [1.0, 1.0, 1.0]
    assert rows[0]["nearest"] == 1.0
    assert 0 < rows[1]["nearest"] < 1
    assert rows[1]["kept"][1] < rows[1]["kept"][2]
    assert "| one | " in capsys.readouterr().out


def test_missing_data_is_named(sts, tmp_path):
    with pytest.raises(SystemExit, match=r"lacks sts/\*.tsv.gz"):
        sts.read_pairs(tmp_path)
