"""Each kind of answer against a slow, obvious form: when two agree, and what is said of them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sparing.answers import KINDS, Encoded, Settings, kind_of_model, kind_of_outputs
from sparing.answers.base import drift
from sparing.answers.classes import Classes
from sparing.answers.entities import Entities, Entity, entities_in
from sparing.answers.kinds import require_settings
from sparing.answers.numbers import Numbers, Rankings, queries_of
from sparing.answers.spans import Spans, span_of
from sparing.answers.vectors import Vectors
from sparing.core.errors import DataError, Unsupported, UsageError
from sparing.export.int8 import logit_shift


@pytest.fixture
def chance():
    return np.random.default_rng(0)


def findings(first, second):
    return {one.name: one.value for one in first.findings(second)}


def test_the_drift_is_that_of_logits(chance):
    first, second = chance.normal(size=(2, 20, 4))
    expected = logit_shift(torch.from_numpy(first), torch.from_numpy(second))
    relative, largest = drift(first, second)
    assert relative.value == pytest.approx(expected.relative)
    assert largest.value == pytest.approx(expected.largest)
    one, other = first[:, :1], second[:, :1]
    spread = np.sqrt(((one - one.mean()) ** 2).mean())
    assert drift(one, other)[0].value == pytest.approx(
        np.sqrt(((one - other) ** 2).mean()) / spread
    )


def test_labels_agree_as_a_set_and_the_least_certain_label_is_named(chance):
    first, second = (Classes(x, ("a", "b", "c"), True, 0.5) for x in chance.normal(size=(2, 50, 3)))
    sets = [
        [{n for n, x in enumerate(row) if 1 / (1 + np.exp(-x)) >= 0.5} for row in one.logits]
        for one in (first, second)
    ]
    assert first.same(second).tolist() == [a == b for a, b in zip(*sets, strict=True)]
    by_label = ((first.logits >= 0) == (second.logits >= 0)).mean(0)
    assert findings(first, second)["least_label_agreement"] == pytest.approx(by_label.min())


def test_the_confidence_of_a_set_is_that_of_what_differs():
    first = Classes(np.array([[3.0, -2.0, 1.0]]), ("a", "b", "c"), True)
    second = Classes(np.array([[3.0, 2.0, -1.0]]), ("a", "b", "c"), True)
    assert first.confidence(0, second) == pytest.approx(1 / (1 + np.exp(-2)))
    assert first.words(0) == "a + c"
    assert second.words(0) == "a + b"


def test_numbers_agree_up_to_a_difference(chance):
    values = chance.normal(size=30)
    other = values + chance.normal(size=30) * 0.1
    first, second = Numbers(values, 0.1), Numbers(other, 0.1)
    assert first.same(second).tolist() == [
        abs(a - b) <= 0.1 for a, b in zip(values, other, strict=True)
    ]
    assert findings(first, second)["largest_difference"] == pytest.approx(abs(values - other).max())
    assert "spearman" not in findings(Numbers(np.zeros(3), 1.0), Numbers(np.zeros(3), 1.0))


def test_an_order_agrees_unless_two_documents_change_places(chance):
    queries = ((0, 1, 2), (3, 4), (5, 6, 7, 8))
    first, second = chance.integers(0, 4, size=(2, 200, 9)).astype(float)
    for one, other in zip(first, second, strict=True):
        a, b = Rankings(one, queries), Rankings(other, queries)
        expected = [
            not any(
                (one[i] - one[j]) * (other[i] - other[j]) < 0
                for i, j in itertools.combinations(query, 2)
            )
            for query in queries
        ]
        assert a.same(b).tolist() == expected
        assert b.same(a).tolist() == expected


def test_a_ranking_shows_its_first_documents():
    ranking = Rankings(np.array([0.1, 0.9, 0.5, 0.2]), ((0, 1, 2),))
    assert ranking.words(0) == "+1, +2, +0"
    assert ranking.rows(0) == [0, 1, 2]
    other = Rankings(np.array([0.1, 0.5, 0.9, 0.2]), ((0, 1, 2),))
    assert findings(ranking, other)["same_first_document"] == 0
    assert ranking.distance(other).tolist() == [pytest.approx(1 / 3)]


def test_queries_are_pairs_with_the_same_first_text():
    rows = [("a b", "1"), ("c", "2"), ("a  b", "3"), ("d", "4"), ("d", "5")]
    assert queries_of(rows) == ((0, 2), (3, 4))
    for none in ([("a", "1"), ("b", "2")], [("a",), ("a",)], []):
        with pytest.raises(DataError, match="no query has two documents"):
            queries_of(none)


LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def encoded(words, pieces=1):
    """Words of the first text, each of some tokens of two characters, between two marks."""
    offsets, parts, numbers = [(0, 0)], [None], [None]
    place = 0
    for word in range(words):
        for _ in range(pieces):
            offsets.append((place, place + 2))
            parts.append(0)
            numbers.append(word)
            place += 2
        place += 1
    tokens = {"input_ids": [0] * (len(offsets) + 1)}
    return Encoded(tokens, [*offsets, (0, 0)], [*parts, None], [*numbers, None])


def logits_of(chosen):
    return np.eye(len(LABELS))[[0, *chosen, 0]]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ([0, 1, 2, 0], [(3, 8, "PER")]),
        ([1, 1, 0, 0], [(0, 2, "PER"), (3, 5, "PER")]),  # each B begins one
        ([2, 2, 4, 0], [(0, 5, "PER"), (6, 8, "LOC")]),  # an I without a B begins one too
        ([1, 0, 2, 2], [(0, 2, "PER"), (6, 11, "PER")]),
        ([0, 0, 0, 0], []),
        ([3, 4, 4, 4], [(0, 11, "LOC")]),
    ],
)
def test_entities_are_runs_of_words(chosen, expected):
    found = entities_in(logits_of(chosen), encoded(4), LABELS)
    assert [(one.start, one.end, one.type) for one in found] == expected


def test_a_word_has_the_label_of_its_first_token():
    chosen = [1, 0, 2, 3, 0, 4, 0, 1]  # of two tokens a word
    found = entities_in(logits_of(chosen), encoded(4, pieces=2), LABELS)
    assert [(one.start, one.end, one.type) for one in found] == [(0, 9, "PER")]


def test_labels_without_marks_join_equal_neighbours():
    found = entities_in(np.eye(3)[[0, 1, 1, 2, 0]], encoded(3), ("O", "NOUN", "VERB"))
    assert [(one.start, one.end, one.type) for one in found] == [(0, 5, "NOUN"), (6, 8, "VERB")]


def test_entities_agree_in_span_and_type():
    texts = (("ann in rome",),) * 3
    person, place = Entity(0, 0, 3, "PER"), Entity(0, 7, 11, "LOC")
    first = Entities(((person, place), (), (person,)), texts)
    second = Entities(((place, person), (), (Entity(0, 0, 3, "LOC"),)), texts)
    assert first.same(second).tolist() == [True, True, False]
    assert first.words(0) == "ann [PER], rome [LOC]"
    assert first.words(1) == "(none)"
    assert first.distance(second).tolist() == [0, 0, 2]
    assert findings(first, second)["entity_f1"] == pytest.approx(2 * 2 / 6)


def test_entities_need_a_tokenizer_that_says_where_words_are():
    with pytest.raises(Unsupported, match="a fast one"):
        entities_in(logits_of([0]), Encoded({"input_ids": [1, 2, 3]}), LABELS)


def test_the_best_span_is_that_of_all_pairs(chance):
    parts = [None, 0, 0, None, *[1] * 40, None]
    offsets = [(n, n + 1) for n in range(len(parts))]
    row = Encoded({"input_ids": [0] * len(parts)}, offsets, parts, parts)
    for _ in range(20):
        logits = chance.normal(size=(len(parts), 2))
        pairs = [
            (logits[i, 0] + logits[j, 1], i, j)
            for i in range(4, 44)
            for j in range(i, min(44, i + 30))
        ]
        score, first, last = max(pairs)
        assert span_of(logits, row) == (first, last + 1, pytest.approx(score))
    with pytest.raises(DataError, match="no token of the passage"):
        span_of(logits[:2], Encoded({"input_ids": [0, 0]}, [(0, 0)] * 2, [None, 0], [None, 0]))


def test_spans_agree_as_segments_and_share_words():
    passages = ("the red house", "the red house")
    first = Spans(np.array([[0, 7], [4, 7]]), np.ones(2), passages)
    second = Spans(np.array([[0, 7], [4, 13]]), np.ones(2), passages)
    assert first.same(second).tolist() == [True, False]
    assert second.words(1) == "red house"
    assert findings(first, second)["answer_f1"] == pytest.approx((1 + 2 / 3) / 2)


def test_vectors_agree_by_their_cosine_and_share_neighbours(chance):
    values = chance.normal(size=(700, 8))
    other = values + chance.normal(size=(700, 8)) * 0.3
    texts = tuple(map(str, range(700)))
    first, second = Vectors(values, texts, 0.95), Vectors(other * 5, texts, 0.95)
    cosines = [
        float(a @ b / np.sqrt((a @ a) * (b @ b))) for a, b in zip(values, other, strict=True)
    ]
    assert first.same(second).tolist() == [one >= 0.95 for one in cosines]
    shared = []
    for one, two in ((values, other),):
        for n in range(700):
            nearest = []
            for all_of in (one, two):
                lengths = np.linalg.norm(all_of, axis=1)
                near = all_of @ all_of[n] / lengths
                near[n] = -np.inf
                nearest.append(set(np.argsort(-near)[:10].tolist()))
            shared.append(len(nearest[0] & nearest[1]) / 10)
    seen = findings(first, second)
    assert seen["shared_neighbours"] == pytest.approx(np.mean(shared))
    assert seen["cosine_p1"] == pytest.approx(np.percentile(cosines, 1))


def test_vectors_of_zeros_and_of_other_dimensions_are_refused():
    texts = ("a", "b", "c")
    empty = Vectors(np.array([[1.0, 0], [0, 0], [0, 1]]), texts)
    with pytest.raises(DataError, match="vector of text 2 has the length 0: 'b'"):
        empty.same(empty)
    with pytest.raises(UsageError, match="of 2 and of 3 dimensions"):
        Vectors(np.ones((3, 2)), texts).same(Vectors(np.ones((3, 3)), texts))


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("BertForSequenceClassification", {}, "class"),
        ("BertForSequenceClassification", {"num_labels": 1}, "number"),
        ("BertForSequenceClassification", {"problem_type": "regression"}, "number"),
        (
            "RobertaForSequenceClassification",
            {"problem_type": "multi_label_classification"},
            "labels",
        ),
        ("BertForTokenClassification", {}, "entities"),
        ("BertForQuestionAnswering", {}, "span"),
        ("BertModel", {}, None),
        ("BertForMaskedLM", {}, None),
    ],
)
def test_the_kind_of_a_model_follows_from_its_class_and_configuration(name, changes, expected):
    config = SimpleNamespace(**{"num_labels": 3, "problem_type": None, **changes})
    kind = kind_of_model(name, config)
    assert (kind and kind.name) == expected


def test_the_kind_of_a_file_follows_from_its_outputs():
    assert kind_of_outputs({"sentence_embedding": 2, "token_embeddings": 3}) is KINDS["vector"]
    assert kind_of_outputs({"start_logits": 2, "end_logits": 2}) is KINDS["span"]
    assert kind_of_outputs({"logits": 3}) is KINDS["entities"]
    assert kind_of_outputs({"logits": 2}) is None  # a class, several labels, or a number


def test_a_setting_is_for_its_kind_of_answer():
    with pytest.raises(UsageError, match="least_cosine is for models that give a vector; these"):
        require_settings(KINDS["class"], Settings(least_cosine=0.9))
    require_settings(KINDS["vector"], Settings(least_cosine=0.9))


@pytest.mark.parametrize(
    "changes",
    [
        *({"threshold": value} for value in (0.0, 1.0, float("nan"))),
        *({"least_cosine": value} for value in (-1.1, 1.1, float("nan"))),
        *({"most_difference": value} for value in (-0.1, float("inf"), float("nan"))),
    ],
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        Settings(**changes)
