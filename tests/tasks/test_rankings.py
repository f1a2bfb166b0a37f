from __future__ import annotations

import itertools
from statistics import mean

import pytest
import torch
from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

from sparing.core.errors import DataError, UsageError
from sparing.experiment.evaluation import evaluate_fitting
from sparing.models import build_model
from sparing.slim.texts import followed
from sparing.tasks import load_task
from sparing.tasks.shared.rankings import MEASURES, mean_by_chance, query_note, values_by_query
from sparing.tasks.shared.scores import metric
from sparing.train import Recipe, evaluate, train

NAMES = ("map", "mrr", "ndcg@10")


def documents(seed, graded=False):
    """Scores of the documents of a few queries, and their relevance and query."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randint(0, 6, (60,), generator=generator).double()
    relevance = torch.randint(0, 4 if graded else 2, (60,), generator=generator).double()
    scores = torch.randn(60, generator=generator, dtype=torch.float64)
    return scores, torch.stack((relevance, queries), 1)


@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_of_scikit_learn(seed):
    scores, truth = documents(seed)
    precision, gain, first = [], [], []
    for query in range(6):
        rows = truth[:, 1] == query
        relevance, guess = truth[rows, 0].numpy()[None], scores[rows].numpy()[None]
        precision.append(label_ranking_average_precision_score(relevance, guess))
        gain.append(ndcg_score(relevance, guess, k=10, ignore_ties=True))
        order = relevance[0][guess[0].argsort()[::-1]]
        first.append(1 / (1 + order.argmax()))
    for name, values in zip(NAMES, (precision, first, gain), strict=True):
        given = values_by_query(name, scores, truth)
        assert sorted(given) == pytest.approx(sorted(values))
        assert metric(name).score(scores[:, None], truth) == pytest.approx(mean(values))


def test_graded_relevance_counts_in_the_gain():
    scores, truth = documents(0, graded=True)
    for query in range(6):
        rows = truth[:, 1] == query
        truth[rows.nonzero()[0], 0] = 0
        theirs = ndcg_score(
            truth[rows, 0].numpy()[None], scores[rows].numpy()[None], k=10, ignore_ties=True
        )
        assert values_by_query("ndcg@10", scores[rows], truth[rows]) == pytest.approx([theirs])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relevance", [[1, 0, 0, 1, 0], [0, 1], [1, 1, 0], [0, 0, 0, 0, 1, 1]])
def test_the_chance_level_is_the_mean_over_all_orders(name, relevance):
    truth = torch.tensor([[float(value), 7.0] for value in relevance])
    values = [
        values_by_query(name, torch.tensor(order).float(), truth)[0]
        for order in itertools.permutations(range(len(relevance)))
    ]
    assert mean_by_chance(name, truth) == pytest.approx(mean(values))


def test_equal_scores_gain_nothing():
    truth = torch.tensor([[0.0, 0], [1, 0], [0, 0], [0, 0]])
    worst = torch.tensor([0.5, 0.5, 0.5, 0.5])
    assert values_by_query("mrr", worst, truth) == [0.25]
    assert values_by_query("map", worst, truth) == [0.25]
    tied = torch.tensor([0.5, 0.5, 0.1, 0.1])
    assert values_by_query("mrr", tied, truth) == [0.5]


def test_queries_without_both_kinds_do_not_count():
    truth = torch.tensor([[1.0, 0], [0, 0], [1, 1], [0, 2], [0, 2], [1, 3], [1, 3]])
    assert query_note(truth) == "1 of 4 queries have relevant documents and others"
    assert len(values_by_query("map", truth[:, 0], truth)) == 1
    nothing = torch.tensor([[1.0, 0], [1, 0]])
    assert metric("map").score(nothing[:, :1], nothing) == 0
    assert mean_by_chance("map", nothing) == 0


def save_queries(path, queries=30):
    """Questions on a number; a document is relevant if it names it."""
    lines = ["query,document,label"]
    for number in range(queries):
        for other in range(4):
            named = number if other == number % 4 else (number + 1 + other) % queries
            lines.append(f"which is n{number},this is n{named},{int(named == number)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_of_a_query_are_in_one_split(tmp_path):
    task = load_task(str(save_queries(tmp_path / "t.csv")), answer="ranking")
    assert (task.answer, task.metric, task.labels) == ("number", "map", ("value",))
    assert (len(task.test), len(task.validation), len(task.train)) == (24, 8, 88)
    texts = {}
    for name, split in task.splits.items():
        for ids, query in zip(split.inputs, split.queries.tolist(), strict=True):
            words = task.texts(ids.tolist())
            question = " ".join(words[1 : 1 + words[1:].index("[CLS]")] if "[CLS]" in words else [])
            texts.setdefault((name, query), set()).add(question)
    assert all(len(questions) == 1 for questions in texts.values())
    assert any(note.startswith("test: 6 of 6 queries have") for note in task.notes)
    assert task.test.subset([0, 5]).queries.tolist() == [
        task.test.queries[0].item(),
        task.test.queries[5].item(),
    ]
    assert (
        load_task(str(tmp_path / "t.csv"), answer="ranking", examples=41).train.labels.numel() == 40
    )


def test_a_reranker_learns_and_is_scored_by_query(tmp_path):
    task = load_task(str(save_queries(tmp_path / "t.csv")), answer="ranking")
    model = build_model("bert", task, seed=0, layers=1, heads=2, width=16)
    train(model, task, Recipe(epochs=2, batch_size=16), output_dir=tmp_path / "run")
    scores = evaluate_fitting(model, "m", (task, {}), "test", lambda fraction, text: None)
    assert scores.to_dict()["scores"]["map"]["count"] == 6
    values = evaluate(model, task).per_example["map"]
    assert scores.score == pytest.approx(mean(values))
    low, high = scores.intervals["map"]
    assert low < scores.score < high
    assert 0.3 < scores.chance < 0.6


def test_a_split_with_nothing_to_rank_has_no_score(tmp_path):
    path = tmp_path / "t.csv"
    lines = [f"query {n},document {n},{n % 2}" for n in range(80)]
    path.write_text("\n".join(["query,document,label", *lines]) + "\n")
    task = load_task(str(path), answer="ranking")
    model = build_model("bert", task, seed=0, layers=1, heads=2, width=16)
    with pytest.raises(UsageError, match="test of task t has no query with relevant documents"):
        evaluate(model, task)
    with pytest.raises(UsageError, match="no score"):
        task.chance_on("test")
    with pytest.raises(UsageError, match="no score"):
        followed(task)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,1\nb,0\n", "needs two columns of texts, a query and a document"),
        ("query,document,label\na,b,-1\nc,d,1\n", "line 2 .label is '-1'"),
        ("query,document,label\na,b,x\nc,d,1\n", "line 2 .label is 'x'"),
        ("query,document,label\na,,1\nc,d,1\n", "line 2 .document is empty"),
    ],
)
def test_tables_without_documents_or_relevance_are_named(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load_task(str(path), answer="ranking")


def test_trec_qa_is_read_in_its_splits(tmp_path):
    folder = tmp_path / "trec-qa"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        rows = [f'who is {n} ?,{n % 2},"it , is {m}"' for n in range(4) for m in range(3)]
        (folder / f"{part}.csv").write_text("\n".join(["qtext,label,atext", *rows]))
    task = load_task("trec-qa", data=tmp_path)
    assert (len(task.train), len(task.validation), len(task.test)) == (12, 12, 12)
    assert task.metrics == NAMES
    assert "test: 0 of 4 queries have relevant documents and others" in task.notes
    (folder / "dev.csv").write_text("qtext,label,atext\na,2,b\n")
    with pytest.raises(DataError, match=r"line 2 .label is '2'"):
        load_task("trec-qa", data=tmp_path)


def test_every_measure_has_a_metric():
    assert {*MEASURES} == {*NAMES}
