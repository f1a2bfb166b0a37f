"""Models that answer for each token, from texts to a served folder: entities and spans."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification, pipeline

import sparing
from sparing.core.errors import DataError, Unsupported, UsageError
from sparing.experiment.registry import find_study
from sparing.report.page import write_report
from sparing.slim.answer import BY_TOKEN
from sparing.slim.evidence.changed import Reread, changed_of, read_changed
from sparing.slim.options import Options
from sparing.slim.study import prepare, steps_of, task_of
from sparing.tasks.shared.tokens import span_codes, words_of
from tests.agree.kinds import ENTITIES, save
from tests.slim.conftest import TINY, of_name, only, run_of, texts_of
from tests.slim.served import expected, formed, printed_by
from tests.tasks.slow_windows import slow_best

AUTO = {"entities": AutoModelForTokenClassification, "span": AutoModelForQuestionAnswering}
TASKS = {"entities": "token-classification", "span": "question-answering"}


@pytest.fixture(scope="module", params=sorted(AUTO))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def options(kind, texts_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind)
    model = save(folder / "model", kind, num_hidden_layers=3)
    texts = texts_file
    if kind == "span":
        texts, rows = folder / "pairs.jsonl", texts_of(1240)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        given = ((f"{n} {q[:8]}", f"{p[:30]} {n}") for n, (q, p) in enumerate(pairs))
        lines = (json.dumps(dict(zip(("question", "passage"), row, strict=True))) for row in given)
        texts.write_text("\n".join(lines) + "\n")
    return Options(model=str(model), task="", texts=str(texts), **TINY)


@pytest.fixture(scope="module")
def finished(kind, options, tmp_path_factory):
    return run_of(options, tmp_path_factory.mktemp("run") / kind, "onnxruntime")


def test_the_run_ends_with_a_bound_on_other_answers(finished, kind):
    assert [failure.error for failure in finished.failures] == []
    (seen,) = of_name(finished, "disagreement")
    assert seen.count > 100
    assert of_name(finished, "frontier_score", kind="exits") == []
    assert {r.labels["threshold"] for r in of_name(finished, "candidate_speed")} == {1.0}
    assert {r.labels["metric"] for r in of_name(finished, "whole_score")} == {"same_answer"}
    shares = {r.labels["class"] for r in of_name(finished, "dense_answers")}
    assert shares == ({"PER", "LOC"} if kind == "entities" else set())


def test_two_agree_as_sparing_agree_says(finished, kind, options, tmp_path):
    """The saved model against the dense one, row by row, by the answers' other reader."""
    task = task_of(options)[0]
    answers = load_file(finished.folder / "answers.safetensors")
    dense = next(v for name, v in answers.items() if name.startswith("dense, eager float32"))
    ours = next(v for name, v in answers.items() if name.startswith("slim, eager float32"))
    same = 1 - float(BY_TOKEN[kind].differs(ours, dense).double().mean())
    (recorded,) = of_name(finished, "agreement", arm="slim", engine="eager", precision="float32")
    assert recorded.value == pytest.approx(same)
    texts = tmp_path / "test.jsonl"
    texts.write_text("\n".join(json.dumps(line) for line in _lines(task)) + "\n")
    result = sparing.agree(
        options.model, str(finished.folder / "model" / "torch"), str(texts), timed=0
    )
    assert result.agreement.texts == len(task.test)
    assert result.agreement.changed == round((1 - same) * len(task.test))


def _lines(task):
    """The test texts as rows of a file."""
    for index, ids in enumerate(task.test.inputs):
        if task.train.token_types is None:
            yield {"text": task.tokenizer.decode(ids[1:-1].tolist())}
            continue
        second = task.test.token_types[index] == 1
        parts = (ids[~second][1:-1], ids[second][:-1])
        words = (task.tokenizer.decode(part.tolist()) for part in parts)
        yield dict(zip(("question", "passage"), words, strict=True))


def test_the_saved_model_opens_as_its_kind(finished, kind, options):
    model = sparing.load(finished.folder / "model" / "torch")
    opened = AUTO[kind].from_pretrained(finished.folder / "model" / "torch")
    ids = torch.tensor([[2, 7, 8, 3]])
    assert type(opened) is type(model)
    name = "logits" if kind == "entities" else "end_logits"
    torch.testing.assert_close(opened(input_ids=ids)[name], model(input_ids=ids)[name])
    if kind == "entities":  # transformers has no pipeline for questions any more
        made = pipeline(TASKS[kind], model=model, tokenizer=task_of(options)[0].tokenizer)
        assert made("good w3 bad") is not None
    other = AUTO["span" if kind == "entities" else "entities"]
    with pytest.raises(UsageError, match="is an AdaptiveFor"):
        other.from_pretrained(finished.folder / "model" / "torch")


def test_the_page_lists_changed_answers_as_words(finished, kind):
    page = write_report(finished.folder)["md"].read_text()
    changed = read_changed(finished.folder)
    assert changed is not None
    card = (finished.folder / "model" / "torch" / "README.md").read_text()
    assert f"pipeline_tag: {TASKS[kind]}" in card
    assert ("a segment of the second text" in card) == (kind == "span")
    assert ("B-PER" in card) == (kind == "entities")
    assert "nats on the choosing inputs" not in page


def test_changed_answers_name_their_words(options, kind):
    task = task_of(options)[0]
    test = task.test
    one, two = torch.zeros(len(test), task.width), torch.zeros(len(test), task.width)
    words = test.words[3].tolist()
    first, second = words.index(0), words.index(1)
    if kind == "entities":
        one[3, first], two[3, first], two[3, second] = 1, 1, 1
    else:
        one[:, :2], two[:, :2] = first, first
        two[3, 1] = first + 1
    (changed,) = changed_of(task, test, two, one, BY_TOKEN[kind])
    assert isinstance(changed, Reread)
    assert changed.index == 3
    tokens = test.inputs[3]
    if kind == "entities":
        pieces = (
            tokens[[n for n, word in enumerate(words) if word == number]] for number in (0, 1)
        )
        named = [f"{task.tokenizer.decode(piece.tolist())} [PER]" for piece in pieces]
        assert (changed.dense, changed.parts) == (named[0], 1)
        assert changed.served == ", ".join(named)
    else:
        assert changed.served == task.tokenizer.decode(tokens[first : first + 2].tolist())
        assert changed.parts == 2


@pytest.mark.parametrize("model", ["dense", "slim"])
def test_the_program_on_the_card_of_the_served_folder_gives_the_answer(
    finished, options, kind, model, tmp_path
):
    steps = steps_of(options, task_of(options)[0], finished.folder)
    form = formed(model, "onnxruntime")
    card, printed = printed_by(steps, form, tmp_path / "serve")
    tokenizer = steps.task.tokenizer
    if kind == "entities":
        answers = expected(steps, form).argmax(-1).tolist()
        tokens = tokenizer.convert_ids_to_tokens(tokenizer("a text")["input_ids"])
        named = [(token, ENTITIES[n]) for token, n in zip(tokens, answers, strict=True)]
        assert ast.literal_eval(printed) == named
        assert json.dumps(dict(enumerate(ENTITIES))) in card
        return
    inputs = tokenizer("a text", "another text", return_tensors="pt")
    logits = steps.forms.run(form)(dict(inputs))[0]
    first, last = span_codes(logits, words_of(inputs.encodings[0])).long().tolist()
    places = inputs.encodings[0].offsets
    assert printed == "another text"[places[first][0] : places[last][1]]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_program_on_the_card_reads_a_long_passage_in_windows(
    finished, options, kind, engine, tmp_path
):
    if kind != "span":
        return
    steps = steps_of(options, task_of(options)[0], finished.folder)
    assert any(len(windows) > 1 for windows in steps.task.test.windows)
    form, model = formed("dense", engine), AutoModelForQuestionAnswering.from_pretrained
    seen = set()
    for number, long in enumerate(texts_of(4, seed=5)):
        printed = printed_by(steps, form, tmp_path / str(number), passage=long)[1]
        start, end, _, windows = slow_best(
            model(options.model).eval(), steps.task.tokenizer, "a text", long, limit=32
        )
        assert windows > 2
        assert printed == long[start:end].strip()
        seen.add(start > 20)
    assert seen == {True, False} or engine == "openvino"


def test_a_question_counts_once_and_its_answer_is_the_slow_one(finished, options, kind):
    """As many answers as questions, each the best of all windows of the dense model."""
    if kind != "span":
        return
    task = task_of(options)[0]
    several = [len(windows) for windows in task.test.windows]
    assert max(several) > 1 == min(several)
    assert any(f"{sum(n > 1 for n in several):,} of {len(several):,} rows" in n for n in task.notes)
    answers = load_file(finished.folder / "answers.safetensors")
    dense = next(v for name, v in answers.items() if name.startswith("dense, eager float32"))
    (seen,) = of_name(finished, "disagreement")
    assert seen.count == len(task.more_tests["calibrate"])
    assert len(dense) == len(task.test)
    model = AutoModelForQuestionAnswering.from_pretrained(options.model).eval()
    for row, line in enumerate(_lines(task)):
        given = line["question"], line["passage"]
        offsets = task.tokenizer(*given, return_offsets_mapping=True)["offset_mapping"]
        first, last = dense[row, :2].long().tolist()
        expected = slow_best(model, task.tokenizer, *given, limit=32)
        assert (offsets[first][0], offsets[last][1]) == expected[:2]
        assert expected[3] == several[row]


def test_they_need_texts_and_take_no_rule(options, kind, tmp_path):
    with pytest.raises(Unsupported, match="give --texts FILE, which needs no labels"):
        prepare(replace(options, texts="", task=""), tmp_path / "run")
    with pytest.raises(UsageError, match="is for models that give"):
        prepare(replace(options, threshold=0.4), tmp_path / "run")
    with pytest.raises(UsageError, match="keeps all tokens, as it answers for each"):
        prepare(replace(options, tokens=(0.5,)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_damaged_model_is_named(options, kind, tmp_path):
    model = AUTO[kind].from_pretrained(options.model)
    with torch.no_grad():  # finite weights, and answers that overflow
        list(model.parameters())[-2].fill_(3e38)
    model.save_pretrained(tmp_path / "model")
    task_of(options)[0].tokenizer.save_pretrained(tmp_path / "model")
    given = replace(options, model=str(tmp_path / "model"))
    result = find_study("slim").run(given, tmp_path / "run", cells="dense-answers")
    assert "is not a finite number" in result.failures[0].error


def test_a_model_may_be_an_object(options, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("sparing.export.forms.missing_packages", only())
    model = AUTO[kind].from_pretrained(options.model)
    tokenizer = task_of(options)[0].tokenizer
    rows = texts_of(400)
    if kind == "span":
        rows = [(text[:20], other) for text, other in zip(rows, texts_of(400, 1), strict=True)]
    more = {name: value for name, value in TINY.items() if name != "speed"}
    result = sparing.slim(
        model, texts=rows, tokenizer=tokenizer, output_dir=tmp_path / "run", **more
    )
    assert [failure.error for failure in result.failures] == []
    assert type(sparing.load(tmp_path / "run" / "model" / "torch")).__name__.startswith(
        "AdaptiveFor"
    )


def test_questions_need_passages(options, kind, texts_file, tmp_path):
    if kind == "span":
        rows = [(f"{n} {'w1 ' * 40}", f"w2 {n}") for n in range(400)]
        with pytest.raises(DataError, match="leaves none of the 32 tokens that the model reads"):
            sparing.slim(options.model, texts=rows, output_dir=tmp_path / "run")
        with pytest.raises(DataError, match="give two texts a row"):
            prepare(replace(options, texts=str(texts_file)), tmp_path / "run")
