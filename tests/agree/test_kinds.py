"""``agree`` for every kind of answer: folders and ONNX files, against transformers itself."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertModel,
    pipeline,
)

from sparing.agree.options import Options
from sparing.agree.study import run
from sparing.answers import Settings
from sparing.core.errors import CheckpointError, DataError, NotFinite, Unsupported, UsageError
from sparing.experiment.registry import Study
from sparing.experiment.schema import schema_of
from sparing.tasks.texts import read_texts
from tests.agree.kinds import export, save
from tests.agree.models import rows
from tests.tasks.slow_windows import slow_best

UNTIMED = Options(timed=0)
PAIRS = [(f"{n // 4} q", f"{text} {text}") for n, text in enumerate(rows(40))]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of each kind; the second has other weights in its last layer."""
    root = tmp_path_factory.mktemp("models")
    noises = {"number": 0.3, "entities": 0.2, "span": 0.2, "vector": 0.1}
    return {
        kind: (save(root / kind / "a", kind), save(root / kind / "b", kind, noise=noise))
        for kind, noise in noises.items()
    }


def compared(first, second, texts, **settings):
    options = Options(timed=0, settings=Settings(**settings))
    result = run(str(first), str(second), read_texts(texts), options)
    declared = schema_of(Study("agree", "sparing.agree.study", ""))
    for record in result.records():
        assert record.unit in declared.entry(record.name).units, record.name
    return result


def values_of(folder, texts):
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = (tokenizer(*row, truncation=True, max_length=32, return_tensors="pt") for row in texts)
    with torch.inference_mode():
        return np.array([float(model(**given).logits) for given in inputs])


def test_numbers_agree_up_to_a_difference(models):
    first, second = models["number"]
    texts = [(text,) for text in rows(30)]
    one, two = values_of(first, texts), values_of(second, texts)
    most = float(np.median(abs(one - two)))
    result = compared(first, second, [row[0] for row in texts], most_difference=most)
    expected = np.flatnonzero(abs(one - two) > most) + 1
    assert sorted(change.row for change in result.changes) == expected.tolist()
    assert result.agreement.texts == 30
    assert result.finding("mean_difference") == pytest.approx(abs(one - two).mean(), rel=1e-4)
    assert "differ most first" in str(result)


def test_a_query_agrees_if_its_documents_keep_their_order(models):
    first, second = models["number"]
    one, two = values_of(first, PAIRS), values_of(second, PAIRS)
    result = compared(first, second, PAIRS)
    changed = [
        query
        for query in range(10)
        if (np.argsort(one[4 * query :][:4]) != np.argsort(two[4 * query :][:4])).any()
    ]
    assert result.agreement.texts == 10
    assert sorted((change.row - 1) // 4 for change in result.changes) == changed
    assert 0 < len(changed) < 10
    assert f"the same order of documents as A on {10 - len(changed)} of 10 queries" in str(result)
    assert all(len(change.texts) == 1 for change in result.changes)


def test_queries_that_are_too_few_for_the_promise_are_refused(models):
    first, second = models["number"]
    with pytest.raises(DataError, match="22 queries are needed, and there are 10"):
        run(str(first), str(second), read_texts(PAIRS), Options(at_least=0.87, timed=0))
    with pytest.raises(DataError, match="no query has two documents"):
        compared(first, second, rows(30))


def test_entities_are_those_of_the_pipeline(models):
    """transformers' strategy "first" gives a word the label of its first token too."""
    first, second = models["entities"]
    texts = rows(40)
    found = []
    for folder in (first, second):
        model = AutoModelForTokenClassification.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        classify = pipeline("ner", model, tokenizer=tokenizer, aggregation_strategy="first")
        listed = [{(e["start"], e["end"], e["entity_group"]) for e in classify(t)} for t in texts]
        found.append(listed)
    result = compared(first, second, texts)
    expected = [n + 1 for n, (a, b) in enumerate(zip(*found, strict=True)) if a != b]
    assert sorted(change.row for change in result.changes) == expected
    assert 0 < len(expected) < 40
    change = result.changes[0]
    start, end, kind = sorted(found[0][change.row - 1])[0]
    assert f"{texts[change.row - 1][start:end]} [{kind}]" in change.before


def test_spans_are_those_of_both_logits(models):
    first, second = models["span"]
    pairs = [(f"{n} a", f"{text} " * (1 + n % 4)) for n, text in enumerate(rows(30))]
    answers = []
    for folder in (first, second):
        model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        answers.append([best_span(model, tokenizer, *pair) for pair in pairs])
    several = sum(answer[2] > 1 for answer in answers[0])
    assert 5 < several < 30
    result = compared(first, second, pairs)
    assert any(f"{several} passages are longer than its 32" in note for note in result.notes)
    batched = run(str(first), str(second), read_texts(pairs), Options(batch=4, timed=8))
    assert batched.agreement == result.agreement
    expected = {
        n + 1: pair for n, pair in enumerate(zip(*answers, strict=True)) if pair[0] != pair[1]
    }
    assert {c.row: (c.before, c.after) for c in result.changes} == {
        row: tuple(answer[1] for answer in pair) for row, pair in expected.items()
    }
    assert 0 < len(expected) < 30
    with pytest.raises(DataError, match="a question and its passage are two texts a row"):
        compared(first, second, rows(9))


def best_span(model, tokenizer, question, passage):
    """The best span of all windows as its characters and its text, and how many windows."""
    start, end, _, windows = slow_best(model, tokenizer, question, passage, 32)
    return (start, end), passage[start:end], windows


def embedded(folder, texts):
    """Vectors of length 1: the mean over the real tokens."""
    model, tokenizer = (
        BertModel.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )
    vectors = []
    for text in texts:
        given = tokenizer(text, truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode():
            vector = model(**given).last_hidden_state[0].mean(0)
        vectors.append(vector / vector.norm())
    return torch.stack(vectors).double().numpy()


def test_vectors_agree_by_their_cosine(models):
    first, second = models["vector"]
    texts = rows(40)
    cosines = (embedded(first, texts) * embedded(second, texts)).sum(1)
    least = float(np.median(cosines))
    result = compared(first, second, texts, least_cosine=least)
    expected = (np.flatnonzero(cosines < least) + 1).tolist()
    assert sorted(change.row for change in result.changes) == expected
    assert result.finding("cosine") == pytest.approx(cosines.mean(), abs=1e-6)
    assert result.finding("cosine_p1") == pytest.approx(np.percentile(cosines, 1), abs=1e-6)
    assert result.changes[0].before.startswith("nearest: ")
    assert result.changes[0].gap == f"cosine {cosines.min():.3f}"
    assert f"row {result.changes[0].row} (cosine {cosines.min():.3f}): nearest" in str(result)


def test_a_sentence_transformer_object_answers_as_its_folder(models):
    from sentence_transformers import SentenceTransformer

    first, _ = models["vector"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = SentenceTransformer(str(first), device="cpu", local_files_only=True)
    texts = rows(20)
    expected = opened.encode(texts)
    np.testing.assert_allclose(embedded(first, texts), expected, atol=1e-5)
    result = run(opened.eval(), str(first), read_texts(texts), UNTIMED)
    assert result.finding("cosine_p1") > 1 - 1e-6


def test_the_prompt_of_a_folder_goes_before_every_text(models, tmp_path):
    first, _ = models["vector"]
    shutil.copytree(first, tmp_path / "prompted")
    settings = {"prompts": {"query": "a b: "}, "default_prompt_name": "query"}
    (tmp_path / "prompted" / "config_sentence_transformers.json").write_text(json.dumps(settings))
    texts = rows(12)
    expected = embedded(first, [f"a b: {text}" for text in texts])
    cosines = (embedded(first, texts) * expected).sum(1)
    result = compared(first, tmp_path / "prompted", texts)
    assert result.finding("cosine") == pytest.approx(cosines.mean(), abs=1e-6)


OUTPUTS = {
    "number": (AutoModelForSequenceClassification, ("logits",)),
    "entities": (AutoModelForTokenClassification, ("logits",)),
    "span": (AutoModelForQuestionAnswering, ("start_logits", "end_logits")),
    "vector": (BertModel, ("last_hidden_state",)),
}


@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.filterwarnings("ignore")
def test_an_onnx_file_answers_as_its_model(models, kind, batch, tmp_path, unchecked_shapes):
    first, _ = models[kind]
    opened, names = OUTPUTS[kind]
    shutil.copytree(first, tmp_path / "model")
    export(opened.from_pretrained(first), tmp_path / "model" / "onnx" / "model.onnx", *names)
    pairs = [(f"{n // 4}", text) for n, text in enumerate(rows(24))]
    texts = read_texts(pairs if kind in ("number", "span") else rows(24))
    file = str(tmp_path / "model" / "onnx" / "model.onnx")
    result = run(str(first), file, texts, Options(timed=4, batch=batch))
    assert result.engines == ("eager", "onnxruntime")
    assert result.agreement.changed == 0
    assert result.speed is not None


def test_answers_of_different_kinds_are_refused(models):
    words = r"answers of different kinds cannot be compared: .* gives a vector, .* gives a label"
    with pytest.raises(UsageError, match=words):
        compared(models["vector"][0], models["entities"][0], rows(9))


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ([["", "other.models.Transformer"]], "names the module 'other.models.Transformer'"),
        ([["", "sentence_transformers.models.LSTM"]], "only Transformer, Pooling"),
        ([["", "sentence_transformers.models.Transformer"]], "an encoder and its pooling"),
        ("no", "it lists no modules"),
        (
            [
                ["", "sentence_transformers.models.Transformer"],
                ["../x", "sentence_transformers.models.Pooling"],
            ],
            "'../x' is outside of its folder",
        ),
    ],
)
def test_a_list_of_modules_decides_no_code(models, tmp_path, modules, words):
    folder = tmp_path / "model"
    shutil.copytree(models["vector"][0], folder)
    listed = modules if modules == "no" else [{"path": p, "type": t} for p, t in modules]
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises((Unsupported, CheckpointError), match=words) as caught:
        compared(folder, folder, rows(9))
    assert "\n" not in str(caught.value)


def test_vectors_need_single_texts_and_numbers_their_setting(models):
    with pytest.raises(DataError, match="a vector is of one text"):
        compared(*models["vector"], PAIRS)
    with pytest.raises(UsageError, match="most_difference is for models that give a number"):
        compared(*models["vector"], rows(9), most_difference=0.1)


def test_a_question_that_fills_the_model_is_named(models):
    pairs = [*((f"{n} a", text) for n, text in enumerate(rows(9))), ("a" * 80, "a b c")]
    with pytest.raises(
        DataError, match="row 10: the question leaves the passage no token"
    ) as caught:
        compared(*models["span"], pairs)
    assert "\n" not in str(caught.value)


def test_half_precision_answers_as_float32(models, tmp_path):
    for kind, least in (("vector", {"least_cosine": 0.999}), ("entities", {})):
        half = tmp_path / kind
        shutil.copytree(models[kind][0], half)
        opened = OUTPUTS[kind][0].from_pretrained(half)
        opened.half().save_pretrained(half)
        assert compared(models[kind][0], half, rows(20), **least).agreement.changed <= 1


@pytest.mark.parametrize("kind", ["vector", "entities", "number"])
def test_outputs_that_are_not_finite_name_the_text(models, tmp_path, kind):
    broken = tmp_path / kind
    shutil.copytree(models[kind][0], broken)
    opened = OUTPUTS[kind][0].from_pretrained(broken)
    with torch.no_grad():
        opened.get_input_embeddings().weight[7] = float("nan")
    opened.save_pretrained(broken)
    texts = ["a 1", "b 2", "a c", "3 c"]
    settings = {"most_difference": 0.1} if kind == "number" else {}
    with pytest.raises((NotFinite, CheckpointError)) as caught:
        compared(models[kind][0], broken, texts, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_files_that_would_answer_wrongly_are_refused(models, tmp_path, unchecked_shapes):
    alone = tmp_path / "alone" / "model.onnx"
    export(AutoModelForSequenceClassification.from_pretrained(models["number"][0]), alone, "logits")
    with pytest.raises(Unsupported, match="no configuration says what it is"):
        run(str(alone), str(alone), read_texts(rows(9)), UNTIMED, tokenizer=models["number"][0])
    folder = tmp_path / "vector"
    shutil.copytree(models["vector"][0], folder)
    file = folder / "model.onnx"
    export(BertModel.from_pretrained(folder), file, "last_hidden_state", takes=("input_ids",))
    with pytest.raises(Unsupported, match="takes no attention_mask: pads would be pooled too"):
        compared(folder, file, rows(9))


def test_a_cross_encoder_answers_as_its_folder(models):
    from sentence_transformers import CrossEncoder

    first, _ = models["number"]
    opened = CrossEncoder(str(first), device="cpu", local_files_only=True)
    result = run(opened.eval(), str(first), read_texts(PAIRS), UNTIMED)
    assert (result.agreement.texts, result.agreement.changed) == (10, 0)


def test_the_prompt_of_an_object_goes_before_every_text(models):
    from sentence_transformers import SentenceTransformer

    first, _ = models["vector"]
    prompts = {"prompts": {"query": "a b: "}, "default_prompt_name": "query"}
    opened = SentenceTransformer(str(first), device="cpu", local_files_only=True, **prompts)
    texts = rows(12)
    cosines = (embedded(first, texts) * opened.encode(texts)).sum(1)
    result = run(str(first), opened.eval(), read_texts(texts), UNTIMED)
    assert result.finding("cosine") == pytest.approx(cosines.mean(), abs=1e-5)
