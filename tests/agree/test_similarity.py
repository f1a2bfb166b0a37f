"""Embedding models on pairs of texts: cosines of what sentence-transformers itself gives."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from scipy import stats
from sentence_transformers import SentenceTransformer
from sklearn.metrics import average_precision_score

import sparing
from sparing.cli import main
from sparing.core.errors import UsageError
from tests.agree.kinds import save

WORDS = ("film", "cat", "dog", "tree", "house", "w1", "w2", "w3", "good", "bad")


def texts(count, seed):
    generator = np.random.default_rng(seed)
    return [
        " ".join(generator.choice(WORDS, generator.integers(2, 9))) + f" w{number}"
        for number in range(count)
    ]


def table(path, rows, heads):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heads, *rows])
    return path


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("vector") / "model", "vector")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Own pairs with scores, a file a split."""
    folder = tmp_path_factory.mktemp("pairs")
    for number, (split, count) in enumerate((("train", 20), ("validation", 8), ("test", 30))):
        generator = np.random.default_rng(number)
        first, second = texts(count, 2 * number), texts(count, 2 * number + 1)
        scores = generator.random(count).round(3)
        rows = zip(first, second, scores, strict=True)
        table(folder / f"{split}.csv", rows, ("first", "second", "score"))
    return folder


def test_the_scores_are_those_of_its_own_vectors(embedder, pairs):
    options = {"answer": "number", "label": "score"}
    with (pairs / "test.csv").open() as file:
        rows = list(csv.DictReader(file))
    theirs = SentenceTransformer(str(embedder), device="cpu")
    first, second = (theirs.encode([row[name] for row in rows]) for name in ("first", "second"))
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    cosines, truth = (first * second).sum(1), [float(row["score"]) for row in rows]
    for given in (embedder, theirs):
        seen = sparing.evaluate(given, pairs, task_options=options)
        assert seen.evaluation.predictions == pytest.approx(cosines.tolist(), abs=1e-5)
        values = seen.evaluation.scores
        assert values["pearson"] == pytest.approx(stats.pearsonr(cosines, truth).statistic)
        assert values["spearman"] == pytest.approx(stats.spearmanr(cosines, truth).statistic)
        low, high = seen.intervals["pearson"]
        assert low < values["pearson"] < high
        assert "loss" not in str(seen)


def test_documents_are_ranked_by_their_cosine(embedder, tmp_path, capsys):
    queries = [query for query in texts(6, 1) for _ in range(5)]
    documents, relevant = texts(30, 2), [int(n % 5 in (1, 3)) for n in range(30)]
    for split in ("train", "validation", "test"):
        rows = zip([f"{split} {query}" for query in queries], documents, relevant, strict=True)
        table(tmp_path / f"{split}.csv", rows, ("query", "document", "relevance"))
    command = ["evaluate", str(embedder), "--task", str(tmp_path), "--set", "answer=ranking"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--set", "label=relevance", "--json"])
    assert ended.value.code == 0
    seen = json.loads(capsys.readouterr().out)
    theirs = SentenceTransformer(str(embedder), device="cpu")
    vectors = [theirs.encode([f"test {query}" for query in queries]), theirs.encode(documents)]
    cosines = (vectors[0] * vectors[1]).sum(1) / np.prod(
        [np.linalg.norm(x, axis=1) for x in vectors], 0
    )
    precision = [
        average_precision_score(relevant[n : n + 5], cosines[n : n + 5]) for n in range(0, 30, 5)
    ]
    assert seen["scores"]["map"]["value"] == pytest.approx(np.mean(precision), abs=1e-5)
    assert seen["scores"]["map"]["count"] == 6


def test_other_tasks_are_refused(embedder, tmp_path):
    rows = [(text, n % 2) for n, text in enumerate(texts(40, 3))]
    single = table(tmp_path / "single.csv", rows, ("text", "label"))
    for task, options in ((single, {}), ("digits", {}), (single, {"answer": "number"})):
        with pytest.raises(UsageError, match="scores pairs of texts by their cosine"):
            sparing.evaluate(embedder, str(task), task_options=options)
    with pytest.raises(UsageError, match="evaluated on a task of pairs"):
        sparing.evaluate(embedder)
