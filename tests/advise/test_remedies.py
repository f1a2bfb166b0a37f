"""The remedies that advice names, by their gain: what they say, and their commands."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
import transformers

import sparing
from sparing.advise import source
from sparing.advise.decision import decide
from sparing.advise.engines import FOLDED, INT8, ONNX, Agreement, Engine, Engines
from sparing.advise.model import open_subject
from sparing.advise.remedies import remedies
from sparing.advise.tables import tables
from sparing.core.errors import UsageError
from sparing.export.folder import open_chain
from sparing.measure.statistics import Ratio
from tests.advise.small import TEXT, build, save_with_tokenizer
from tests.advise.test_advise import BUSY, VERDICTS, _advice
from tests.advise.test_engines import (
    BFLOAT16,
    EMULATED,
    EVERY,
    LAYER,
    MANY,
    OPENVINO,
    OPENVINO_BFLOAT16,
    OPENVINO_INT8,
    OPTIONS,
    _classifier,
)
from tests.cli.conftest import run_command


def _engine(name, value, agreement=None):
    interval = (0.98 * value, 1.02 * value)
    exact = name in (ONNX, OPENVINO, FOLDED)
    return Engine(name, exact, Ratio(value, interval, 8), agreement, OPTIONS.get(name, ""))


def _both(float32, int8, agreement=None):
    return (_engine(ONNX, float32), _engine(INT8, int8, agreement))


EACH = tuple(
    _engine(name, time) for name, time in zip(OPTIONS, (0.5, 0.25, 0.4, 0.3, 0.2, 0.9), strict=True)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier with a tokenizer; the folder's name has a space."""
    path = save_with_tokenizer(tmp_path_factory.mktemp("remedies") / "a bert", **LAYER)
    _classifier().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "my texts.txt"
    path.write_text("\n".join(MANY), encoding="utf-8")
    return path


# their order


def test_remedies_are_ordered_by_their_gain_and_attention_is_last():
    listed = remedies(_advice(whole=(0.1, (0.09, 0.11)), pads=0.45, engines=EACH))
    free = [OPENVINO_INT8, INT8, OPENVINO_BFLOAT16, OPENVINO, "no padding", ONNX, BFLOAT16]
    assert [remedy.name for remedy in listed] == [*free, "slim", "other attention (linear)"]
    assert [remedy.verdict for remedy in listed] == ["pays"] * 7 + ["not measured", "pays"]
    gains = [remedy.gain for remedy in listed[:7]]
    assert gains == pytest.approx([5, 4, 1 / 0.3, 2.5, 1 / 0.45, 2, 1 / 0.9])


def test_the_table_of_remedies_is_in_the_same_order():
    advice = _advice(pads=0.45, engines=EACH)
    shown = tables(advice)[0]
    assert shown.heads == ("remedy", "whole model", "answers", "how")
    assert [row[0] for row in shown.rows] == [remedy.name for remedy in remedies(advice)]


def test_what_is_missing_stands_after_what_was_measured_with_its_reason():
    reason = "openvino is not installed: pip install '.[openvino]' in a clone of sparing"
    known = Engines(_both(1.1, 0.5), "9 of your texts", "", ((OPENVINO, reason),))
    listed = remedies(replace(_advice(), engines=known))
    # a measured loss has a gain above nothing
    assert [remedy.name for remedy in listed][:4] == [INT8, ONNX, "no padding", OPENVINO]
    assert listed[3].effect == f"not measured: {reason}"
    assert (listed[3].how, listed[3].sentence, listed[3].free) == ("", "", False)


def test_missing_engines_are_named_even_where_nothing_was_measured():
    listed = remedies(replace(_advice(), engines=Engines(missing=((ONNX, "no onnxruntime"),))))
    assert [remedy.effect for remedy in listed if remedy.name == ONNX] == [
        "not measured: no onnxruntime"
    ]


@pytest.mark.parametrize(
    ("known", "reason"), [(Engines(), "left out"), (Engines(obstacle="it generates"), "generates")]
)
def test_engines_that_were_left_out_are_one_line(known, reason):
    listed = remedies(replace(_advice(), engines=known))
    effects = {remedy.name: remedy.effect for remedy in listed}
    assert reason in effects["another engine"]
    assert not EVERY & set(effects)


# what they say


@pytest.mark.parametrize(
    ("case", "decision", "words"),
    [
        ({"engines": _both(0.5, 0.49)}, "change engine", "Serve it in ONNX Runtime: 2.00× faster"),
        ({"engines": _both(0.5, 0.25)}, "change engine", "In ONNX Runtime INT8 it is 4.00× faster"),
        ({"engines": _both(1.0, 0.5)}, "keep dense", "In ONNX Runtime INT8 it is 2.00× faster"),
        ({"engines": _both(0.5, 0.25), "pads": 0.4}, "drop padding", "Drop your padding first"),
        ({"engines": _both(0.5, 0.25), "pads": 0.6}, "change engine", "Drop your padding first"),
        ({"engines": EACH}, "change engine", "Serve it in OpenVINO: 2.50× faster"),
        ({"engines": EACH}, "change engine", "In OpenVINO INT8 it is 5.00× faster"),
        ({"engines": _both(1.0, 1.0)}, "keep dense", "Keep dense attention"),
        ({"engines": (_engine(BFLOAT16, 0.5),)}, "keep dense", "In PyTorch bfloat16 it is 2.00×"),
        ({"engines": (_engine(FOLDED, 0.5),)}, "fold", "Compute its constants once (sparing.fold)"),
        ({"engines": (*EACH, _engine(FOLDED, 0.7))}, "change engine", "Serve it in OpenVINO: 2.50"),
    ],
)
def test_the_largest_gain_that_keeps_the_answers_decides(case, decision, words):
    decided, text = decide(_advice(share=0.02, **case))
    assert decided == decision, text
    assert text.count(words) == 1
    assert text.index("Keep dense attention") == max(
        text.find(start)
        for start in ("Keep dense", "Serve it", "In ONNX", "In Open", "Drop your", "Compute")
    )


def test_a_fold_is_a_line_of_python():
    listed = remedies(_advice(engines=(*EACH, _engine(FOLDED, 0.7))))
    (folded,) = [remedy for remedy in listed if remedy.name == FOLDED]
    assert (folded.how, folded.answers, folded.free) == ("sparing.fold(model)", "the same", True)
    assert folded.sentence == ""  # an engine is faster, with the same answers


def test_only_the_best_of_each_kind_has_a_sentence():
    listed = remedies(_advice(engines=EACH))
    said = {remedy.name for remedy in listed if remedy.sentence and remedy.gain}
    assert said == {OPENVINO, OPENVINO_INT8}


def test_another_precision_says_what_it_changes_or_that_it_is_not_known():
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


# their commands


@pytest.mark.parametrize("name", [ONNX, INT8, OPENVINO, OPENVINO_BFLOAT16, OPENVINO_INT8])
def test_each_engine_has_a_command_that_export_takes(monkeypatch, tmp_path, folder, texts, name):
    opened = []

    def stop(*given, **options):
        opened.append((*given, options["calibrated"]))
        raise UsageError("the command is possible")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source, "open_source", stop)
    subject = open_subject(str(folder))
    advice = replace(_advice(engines=EACH), subject=subject, source=str(texts))
    (how,) = [remedy.how for remedy in remedies(advice) if remedy.name == name]
    program, *arguments = shlex.split(how)
    ended = run_command(*arguments)
    assert program == "sparing"
    assert (ended.code, ended.error) == (2, "sparing: the command is possible")
    assert opened == [(str(folder), str(texts), name == OPENVINO_INT8)]


def test_bfloat16_in_pytorch_and_a_model_without_a_name_have_no_file():
    hows = {remedy.name: remedy.how for remedy in remedies(_advice(engines=EACH))}
    assert hows[BFLOAT16] == "model.bfloat16()"
    assert hows[ONNX].startswith("sparing export MODEL --to onnx --precision float32 ")


# slim


def _slim(model, source=""):
    advice = replace(_advice(), subject=open_subject(model), source=source)
    return next(remedy for remedy in remedies(advice) if remedy.name == "slim")


@pytest.mark.parametrize(
    ("source", "data"),
    [("", "--task TASK"), ("logs.csv", "--texts logs.csv"), ("a log.csv", "--texts 'a log.csv'")],
)
def test_slim_is_named_with_its_command(folder, source, data):
    remedy = _slim(str(folder), source)
    assert remedy.how == f"sparing slim '{folder}' {data}"
    assert remedy.how in remedy.sentence


def test_what_slim_cannot_take_has_the_reason():
    remedy = _slim(build("gpt2"))
    assert "'gpt2' has no adaptive form" in remedy.effect
    assert (remedy.how, remedy.sentence) == ("", "")


def test_a_head_that_slim_does_not_serve_has_the_reason():
    model = transformers.BertForTokenClassification(transformers.BertConfig(**TEXT)).eval()
    assert "is not a classifier" in _slim(model).effect


# the whole


def test_the_whole_names_every_remedy_and_its_command_runs(monkeypatch, tmp_path, folder, texts):
    advice = sparing.advise(
        str(folder), tokens=16, texts=texts, mechanisms=["linear"], lengths=(16,), threads=1,
        quick=True,
    )  # fmt: skip
    plain = advice.to_dict()
    names = [remedy["name"] for remedy in plain["remedies"]]
    assert set(names[:-2]) == EVERY | {"no padding"}
    assert names[-2] == "slim"
    gains = [remedy["gain"] for remedy in plain["remedies"][:-2]]
    assert gains == sorted(gains, reverse=True)
    measured = {engine["name"] for engine in plain["engines"]["measured"]}
    assert measured == EVERY - EMULATED
    assert names[0] in str(advice)
    hows = {remedy.name: remedy.how for remedy in advice.remedies}
    monkeypatch.chdir(tmp_path)
    ended = run_command(*shlex.split(hows[OPENVINO_INT8])[1:])
    assert ended.code == 0, ended.err
    assert open_chain(tmp_path / "DIR").back_end == "openvino"
