"""Windows of long passages: how they are cut, and the best answer in all of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from transformers import AutoModelForQuestionAnswering

from sparing.answers import Encoded
from sparing.answers.spans import in_windows, span_of
from sparing.core.errors import DataError
from sparing.tasks import load_task
from sparing.tasks.shared.questions import each_question, each_window
from sparing.tasks.shared.spans import Passages, Question, Window
from sparing.tasks.shared.text import fast_tokenizer
from sparing.tasks.shared.windows import (
    best_in_windows,
    best_span,
    cut,
    joined,
    span_in_windows,
    window_ranges,
    windows_in,
)
from sparing.train import evaluate
from sparing.train._spans import answers_in
from tests.agree.kinds import save
from tests.tasks.slow_windows import slow_best, windows_by_transformers
from tests.tasks.test_squad import write_questions
from tests.tasks.tokenizers import save_tokenizer


@pytest.mark.parametrize("words", [1, 20, 27, 28, 29, 60, 200])
@pytest.mark.parametrize("limit", [12, 32, 33])
@pytest.mark.parametrize("stride", [0, 5, 128])
def test_rows_are_cut_as_transformers_does(tmp_path, words, limit, stride):
    tokenizer = fast_tokenizer(str(save_tokenizer(tmp_path / "tokenizer")))
    question, passage = "good bad?", "".join(f" w{number}" for number in range(words)).strip()
    given = windows_by_transformers(tokenizer, question, passage, limit, stride)
    whole = tokenizer(question, passage)
    inside = [side == 1 for side in whole.sequence_ids(0)]
    ranges = windows_in(inside, limit, stride)
    row = torch.tensor(whole["input_ids"])
    rows = cut(row, ranges)
    assert [one.tolist() for one in rows] == given["input_ids"]
    assert torch.equal(joined(rows, ranges), row)


def test_half_a_window_is_shared_at_most_and_every_token_is_in_one():
    for count in range(1, 40):
        for room in range(1, 12):
            ranges = window_ranges(count, room)
            assert {n for start, end in ranges for n in range(start, end)} == {*range(count)}
            assert all(0 < end - start <= room for start, end in ranges)
            shared = [a[1] - b[0] for a, b in pairwise(ranges)]
            assert all(one == room // 2 for one in shared)
    assert windows_in([False] * 5 + [True] * 3, 5) is None


def test_the_best_span_is_that_of_all_pairs():
    torch.manual_seed(0)
    for tokens in (1, 2, 31, 80):
        logits = torch.randn(tokens, 2)
        pairs = [(a, b) for a in range(tokens) for b in range(a, min(tokens, a + 30))]
        first, last = max(pairs, key=lambda ab: float(logits[ab[0], 0] + logits[ab[1], 1]))
        assert best_span(logits)[:2] == (first, last)
    far = torch.zeros(80, 2)
    far[70, 0], far[2, 1] = 9.0, 9.0  # the best start is behind the best end
    first, last, score = best_span(far)
    assert (score, last - first < 30) == (9.0, True)


def test_of_equal_answers_the_first_window_counts_and_pads_do_not():
    windows = torch.tensor([[2, 6], [4, 8], [6, 9]])
    logits = torch.zeros(3, 9, 2)
    logits[:, :2] = logits[:, 6:] = 99.0  # the question, and what is behind the passage
    logits[2, 5] = 99.0  # a pad of the shorter window
    logits[0, 4, 0] = logits[0, 5, 1] = 1.0
    logits[1, 2, 0] = logits[1, 3, 1] = 1.0
    assert span_in_windows([*logits], windows) == (4, 5, 2.0)
    logits[2, 2, 0] = logits[2, 3, 1] = 3.0
    assert span_in_windows([*logits], windows) == (6, 7, 6.0)
    assert best_in_windows([(0, torch.zeros(0, 2)), (5, torch.zeros(1, 2))]) == (5, 5, 0.0)


def test_evaluation_takes_the_same_answer_in_whatever_order_windows_are_answered():
    places = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7]], dtype=torch.int32)
    windows = [Window(0, 1, places[:2], 0), Window(0, 1, places[2:], 2)]
    passages = Passages([Question("k", "q", "a b c d", ("a",), (0,))], windows)
    logits = torch.zeros(2, 3, 2)
    for order in ([0, 1], [1, 0]):
        assert answers_in(passages, [(order, logits[order])]) == (["a"], [True])
    logits[1, 2] = 1.0
    for order in ([0, 1], [1, 0]):
        assert answers_in(passages, [([one], logits[[one]]) for one in order])[0] == ["d"]


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    root = tmp_path_factory.mktemp("squad")
    write_questions(root / "squad", 20, words=24)
    model = save(root / "model", "span", max_position_embeddings=96, initializer_range=0.4)
    options = {"data": root, "tokenizer": str(model), "max_tokens": 90, "stride": 15}
    return AutoModelForQuestionAnswering.from_pretrained(model), load_task("squad", **options)


def test_questions_hold_what_their_windows_hold(squad):
    task = squad[1]
    whole = each_question(task.test)
    assert len(task.test) > len(whole) == len(task.test.passages.questions)
    parts = each_window(whole)
    assert [row.tolist() for row in parts.inputs] == [row.tolist() for row in task.test.inputs]
    types = [row.tolist() for row in parts.token_types]
    assert types == [row.tolist() for row in task.test.token_types]
    assert whole.rows == [
        [
            size
            for size, window in zip(task.test.lengths, task.test.passages.windows, strict=True)
            if window.question == number
        ]
        for number in range(len(whole))
    ]
    for ids, label, question in zip(
        whole.inputs, whole.labels, task.test.passages.questions, strict=True
    ):
        shown = task.tokenizer.decode(ids[label[0] : label[1] + 1])
        assert shown.replace(" ", "") == question.answers[0].lower()
    some = whole.subset([3, 1])
    assert some.rows == [whole.rows[3], whole.rows[1]]
    assert some.digest != each_window(some).digest


def test_evaluation_is_the_slow_way(squad):
    model, task = squad
    given, several = evaluate(model, task), 0
    for answer, question in zip(given.predictions, task.test.passages.questions, strict=True):
        start, end, _, windows = slow_best(
            *(model, task.tokenizer, question.text, question.passage), limit=90, stride=15
        )
        assert answer == question.passage[start:end]
        several += windows > 1
    assert several > 2


def test_answers_are_read_off_windows_one_after_another():
    row = Encoded(
        {"input_ids": [0, 1, 0, 5, 6, 7, 8, 0]},
        [(0, 0), (0, 1), (0, 0), (0, 1), (2, 3), (4, 5), (6, 7), (0, 0)],
        [None, 0, None, 1, 1, 1, 1, None],
        [None, 0, None, 0, 1, 2, 3, None],
    )
    assert in_windows(row, 8, "row 1").read == (row,)
    made = in_windows(row, 6, "row 1")
    ids = [one.values["input_ids"] for one in made.read]
    assert ids == [[0, 1, 0, 5, 6, 0], [0, 1, 0, 6, 7, 0], [0, 1, 0, 7, 8, 0]]
    logits = torch.zeros(18, 2, dtype=torch.float64)
    logits[[0, 6, 11, 17]] = 50.0  # marks
    logits[3, 0] = logits[10, 1] = 4.0  # in no window together
    assert span_of(logits.numpy(), made) == (0, 1, 4.0)
    logits[9, 0] = 1.0
    assert span_of(logits.numpy(), made) == (2, 5, 5.0)
    with pytest.raises(DataError, match="row 1: the question leaves the passage no token"):
        in_windows(row, 4, "row 1")
