"""Agreement of two classifiers: what is counted, bounded, timed, written and refused."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

import sparing
from sparing.agree.comparison import agreement_of, paired_difference
from sparing.agree.options import Options
from sparing.agree.study import run
from sparing.answers import Settings
from sparing.core.errors import DataError, NotFinite, Unsupported, UsageError
from sparing.export.folder import export_chain
from sparing.export.int8 import quantise
from sparing.export.openvino import convert
from sparing.export.static_int8 import quantise_static
from sparing.layers.plan import narrowed
from sparing.measure.calibration import upper_bound
from sparing.tasks.shared.text import fast_tokenizer
from sparing.tasks.texts import read_texts
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import segments
from tests.agree.models import NAMES, export, rows, save_model
from tests.tasks.tokenizers import SIZES

UNTIMED = Options(timed=0)


@pytest.fixture(scope="module")
def dense(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "dense")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "noisy", noise=0.4)


def logits(folder: Path, text: str) -> list[float]:
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**fast_tokenizer(str(folder))(text, return_tensors="pt")).logits[0].tolist()


def test_a_model_agrees_with_itself(dense):
    result = run(str(dense), str(dense), read_texts(rows(60)), UNTIMED)
    assert result.agreement.changed == 0
    assert result.agreement.least == pytest.approx(0.05 ** (1 / 60))
    assert result.finding("largest_logit_shift") == 0
    assert result.changes == ()
    assert "the same answer as A on 60 of 60 texts (100.00 %)" in str(result)
    assert "at least 95.12 % of texts like these" in str(result)


def test_changed_answers_are_those_of_the_models(dense, noisy):
    texts = rows(120)
    result = run(str(dense), str(noisy), read_texts(texts), UNTIMED)
    expected = {}
    for number, text in enumerate(texts, start=1):
        first, second = logits(dense, text), logits(noisy, text)
        if int(np.argmax(first)) != int(np.argmax(second)):
            expected[number] = (NAMES[int(np.argmax(first))], NAMES[int(np.argmax(second))])
    assert 3 < len(expected) < 100
    assert {c.row: (c.before, c.after) for c in result.changes} == expected
    assert result.agreement.changed == len(expected)
    assert result.agreement.least == pytest.approx(1 - upper_bound(len(expected), 120))
    assert sum(count for _, _, count in result.counts) == len(expected)
    shares = [change.before_probability for change in result.changes]
    assert shares == sorted(shares, reverse=True)
    first = result.changes[0]
    assert first.texts == (texts[first.row - 1],)
    probability = torch.tensor(logits(dense, first.texts[0])).softmax(0).max()
    assert first.before_probability == pytest.approx(float(probability), abs=1e-5)
    back = run(str(noisy), str(dense), read_texts(texts), UNTIMED)
    assert {c.row: (c.after, c.before) for c in back.changes} == expected
    text = str(result)
    assert text.count("\n  row ") == min(20, len(expected))
    assert ("more; --changed FILE" in text) == (len(expected) > 20)


def test_duplicates_are_counted_once(dense, noisy):
    texts = rows(30)
    once = run(str(dense), str(noisy), read_texts(texts), UNTIMED)
    twice = run(str(dense), str(noisy), read_texts([*texts, *(f" {t} " for t in texts)]), UNTIMED)
    assert twice.agreement == once.agreement
    assert "30 of 60 rows repeat" in " ".join(twice.notes)


def test_an_onnx_file_of_others_is_compared_and_timed(dense, tmp_path):
    file = export(dense, tmp_path / "onnx" / "model.onnx")
    result = run(str(dense), str(file), read_texts(rows(40)), Options(timed=10))
    assert result.engines == ("eager", "onnxruntime")
    assert result.agreement.changed == 0
    assert result.finding("logit_drift") < 1e-4
    assert result.speed is not None
    assert result.speed.model.inputs == 10
    assert result.speed.model.value > 0
    assert result.speed.with_tokenizer.interval[0] <= result.speed.with_tokenizer.value
    names = {record.name for record in result.records()}
    assert {"agreement", "changed_answers", "logit_drift", "agree_speed_up"} <= names
    assert "with the tokenizer" in str(result)
    alone = run(str(file), str(file), read_texts(rows(40)), UNTIMED, tokenizer=str(dense))
    assert "no configuration is beside" in " ".join(alone.notes)
    with pytest.raises(UsageError, match=r"neither .* comes with a tokenizer: give one"):
        run(str(file), str(file), read_texts(rows(40)), UNTIMED)


def foreign(path: Path, folder: Path, *, output="logits", names=None, shape=None) -> Path:
    """An ONNX file written as others do: with int32 inputs, other outputs or fixed sizes."""
    helper, kind = onnx.helper, onnx.TensorProto
    inputs = names or ("input_ids", "attention_mask")
    shape = shape or ["batch", "tokens"]
    weight = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", [inputs[0]], ["numbers"], to=kind.FLOAT),
        helper.make_node("Cast", [inputs[1]], ["keep"], to=kind.FLOAT),
        helper.make_node("Mul", ["numbers", "keep"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["row"], keepdims=1),
        helper.make_node("ReduceSum", ["kept", "axis"], ["flat"], keepdims=0),
        helper.make_node("Cast", ["flat"], ["sum"], to=kind.DOUBLE),
        helper.make_node("Sin", ["row"], ["sine"]),
        helper.make_node("Concat", ["sine", "sine", "sine"], ["all"], axis=1),
        helper.make_node("MatMul", ["all", "weight"], [output]),
    ]
    values = [
        onnx.numpy_helper.from_array(np.array([1]), "axis"),
        onnx.numpy_helper.from_array(weight, "weight"),
    ]
    outputs = [
        helper.make_tensor_value_info("sum", kind.DOUBLE, [shape[0]]),
        helper.make_tensor_value_info(output, kind.FLOAT, [shape[0], 3]),
    ]
    given = [helper.make_tensor_value_info(name, kind.INT32, shape) for name in inputs]
    graph = helper.make_graph(nodes, "foreign", given, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    for file in folder.glob("*token*"):
        shutil.copy(file, path.parent / file.name)
    return path


def test_files_that_sparing_did_not_write(dense, tmp_path):
    file = foreign(tmp_path / "a" / "model.onnx", dense)
    result = run(str(file), str(file), read_texts(rows(30)), UNTIMED)
    assert result.agreement.changed == 0
    other = foreign(tmp_path / "b" / "model.onnx", dense, output="scores")
    named = run(str(file), str(other), read_texts(rows(30)), UNTIMED)
    assert named.agreement.changed == 0
    fixed = foreign(tmp_path / "c" / "model.onnx", dense, shape=[1, 32])
    assert run(str(file), str(fixed), read_texts(rows(30)), UNTIMED).agreement.changed == 0
    four = foreign(tmp_path / "e" / "model.onnx", dense, shape=[4, 32])
    by_four = run(str(file), str(four), read_texts(rows(30)), Options(timed=8, batch=4))
    assert by_four.agreement.changed == 0
    assert by_four.speed.model.inputs == 2
    with pytest.raises(UsageError, match="answers 1 texts at a time: give --batch 1"):
        run(str(file), str(fixed), read_texts(rows(30)), Options(timed=0, batch=4))
    strange = foreign(tmp_path / "d" / "model.onnx", dense, names=("input_ids", "positions"))
    with pytest.raises(Unsupported, match="takes the input positions"):
        run(str(file), str(strange), read_texts(rows(30)), UNTIMED)


def test_texts_in_batches_are_padded(dense, noisy):
    texts = read_texts(rows(30))
    alone = run(str(dense), str(noisy), texts, UNTIMED)
    together = run(str(dense), str(noisy), texts, Options(timed=6, batch=4))
    assert together.agreement == alone.agreement
    assert together.finding("logit_drift") == pytest.approx(alone.finding("logit_drift"), rel=1e-4)


def test_classes_are_matched_by_name(dense, tmp_path):
    turned = save_model(tmp_path / "turned", NAMES)
    model = BertForSequenceClassification.from_pretrained(turned)
    with torch.no_grad():
        model.classifier.weight.copy_(model.classifier.weight[[2, 0, 1]].clone())
        model.classifier.bias.copy_(model.classifier.bias[[2, 0, 1]].clone())
    model.config.id2label = {0: "Positive", 1: "negative", 2: "neutral"}
    model.save_pretrained(turned)
    result = run(str(dense), str(turned), read_texts(rows(30)), UNTIMED)
    assert result.agreement.changed == 0
    assert result.finding("largest_logit_shift") < 1e-5
    assert "matched by name" in " ".join(result.notes)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("good", "bad", "neutral"), "has the classes good, bad, neutral, the other negative"),
        (("a", "b"), "has 2 classes, the other 3"),
    ],
)
def test_other_classes_are_refused(dense, tmp_path, names, said):
    other = save_model(tmp_path / "other", names)
    with pytest.raises(UsageError, match=said):
        run(str(dense), str(other), read_texts(rows(9)), UNTIMED)


def test_classes_without_names_are_matched_by_number(dense, tmp_path):
    plain = save_model(tmp_path / "plain", ("LABEL_0", "LABEL_1", "LABEL_2"))
    result = run(str(plain), str(dense), read_texts(rows(30)), UNTIMED)
    assert result.agreement.changed == 0
    assert "matched by number" in " ".join(result.notes)


def test_sets_of_labels_are_compared_at_the_threshold(tmp_path):
    kind = {"problem_type": "multi_label_classification"}
    first = save_model(tmp_path / "first", **kind)
    second = save_model(tmp_path / "second", noise=0.4, **kind)
    texts = rows(40)
    result = run(
        str(first),
        str(second),
        read_texts(texts),
        Options(timed=0, settings=Settings(threshold=0.6)),
    )

    def labels(folder: Path, text: str) -> str:
        shares = torch.tensor(logits(folder, text)).sigmoid().tolist()
        chosen = [name for name, share in zip(NAMES, shares, strict=True) if share >= 0.6]
        return " + ".join(chosen) or "(none)"

    expected = {
        number: (labels(first, text), labels(second, text))
        for number, text in enumerate(texts, start=1)
    }
    expected = {number: pair for number, pair in expected.items() if pair[0] != pair[1]}
    assert {c.row: (c.before, c.after) for c in result.changes} == expected
    assert all(0.4 <= change.before_probability <= 1 for change in result.changes)
    one = save_model(tmp_path / "one")
    with pytest.raises(UsageError, match=r"first gives several labels, .*one gives one class"):
        run(str(first), str(one), read_texts(texts), UNTIMED)
    with pytest.raises(UsageError, match="for models that give several labels; these give one"):
        run(
            str(one),
            str(one),
            read_texts(texts),
            Options(timed=0, settings=Settings(threshold=0.6)),
        )


def test_pairs_of_texts(dense):
    pairs = [(text, text[::-1]) for text in rows(20)]
    result = run(str(dense), str(dense), read_texts(pairs), UNTIMED)
    assert result.agreement.texts == 20


def test_a_reference_is_compared_in_pairs(dense, noisy, tmp_path):
    worse = save_model(tmp_path / "worse", noise=5.0)
    texts = read_texts(rows(150))
    result = run(str(worse), str(noisy), texts, UNTIMED, reference=str(dense))
    gap = result.reference.difference
    assert result.reference.a == run(str(dense), str(worse), texts, UNTIMED).agreement
    assert result.reference.b == run(str(dense), str(noisy), texts, UNTIMED).agreement
    changed = result.reference.a.changed - result.reference.b.changed
    assert gap.value == pytest.approx(changed / 150)
    assert gap.closer == "B"
    assert gap.p_value < 0.05
    assert gap.interval[0] < gap.value < gap.interval[1]
    assert "B agrees more" in str(result)
    same = run(str(noisy), str(noisy), texts, UNTIMED, reference=str(dense))
    assert same.reference.difference.closer == "undecided"
    assert same.reference.difference.p_value == 1


def test_too_few_texts_for_the_goal_are_refused_before_anything_is_opened():
    few = read_texts(rows(98))
    said = "98 distinct texts: to show 0.97 with 95 % confidence, it needs at least 99"
    with pytest.raises(DataError, match=said):
        run("nowhere", "nothing", few, Options(at_least=0.97))
    with pytest.raises(DataError, match="1 distinct text in 2 rows: a comparison needs at least 2"):
        run("nowhere", "nothing", read_texts(["a", "a "]))


def test_logits_that_are_not_finite_name_the_text(dense, tmp_path, monkeypatch):
    file = foreign(tmp_path / "a" / "model.onnx", dense)
    from sparing.agree.onnx_file import OnnxFile

    monkeypatch.setattr(OnnxFile, "_outputs", lambda *_: [np.full((1, 3), np.nan)])
    with pytest.raises(NotFinite, match="not finite for text 1: 'aa a 0'"):
        run(str(dense), str(file), read_texts(rows(9)), UNTIMED)


def test_long_texts_are_noted(dense):
    texts = read_texts(["x" * 60, *rows(9)])
    result = run(str(dense), str(dense), texts, UNTIMED)
    assert any("1 texts reach its 32 tokens and may be cut" in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.onnx", "there is no file"),
        ("none.xml", "there is no file"),
        ("./none", "no such folder"),
    ],
)
def test_what_cannot_be_opened(dense, tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        run(str(dense), name, read_texts(rows(9)), UNTIMED)


def test_what_gives_no_answers_to_texts_is_refused(dense, tmp_path):
    from tests.advise.small import build, save_with_tokenizer

    build("vit").save_pretrained(tmp_path / "vit")
    with pytest.raises(Unsupported, match="reads pixel_values"):
        run(str(dense), str(tmp_path / "vit"), read_texts(rows(9)), UNTIMED)
    base = save_with_tokenizer(tmp_path / "base")
    with pytest.raises(Unsupported, match="nothing says how its tokens are pooled"):
        run(str(base), str(base), read_texts(rows(9)), UNTIMED)
    config = BertConfig(**{**SIZES, "vocab_size": 40})
    BertForMaskedLM(config).save_pretrained(tmp_path / "words")
    with pytest.raises(Unsupported, match="words is a masked language model"):
        run(str(tmp_path / "words"), str(base), read_texts(rows(9)), UNTIMED)


@pytest.mark.parametrize(
    "changes",
    [{"at_least": 1.0}, {"batch": 0}, {"timed": -1}, {"threads": 0}],
)
def test_impossible_options_are_refused(changes):
    with pytest.raises(UsageError, match=next(iter(changes))):
        Options(**changes)


def test_changed_texts_are_written(dense, noisy, tmp_path):
    from sparing.agree.result import write_changes

    result = run(str(dense), str(noisy), read_texts(rows(60)), UNTIMED)
    write_changes(result, tmp_path / "changed.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "changed.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [change.row for change in result.changes]
    write_changes(result, tmp_path / "changed.csv")
    with (tmp_path / "changed.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [(r["text"], r["a"], r["b"]) for r in table] == [
        (line["text"], line["a"], line["b"]) for line in lines
    ]
    with pytest.raises(UsageError, match=r"written as \.jsonl or \.csv"):
        write_changes(result, tmp_path / "changed.xlsx")


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 6), (3, 14), (40, 60)])
def test_the_paired_interval_does_not_depend_on_the_order(only_a, only_b):
    count = 200
    first = np.array([True] * only_a + [False] * only_b + [True] * (count - only_a - only_b))
    second = np.array([False] * only_a + [True] * only_b + [True] * (count - only_a - only_b))
    gap = paired_difference(first, second)
    assert gap.interval[0] <= gap.value <= gap.interval[1]
    assert gap.value == (only_b - only_a) / count
    turned = paired_difference(second, first)
    assert turned.interval == pytest.approx((-gap.interval[1], -gap.interval[0]))
    assert turned.p_value == gap.p_value


def test_the_paired_interval_holds_the_difference_as_often_as_it_says():
    count, missed = 200, 0
    generator = np.random.default_rng(0)
    for only_a, only_b, _ in generator.multinomial(count, (0.02, 0.06, 0.92), size=300):
        both = [True] * (count - only_a - only_b)
        first = np.array([*[True] * only_a, *[False] * only_b, *both])
        second = np.array([*[False] * only_a, *[True] * only_b, *both])
        low, high = paired_difference(first, second).interval
        missed += not low <= 0.04 <= high
    assert missed <= 15


def test_objects_and_a_data_set_in_memory(dense):
    opened = BertForSequenceClassification.from_pretrained(dense)
    tokenizer = fast_tokenizer(str(dense))
    with pytest.raises(UsageError, match=r"is in training mode: call .eval\(\)"):
        sparing.agree(opened.train(), str(dense), rows(20))
    result = sparing.agree(
        opened.eval(), opened, {"text": rows(20)}, tokenizer=tokenizer, timed=0, columns="text"
    )
    assert result.agreement.changed == 0
    assert result.options.timed == 0


def test_models_and_chains_of_sparing(dense, tmp_path):
    """An adaptive model with an early exit, its saved folder, and its exported chain."""
    opened = BertForSequenceClassification.from_pretrained(dense).eval()
    model = adapt(opened, exits=[1])
    whole = narrowed(model.encoder.sizes, 1.0)
    model.plan = dataclasses.replace(whole, exits=(1,), threshold=0.6)
    folder = tmp_path / "slim"
    model.save_pretrained(folder)
    fast_tokenizer(str(dense)).save_pretrained(folder)
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    example = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    example["token_type_ids"] = torch.zeros_like(ids)
    export_chain(segments(model), example, folder / "onnx", threshold=0.6, longest=32)
    texts = read_texts(rows(40))
    chain = run(str(folder), str(folder / "onnx"), texts, UNTIMED)
    assert chain.engines == ("eager", "onnxruntime")
    assert chain.agreement.changed == 0
    assert chain.finding("largest_logit_shift") < 1e-3
    exits = run(str(dense), str(folder / "onnx"), texts, UNTIMED)
    assert exits.agreement.changed > 0


def test_an_int8_file_is_compared(dense, tmp_path):
    file = export(dense, tmp_path / "onnx" / "model.onnx")
    (small,) = quantise([file], tmp_path / "int8")
    result = run(str(dense), str(small), read_texts(rows(60)), UNTIMED)
    assert 0 < result.finding("logit_drift") < 1
    assert result.finding("largest_logit_shift") > 1e-3


def test_openvino_files_are_compared(dense, tmp_path):
    """A file of OpenVINO's converter, without configuration, and its INT8 form."""
    file = export(dense, tmp_path / "onnx" / "model.onnx")
    ids = torch.randint(5, 20, (2, 8))
    example = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }
    (converted,) = convert([file], tmp_path / "openvino", example)
    import openvino  # only now: sparing has seen to it that it sends nothing

    foreign_file = tmp_path / "foreign" / "model.xml"
    openvino.save_model(openvino.convert_model(str(file)), foreign_file, compress_to_fp16=False)
    texts = read_texts(rows(60))
    for path in (converted, foreign_file):
        result = run(str(dense), str(path), texts, UNTIMED)
        assert result.engines == ("eager", "openvino")
        assert result.agreement.changed == 0
        assert result.finding("logit_drift") < 1e-4
    one = {name: value[:1] for name, value in example.items()}
    (small,) = quantise_static([converted], tmp_path / "int8", [one] * 4)
    rounded = run(str(dense), str(small), texts, UNTIMED)
    assert rounded.finding("logit_drift") > 1e-3


def test_where_every_answer_differs_nothing_is_shown():
    assert agreement_of(np.zeros(199, dtype=bool)).least == 0
