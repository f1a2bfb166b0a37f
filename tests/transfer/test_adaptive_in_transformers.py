"""An adaptive folder works in transformers once sparing is imported, and is refused without it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    BertTokenizer,
    RobertaForSequenceClassification,
    Trainer,
    TrainingArguments,
    ViTImageProcessor,
    pipeline,
)

import sparing
from sparing.core.errors import CheckpointError
from sparing.transfer.adapting.config import AdaptiveConfig
from sparing.transfer.adaptive import AdaptiveClassifier
from tests.transfer.classifiers import FAMILIES, dense, inputs, texts

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film"]
TEXTS = ["a good film", "bad", "a film a film"]


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    BertTokenizer({word: number for number, word in enumerate(WORDS)}).save_pretrained(folder)
    model = dense(dtype=torch.float32, id2label={0: "bad", 1: "so-so", 2: "good"})
    sparing.adapt(model).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image")
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)
    sparing.adapt(dense("vit", dtype=torch.float32)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_automatic_classes_read_what_load_reads(family, tmp_path):
    sparing.adapt(dense(family)).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["model_type"], written["base_model_type"]) == ("sparing-adaptive", family)
    config = AutoConfig.from_pretrained(tmp_path)
    assert type(config) is AdaptiveConfig
    assert config.keys_to_ignore_at_inference == ["layers"]
    expected = sparing.load(tmp_path)(**inputs(family)).logits
    for kind in (AutoModelForSequenceClassification, AutoModelForImageClassification, AutoModel):
        for options in ({}, {"config": config}, {"dtype": "auto"}):
            model = kind.from_pretrained(tmp_path, **options)
            assert type(model) is AdaptiveClassifier
            assert torch.equal(model(**inputs(family)).logits, expected)
    plain, adaptive_config = dense(family).config.to_dict(), config.to_dict()
    assert config.dtype == torch.float64
    unlike = {"model_type", "architectures", "transformers_version", "_name_or_path", "dtype"}
    names = plain.keys() - unlike
    assert {name: adaptive_config.get(name) for name in names} == {
        name: plain[name] for name in names
    }


@pytest.mark.parametrize("kind", [BertForSequenceClassification, RobertaForSequenceClassification])
def test_classes_named_by_hand_refuse_the_folder(kind, text_folder):
    with pytest.raises(ValueError, match=r"sparing-adaptive.* is not supported"):
        kind.from_pretrained(text_folder)


def test_options_of_from_pretrained(text_folder):
    read = AutoModelForSequenceClassification.from_pretrained
    assert read(text_folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert read(text_folder, device_map=None, trust_remote_code=False).dtype == torch.float32
    model, report = read(text_folder, output_loading_info=True)
    assert not any(report.values())
    assert read(text_folder.parent, subfolder=text_folder.name).plan == model.plan
    for options in (
        {"device_map": "auto"},
        {"ignore_mismatched_sizes": True},
        {"quantization_config": {}},
        {"attn_implementation": "flash_attention_2"},
    ):
        with pytest.raises(sparing.Unsupported, match=r"device_map|ignore|quant|its own attention"):
            read(text_folder, **options)
    with pytest.raises(CheckpointError, match=r"classifier.bias is \(3,\), the model's is \(7,\)"):
        read(text_folder, num_labels=7)
    with pytest.raises(sparing.UsageError, match="its AdaptiveConfig"):
        AdaptiveClassifier.from_pretrained(text_folder, config=dense().config)


def test_a_damaged_folder_is_refused_by_automatic_classes_too(text_folder, tmp_path):
    for file in text_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:-64])
    with pytest.raises(CheckpointError, match="cannot be read"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


def test_text_classification_pipeline(text_folder):
    tokenizer = AutoTokenizer.from_pretrained(text_folder)
    assert type(tokenizer) is BertTokenizer
    given = tokenizer(TEXTS, return_tensors="pt", padding=True)
    chances = sparing.load(text_folder)(**given).logits.softmax(-1)
    answers = pipeline("text-classification", model=str(text_folder))(TEXTS)
    labels = [["bad", "so-so", "good"][number] for number in chances.argmax(-1).tolist()]
    assert [answer["label"] for answer in answers] == labels
    scores = [answer["score"] for answer in answers]
    np.testing.assert_allclose(scores, chances.amax(-1).tolist(), rtol=1e-5)


def test_a_tokenizer_that_does_not_say_what_it_is(text_folder, tmp_path):
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((text_folder / name).read_bytes())
    assert type(AutoTokenizer.from_pretrained(tmp_path)) is BertTokenizer


@pytest.mark.filterwarnings("ignore")
def test_image_classification_pipeline(image_folder):
    if missing := getattr(AutoImageProcessor, "_backends", []):
        pytest.skip(f"AutoImageProcessor of this transformers needs {missing}")
    image = Image.new("RGB", (20, 12), (200, 10, 30))
    processor = AutoImageProcessor.from_pretrained(image_folder)
    model = sparing.load(image_folder)
    chances = model(**processor(image, return_tensors="pt")).logits.softmax(-1)[0]
    answers = pipeline("image-classification", model=str(image_folder))(image)
    assert answers[0]["label"] == f"LABEL_{int(chances.argmax())}"
    assert answers[0]["score"] == pytest.approx(float(chances.max()), rel=1e-5)


def test_trainer_evaluates_with_the_usual_metric(text_folder, tmp_path):
    given = texts([9, 9, 9, 9])
    rows = [{name: value[n] for name, value in given.items()} | {"labels": n % 3} for n in range(4)]
    for row in rows:
        row["input_ids"] = row["input_ids"] % 9
    model = sparing.load(text_folder)
    trainer = Trainer(
        model,
        TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True),
        eval_dataset=rows,
        compute_metrics=lambda p: {"acc": (p.predictions.argmax(-1) == p.label_ids).mean()},
    )
    ids = given["input_ids"] % 9
    answers = model(input_ids=ids).logits.argmax(-1)
    right = (answers == torch.arange(4) % 3).double().mean()
    assert trainer.evaluate()["eval_acc"] == pytest.approx(float(right))


def _run(code, folder):
    command = [sys.executable, "-W", "ignore", "-c", code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_sparing_first(text_folder):
    code = """
import sys, sparing
assert not {"torch", "transformers"} & sys.modules.keys()
from transformers import AutoModelForSequenceClassification
print(type(AutoModelForSequenceClassification.from_pretrained(sys.argv[1])).__module__)
"""
    done = _run(code, text_folder)
    assert done.stdout == "sparing.transfer.adaptive\n", done.stderr


def test_transformers_alone_refuses_and_a_later_import_serves(text_folder):
    code = """
import sys
from transformers import AutoModelForSequenceClassification as Auto
try:
    Auto.from_pretrained(sys.argv[1])
except ValueError as error:
    print("sparing-adaptive" in str(error))
import sparing
print(type(Auto.from_pretrained(sys.argv[1])).__module__)
"""
    done = _run(code, text_folder)
    assert done.stdout == "True\nsparing.transfer.adaptive\n", done.stderr
