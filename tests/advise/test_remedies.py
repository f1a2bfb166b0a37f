"""Engines measured on the spot, and the remedies that advice names: attention is the last."""

from __future__ import annotations

import errno

import pytest
import torch
import transformers

import sparing
from sparing.advise import engines
from sparing.advise.decision import decide
from sparing.advise.engines import INT8, ONNX, Agreement, Engine, measure_engines
from sparing.advise.model import open_subject
from sparing.advise.padding import tokenise
from sparing.advise.remedies import remedies
from sparing.core.errors import Unsupported
from sparing.measure.statistics import Ratio
from tests.advise.small import TEXT, build, save_with_tokenizer
from tests.advise.test_advise import BUSY, TEXTS, VERDICTS, _advice

ORDER = ["no padding", ONNX, INT8, "slim"]
LAYER = {"num_hidden_layers": 1}  # of what is exported
TIMING = {"ms_per_token": 0.01, "rounds": 5, "threads": 1, "budget_s": 1.0}


def _engine(name, value, agreement=None):
    interval = (0.98 * value, 1.02 * value)
    return Engine(name, name == ONNX, Ratio(value, interval, 8), agreement)


def _both(float32, int8, agreement=None):
    return (_engine(ONNX, float32), _engine(INT8, int8, agreement))


def _classifier():
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**TEXT, **LAYER}, num_labels=3)
    return transformers.BertForSequenceClassification(config).eval()


# measured on the spot


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_with_tokenizer(tmp_path_factory.mktemp("remedies") / "bert", **LAYER)


def test_a_classifier_is_timed_and_its_answers_compared(folder):
    subject = open_subject(_classifier())
    texts = tokenise(open_subject(str(folder)), TEXTS, 16)
    comparison, records = measure_engines(subject, texts, 16, 1, **TIMING)
    assert [engine.name for engine in comparison.measured] == [ONNX, INT8]
    assert comparison.inputs == "20 of your texts, batch 1"
    agreement = comparison.find(INT8).agreement
    assert (agreement.kind, agreement.count) == ("same class", len(TEXTS))
    low, high = agreement.interval
    assert 0 <= low <= agreement.value <= high <= 1
    names = [record.name for record in records]
    assert names == ["engine_latency_ratio", "engine_latency_ratio", "answer_agreement"]
    assert {record.labels["baseline"] for record in records} == {"PyTorch", ONNX}


def test_answers_that_differ_are_counted(folder):
    """INT8 that always gives another class agrees on no text."""
    subject = open_subject(str(folder))
    texts = tokenise(subject, TEXTS, 16)
    forms = {
        ONNX: lambda inputs: (torch.tensor([[1.0, 0.0]]), None),
        INT8: lambda inputs: (torch.tensor([[0.0, float(inputs["input_ids"].shape[1] > 3)]]), None),
    }
    agreement = engines._agreement(texts, forms, "class")
    shorter = sum(length <= 3 for length in texts.lengths)
    assert agreement.value == pytest.approx(shorter / len(TEXTS))


def test_an_encoder_without_a_head_is_compared_by_its_vectors(folder):
    subject = open_subject(str(folder))
    comparison, records = measure_engines(subject, tokenise(subject, TEXTS, 16), 16, 2, **TIMING)
    assert comparison.find(INT8).agreement.kind == "cosine"
    assert 0.9 < comparison.find(INT8).agreement.value <= 1
    assert records[-1].name == "output_cosine"


def test_images_are_timed_without_texts():
    comparison, records = measure_engines(
        open_subject(build("vit", **LAYER)), None, 17, 2, **TIMING
    )
    assert comparison.inputs == "random images, batch 2"
    assert comparison.find(INT8).agreement is None
    assert len(records) == 2


@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_what_generates_is_not_exported(kind):
    comparison, records = measure_engines(open_subject(build(kind)), None, 16, 1, **TIMING)
    assert comparison.measured == ()
    assert "generates" in comparison.obstacle
    assert records == []


def test_an_export_that_fails_is_a_reason_and_no_error(monkeypatch):
    def refuse(*_, **__):
        raise Unsupported("this operator has no ONNX form")

    monkeypatch.setattr(engines, "dense_chains", refuse)
    comparison, records = measure_engines(open_subject(build("bert")), None, 16, 1, **TIMING)
    assert (comparison.obstacle, records) == ("this operator has no ONNX form", [])


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({"num_labels": 3}, "class"),
        ({"num_labels": 1}, "nothing"),
        ({"num_labels": 2, "problem_type": "regression"}, "nothing"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, "labels"),
    ],
)
def test_answers_are_compared_by_their_kind(settings, answers):
    config = transformers.BertConfig(**TEXT, **settings)
    model = transformers.BertForSequenceClassification(config).eval()
    assert engines.answers_of(open_subject(model)) == answers


def test_a_set_of_labels_agrees_as_a_whole_and_one_number_not_at_all(folder):
    texts = tokenise(open_subject(str(folder)), TEXTS, 16)
    forms = {
        ONNX: lambda inputs: (torch.tensor([[2.0, -1.0]]), None),
        INT8: lambda inputs: (
            torch.tensor([[3.0, 1.0 if inputs["input_ids"].shape[1] > 3 else -2.0]]),
            None,
        ),
    }
    agreement = engines._agreement(texts, forms, "labels")
    assert agreement.kind == "same set"
    assert agreement.value == pytest.approx(sum(n <= 3 for n in texts.lengths) / len(TEXTS))
    assert engines._agreement(texts, forms, "nothing") is None


def test_a_full_disk_is_a_reason_and_loses_nothing(monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engines, "dense_chains", full)
    comparison, records = measure_engines(open_subject(build("bert")), None, 16, 1, **TIMING)
    assert "No space left on device" in comparison.obstacle
    assert records == []


def test_a_model_with_nan_is_not_exported():
    model = build("bert", **LAYER)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.bias.fill_(float("nan"))
    comparison, _ = measure_engines(open_subject(model), None, 16, 1, **TIMING)
    assert "differently" in comparison.obstacle


# the remedies


def test_remedies_stand_in_order_and_attention_is_last():
    listed = remedies(_advice(whole=(0.6, (0.58, 0.62)), pads=0.6, engines=_both(0.5, 0.25)))
    assert [remedy.name for remedy in listed] == [*ORDER, "other attention (linear)"]
    assert [remedy.verdict for remedy in listed] == ["pays"] * 3 + ["not measured", "pays"]


@pytest.mark.parametrize(
    ("case", "decision", "words"),
    [
        ({"engines": _both(0.5, 0.49)}, "change engine", "Serve it in ONNX Runtime: 2.00× faster"),
        ({"engines": _both(0.5, 0.25)}, "change engine", "In ONNX Runtime INT8 it is 4.00× faster"),
        ({"engines": _both(1.0, 0.5)}, "keep dense", "In ONNX Runtime INT8 it is 2.00× faster"),
        ({"engines": _both(0.5, 0.25), "pads": 0.6}, "drop padding", "Drop your padding first"),
        ({"engines": _both(1.0, 1.0)}, "keep dense", "Keep dense attention"),
    ],
)
def test_the_first_remedy_that_pays_and_keeps_the_outputs_decides(case, decision, words):
    decided, text = decide(_advice(share=0.02, **case))
    assert decided == decision, text
    assert words in text
    assert text.index("Keep dense attention") == max(
        text.find(start) for start in ("Keep dense", "Serve it", "In ONNX", "Drop your")
    )


def test_int8_says_what_it_changes_or_that_it_is_not_known():
    unknown = decide(_advice(engines=_both(1.0, 0.5)))[1]
    assert "answers: not measured: give --texts" in unknown
    agreement = Agreement("same class", 0.965, (0.944, 0.98), 200)
    known = decide(_advice(engines=_both(1.0, 0.5, agreement)))[1]
    assert "96.5 % the same (94.4–98.0 %), 200 texts" in known


def test_int8_that_is_no_faster_than_float32_is_not_recommended():
    assert "INT8" not in decide(_advice(engines=_both(0.5, 0.49)))[1]


def test_a_busy_machine_names_the_remedies_and_decides_none():
    advice = _advice(pads=0.6, engines=_both(0.5, 0.25), busy=BUSY)
    assert decide(advice)[0] == "undecided"
    text = " ".join(remedy.effect for remedy in remedies(advice))
    assert "0.50× the time" in text
    assert not any(word in text for word in VERDICTS)


# slim


def _slim(model):
    advice = _advice()
    object.__setattr__(advice, "subject", open_subject(model))
    return next(remedy for remedy in remedies(advice) if remedy.name == "slim")


def test_slim_is_named_with_its_command(tmp_path):
    folder = tmp_path / "a folder"
    _classifier().save_pretrained(folder)
    remedy = _slim(str(folder))
    assert remedy.how == f"sparing slim '{folder}' --task TASK"
    assert remedy.how in remedy.sentence


@pytest.mark.parametrize(
    ("kind", "words"), [("gpt2", "no adaptive form"), ("mpnet", "no adaptive form")]
)
def test_what_slim_cannot_take_has_the_reason(kind, words):
    remedy = _slim(build(kind))
    assert words in remedy.effect
    assert (remedy.how, remedy.sentence) == ("", "")


def test_a_head_that_slim_does_not_serve_has_the_reason():
    model = transformers.BertForTokenClassification(transformers.BertConfig(**TEXT)).eval()
    assert "is not a classifier" in _slim(model).effect


def test_the_whole_names_every_remedy(folder):
    advice = sparing.advise(
        str(folder), tokens=16, texts=TEXTS, mechanisms=["linear"], lengths=(16,), threads=1,
        quick=True,
    )  # fmt: skip
    plain = advice.to_dict()
    assert [remedy["name"] for remedy in plain["remedies"]][:4] == ORDER
    assert [engine["name"] for engine in plain["engines"]["measured"]] == [ONNX, INT8]
    assert advice.tables[0].heads == ("remedy", "whole model", "answers", "how")
    assert "ONNX Runtime INT8" in str(advice)
