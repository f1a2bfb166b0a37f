"""Every engine and precision of the dense model, measured on the spot, or why it is not."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from sparing.advise import engines
from sparing.advise.engines import FOLDED, INT8, ONNX, PYTORCH, measure_engines
from sparing.advise.model import open_subject
from sparing.advise.padding import tokenise
from sparing.advise.remedies import remedies
from sparing.core.errors import Unsupported, UsageError
from sparing.export import forms as forms_module
from sparing.export.engine import Chain
from sparing.export.forms import Form, Forms
from sparing.export.openvino import has_bfloat16
from sparing.transfer.folding.fold import fold, is_folded
from tests.advise.small import TEXT, build, save_with_tokenizer
from tests.advise.test_advise import TEXTS, _advice

BFLOAT16 = f"{PYTORCH} bfloat16"
OPENVINO, OPENVINO_BFLOAT16, OPENVINO_INT8 = "OpenVINO", "OpenVINO bfloat16", "OpenVINO INT8"
EVERY = {BFLOAT16, ONNX, INT8, OPENVINO, OPENVINO_BFLOAT16, OPENVINO_INT8}
EMULATED = set() if has_bfloat16() else {BFLOAT16, OPENVINO_BFLOAT16}
OPTIONS = {
    ONNX: "--to onnx --precision float32",
    INT8: "--to onnx --precision int8",
    OPENVINO: "--to openvino --precision float32",
    OPENVINO_BFLOAT16: "--to openvino --precision bfloat16",
    OPENVINO_INT8: "--to openvino --precision int8",
    BFLOAT16: "",
}
# 24 that differ, and one of them again
MANY = [
    f"{article} film was {mood} and {end}"
    for article in ("the", "long")
    for mood in ("good", "bad", "the")
    for end in ("good", "bad", "long film", "the long film")
]
MANY += MANY[:1]
LAYER = {"num_hidden_layers": 1}  # of what is exported
TIMING = {"ms_per_token": 0.01, "rounds": 5, "threads": 1, "budget_s": 1.0}
DENSE, ONNX_FORM = Form("eager", "float32"), Form("onnxruntime", "float32")
INT8_FORM, OPENVINO_FORM = Form("onnxruntime", "int8"), Form("openvino", "float32")


def _classifier(**settings):
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**TEXT, **LAYER, "num_labels": 3, **settings})
    return transformers.BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_with_tokenizer(tmp_path_factory.mktemp("remedies") / "bert", **LAYER)


def _texts(folder, texts=TEXTS):
    return tokenise(open_subject(str(folder)), texts, 16)


# measured on the spot


@pytest.fixture(scope="module")
def measured(folder):
    """A classifier in every form, with texts enough to calibrate INT8."""
    return measure_engines(open_subject(_classifier()), _texts(folder, MANY), 16, 1, **TIMING)


def test_a_classifier_is_timed_in_every_engine_and_precision(measured):
    comparison, _ = measured
    names = {engine.name for engine in comparison.measured}
    assert names == EVERY - EMULATED
    assert {name for name, _ in comparison.missing} == EMULATED
    assert comparison.inputs == f"{len(MANY)} of your texts, batch 1"
    assert all(engine.ratio.value > 0 for engine in comparison.measured)
    assert {engine.name: engine.option for engine in comparison.measured} == {
        name: option for name, option in OPTIONS.items() if name in names
    }


def test_every_other_precision_is_compared_on_texts_that_did_not_calibrate(measured):
    comparison, _ = measured
    for engine in comparison.measured:
        assert engine.exact == (engine.name in (ONNX, OPENVINO))
        assert (engine.agreement is None) == engine.exact
    agreement = comparison.find(OPENVINO_INT8).agreement
    assert agreement.kind == "same class"
    # half of the 24 calibrate; of the others one may be there twice
    assert agreement.count in (12, 13)
    low, high = agreement.interval
    assert 0 <= low <= agreement.value <= high <= 1
    assert len({engine.agreement.count for engine in comparison.measured if not engine.exact}) == 1


def test_records_hold_every_ratio_and_agreement(measured):
    comparison, records = measured
    names = [record.name for record in records]
    assert names.count("engine_latency_ratio") == len(comparison.measured)
    others = [engine.name for engine in comparison.measured if not engine.exact]
    compared = [r.labels["engine"] for r in records if r.name == "answer_agreement"]
    assert compared == others
    assert {record.labels["baseline"] for record in records} == {PYTORCH}


def test_an_encoder_without_a_head_is_compared_by_its_vectors(folder):
    """Five texts are too few to calibrate INT8 on; all are compared."""
    subject = open_subject(str(folder))
    comparison, records = measure_engines(subject, _texts(folder), 16, 2, **TIMING)
    agreement = comparison.find(INT8).agreement
    assert (agreement.kind, agreement.count) == ("cosine", len(TEXTS))
    assert 0.9 < agreement.value <= 1
    assert records[-1].name == "output_cosine"
    reason = dict(comparison.missing)[OPENVINO_INT8]
    assert reason == "it is calibrated on texts: give at least 20 that differ, not 5"
    # in batches ONNX Runtime skips the pads, and the command says so
    options = {engine.name: engine.option for engine in comparison.measured}
    assert options[ONNX] == f"{OPTIONS[ONNX]} --skip-pads"
    assert options[OPENVINO] == OPTIONS[OPENVINO]


def test_a_model_that_mixes_tokens_everywhere_keeps_its_pads(folder):
    torch.manual_seed(0)
    model = transformers.FNetModel(transformers.FNetConfig(**{**TEXT, **LAYER})).eval()
    comparison, _ = measure_engines(open_subject(model), _texts(folder), 16, 2, **TIMING)
    assert comparison.obstacle == ""
    assert comparison.find(ONNX).option == OPTIONS[ONNX]


def test_images_are_timed_without_texts():
    subject = open_subject(build("vit", **LAYER))
    comparison, records = measure_engines(subject, None, 17, 2, **TIMING)
    assert comparison.inputs == "random images, batch 2"
    names = {engine.name for engine in comparison.measured}
    assert names == EVERY - EMULATED - {OPENVINO_INT8}
    assert "reads images" in dict(comparison.missing)[OPENVINO_INT8]
    assert not any(engine.agreement for engine in comparison.measured)
    assert len(records) == len(comparison.measured)
    shown = remedies(replace(_advice(), subject=subject, engines=comparison))
    assert not any("--texts" in remedy.answers for remedy in shown)


@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_what_generates_is_not_exported(kind):
    comparison, records = measure_engines(open_subject(build(kind)), None, 16, 1, **TIMING)
    assert (comparison.measured, comparison.missing, records) == ((), (), [])
    assert "generates" in comparison.obstacle


def test_an_engine_that_is_not_installed_is_shown_with_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    subject = open_subject(build("bert", **LAYER))
    comparison, _ = measure_engines(subject, None, 16, 1, **TIMING)
    assert {engine.name for engine in comparison.measured} == {BFLOAT16, ONNX, INT8} - EMULATED
    listed = {r.name: r for r in remedies(replace(_advice(), engines=comparison))}
    for name in (OPENVINO, OPENVINO_BFLOAT16, OPENVINO_INT8):
        assert listed[name].verdict == "not measured"
        assert "openvino is not installed: pip install '.[openvino]'" in listed[name].effect


def test_without_any_engine_pytorch_alone_is_measured(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    subject = open_subject(_classifier())
    comparison, _ = measure_engines(subject, _texts(folder), 16, 1, **TIMING)
    assert {engine.name for engine in comparison.measured} == {BFLOAT16} - EMULATED
    assert all(engine.agreement.count == len(TEXTS) for engine in comparison.measured)
    listed = {r.name: r.effect for r in remedies(replace(_advice(), engines=comparison))}
    assert "pip install '.[onnx]'" in listed[ONNX]
    assert {name for name, _ in comparison.missing} == (EVERY - {BFLOAT16}) | EMULATED


def test_bfloat16_is_refused_where_it_would_be_emulated(monkeypatch):
    monkeypatch.setattr(forms_module, "multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(forms_module, "has_bfloat16", lambda: False)
    subject = open_subject(build("bert", **LAYER))
    comparison, _ = measure_engines(subject, None, 16, 1, **TIMING)
    assert [engine.name for engine in comparison.measured] == [ONNX, INT8, OPENVINO]
    reasons = dict(comparison.missing)
    assert set(reasons) == {BFLOAT16, OPENVINO_BFLOAT16, OPENVINO_INT8}
    assert "emulated" in reasons[BFLOAT16]
    assert "emulated" in reasons[OPENVINO_BFLOAT16]
    assert reasons[OPENVINO_INT8] == "it is calibrated on texts: give --texts"


def test_a_model_with_nan_is_not_exported():
    model = build("bert", **LAYER)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.bias.fill_(float("nan"))
    comparison, _ = measure_engines(open_subject(model), None, 16, 1, **TIMING)
    assert "differently" in comparison.obstacle


# what can be folded is timed folded


def test_a_model_that_can_be_folded_is_timed_so_and_not_changed():
    model = build("deberta", **LAYER)
    comparison, records = measure_engines(open_subject(model), None, 16, 1, **TIMING)
    folded = comparison.find(FOLDED)
    assert (folded.exact, folded.option, folded.agreement) == (True, "", None)
    assert folded.ratio.value > 0
    assert comparison.find(ONNX)
    assert not is_folded(model)
    assert [r.value for r in records if r.labels["engine"] == FOLDED] == [folded.ratio.value]


def test_what_is_timed_has_constants_and_the_same_answers(monkeypatch):
    called = []
    plain = engines.model_call
    monkeypatch.setattr(engines, "model_call", lambda *two: called.append(two) or plain(*two))
    measure_engines(open_subject(build("deberta", **LAYER)), None, 16, 1, **TIMING)
    (one, inputs), (other, _) = called
    assert (is_folded(one), is_folded(other)) == (False, True)
    with torch.inference_mode():
        answers = [model(**inputs).last_hidden_state for model in (one, other)]
    torch.testing.assert_close(*answers)


def test_a_folded_model_is_its_own_baseline():
    model = build("deberta", **LAYER)
    fold(model)
    comparison, _ = measure_engines(open_subject(model), None, 16, 1, **TIMING)
    assert comparison.find(FOLDED) is None
    assert comparison.find(ONNX)


# forms that are functions, or that cannot be built


class _Segment(nn.Module):
    """A segment that is a function of the token numbers."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, input_ids, attention_mask):
        """The answer, one row for each text."""
        del attention_mask
        return self.answer(input_ids)


class _Forms(Forms):
    """Chains of functions by their form; an error is raised when its form is opened."""

    def __init__(self, answers):
        self.answers = answers
        self.folder, self.missing = Path("/scratch/forms"), ()
        self.skips_pads = False

    def __getitem__(self, form):
        answer = self.answers[form]
        if isinstance(answer, Exception):
            raise answer
        return Chain([_Segment(answer).eval()])

    def __iter__(self):
        return iter(self.answers)

    def __len__(self):
        return len(self.answers)


def _measure_forms(monkeypatch, model, texts, **answers):
    """The comparison, its records, and the options with which the forms were made."""
    made = {}
    known = {"dense": DENSE, "onnx": ONNX_FORM, "int8": INT8_FORM, "openvino": OPENVINO_FORM}
    forms = _Forms({known[name]: answer for name, answer in answers.items()})
    with monkeypatch.context() as patch:
        patch.setattr(engines, "Forms", lambda *_, **options: made.update(options) or forms)
        comparison, records = measure_engines(open_subject(model), texts, 16, 1, **TIMING)
    return comparison, records, made


def _answering(*logits):
    return lambda ids: torch.tensor([logits]).expand(len(ids), -1)


def _by_length(short, longer):
    """Other logits for texts of more than three tokens."""
    return lambda ids: torch.tensor([longer if ids.shape[1] > 3 else short])


def test_answers_that_differ_are_counted(monkeypatch, folder):
    """INT8 that gives another class to longer texts agrees on the shorter ones."""
    texts = _texts(folder)
    comparison, *_ = _measure_forms(
        monkeypatch,
        _classifier(),
        texts,
        dense=_answering(1.0, 0.0),
        onnx=_answering(1.0, 0.0),
        int8=_by_length([0.5, 0.0], [0.5, 1.0]),
    )
    shorter = sum(length <= 3 for length in texts.lengths)
    assert 0 < shorter < len(TEXTS)
    assert comparison.find(INT8).agreement.value == pytest.approx(shorter / len(TEXTS))


def test_a_set_of_labels_agrees_as_a_whole_and_one_number_not_at_all(monkeypatch, folder):
    texts = _texts(folder)
    chains = {
        "dense": _answering(2.0, -1.0),
        "onnx": _answering(2.0, -1.0),
        "int8": _by_length([3.0, -2.0], [3.0, 1.0]),
    }
    model = _classifier(problem_type="multi_label_classification")
    agreement = _measure_forms(monkeypatch, model, texts, **chains)[0].find(INT8).agreement
    assert agreement.kind == "same set"
    assert agreement.value == pytest.approx(sum(n <= 3 for n in texts.lengths) / len(TEXTS))
    number = _classifier(num_labels=1)
    assert _measure_forms(monkeypatch, number, texts, **chains)[0].find(INT8).agreement is None


def test_the_dense_model_answers_once_for_all_forms_and_never_calibrates(monkeypatch, folder):
    """Its answers are taken on texts that INT8 was not calibrated on, not even by a repetition."""
    compared, texts, answer = [], _texts(folder, MANY), _answering(1.0, 0.0)

    def dense(ids):
        compared.append(tuple(ids[0].tolist()))
        return answer(ids)

    comparison, _, made = _measure_forms(
        monkeypatch, _classifier(), texts, dense=dense, onnx=answer, int8=answer, openvino=answer
    )
    calibrated = {tuple(inputs["input_ids"][0].tolist()) for inputs in made["calibration"]}
    assert len(calibrated) == len(made["calibration"]) == 12
    assert calibrated.isdisjoint(compared)
    assert calibrated | set(compared) == set(texts.ids)
    assert len(compared) == comparison.find(INT8).agreement.count


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unsupported("NNCF cannot quantise it"), "NNCF cannot quantise it"),
        (OSError(errno.ENOSPC, "No space left on device"), "written to /scratch: No space left"),
        (RuntimeError("no kernel\nfor it"), "no kernel for it"),
    ],
)
def test_a_form_that_cannot_be_built_is_a_reason_and_loses_nothing(monkeypatch, error, words):
    answer = _answering(1.0, 0.0)
    model = build("bert", **LAYER)
    chains = {"dense": answer, "onnx": answer, "int8": answer, "openvino": error}
    comparison, records, _ = _measure_forms(monkeypatch, model, None, **chains)
    assert [engine.name for engine in comparison.measured] == [ONNX, INT8]
    assert len(records) == 2
    ((name, reason),) = comparison.missing
    assert name == OPENVINO
    assert words in reason


def test_a_form_that_fails_when_it_answers_is_a_reason(monkeypatch):
    def fail(ids):
        raise UsageError("it reads at most 8 tokens")

    answer = _answering(1.0, 0.0)
    chains = {"dense": answer, "onnx": answer, "openvino": fail}
    comparison, *_ = _measure_forms(monkeypatch, build("bert", **LAYER), None, **chains)
    ((name, reason),) = comparison.missing
    assert name == OPENVINO
    assert "it reads at most 8 tokens" in reason


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unsupported("this operator has no ONNX form"), "this operator has no ONNX form"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_an_export_that_fails_is_a_reason_and_no_error(monkeypatch, error, words):
    """All other exports start from it, so no further one is tried."""
    model = build("bert", **LAYER)
    chains = {"dense": _answering(1.0), "onnx": error, "openvino": AssertionError("was tried")}
    comparison, records, _ = _measure_forms(monkeypatch, model, None, **chains)
    assert words in comparison.obstacle
    assert (comparison.measured, records) == ((), [])


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
    assert engines.answers_of(open_subject(_classifier(**settings))) == answers
