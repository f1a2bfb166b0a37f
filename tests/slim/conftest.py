"""A tiny classifier of generated texts, and three small runs that the tests of slim share."""

from __future__ import annotations

import random

import jaxtyping
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from sparing.experiment.registry import find_study
from sparing.slim.evidence import certify, screen
from sparing.slim.options import Options
from sparing.slim.search import choose
from tests.environments import environment, lacks

GOOD, BAD = ("good", "fine", "great"), ("bad", "poor", "awful")
NEUTRAL = tuple(f"w{number}" for number in range(40))
ROWS = 620
# Few plans, few epochs, and every step of slim.
TINY = {
    "widths": (1.0, 0.5),
    "width_chances": (0.5, 0.5),
    "epochs": 1,
    "fixed_width_epochs": 1,
    "batches": (1, 4),
    "rounds": 1,
    "timed_examples": 24,
    "speed": 0.01,  # the largest plan is cut out, which has an exit
    "memory": False,
}
DIGITS = Options(
    model="vit",
    task="digits",
    task_options={"patch_size": 4},
    dense_epochs=3,
    floor=0.5,
    static_control=True,
    **{**TINY, "widths": (1.0,), "width_chances": (1.0,)},
)


def texts_of(count, seed=0):
    """Texts of 4 to 20 words; some are about good or bad things."""
    chance = random.Random(seed)
    texts: set[str] = set()
    while len(texts) < count:
        words = range(chance.randint(4, 20))
        texts.add(
            " ".join(chance.choice(GOOD + BAD if chance.random() < 0.4 else NEUTRAL) for _ in words)
        )
    return sorted(texts, key=lambda text: random.Random(text).random())


def label_of(text):
    """Whether more words are good than bad."""
    words = text.split()
    return int(sum(word in GOOD for word in words) > sum(word in BAD for word in words))


def save_toy(folder, layers=3):
    """Train a BERT of a few layers on such texts for seconds, and save it with its tokenizer."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *NEUTRAL]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=48,
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(60):
        texts = texts_of(48, seed=step + 1000)
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        loss = model(**batch, labels=torch.tensor(list(map(label_of, texts)))).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def only(*engines):
    """What replaces ``missing_packages``: as if the other engines were not installed."""
    hidden = {"onnx", "onnxruntime", "onnxscript"} if "onnxruntime" not in engines else set()
    hidden |= set() if "openvino" in engines else {"openvino", "nncf"}
    return lambda *packages: [package for package in packages if package in hidden]


def in_int8(forms, model):
    """What replaces ``fastest_of``: of slim the form in INT8; a toy is too small for its gain."""
    of_model = [form for form in forms if form.candidate.model == model]
    precision = "int8" if model == "slim" else "float32"
    return next((f for f in of_model if f.candidate.precision == precision), of_model[0])


def run_of(options, folder, *engines):
    """A run with these engines beside PyTorch, timed on few texts; all forms compete."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparing.export.forms.missing_packages", only(*engines))
        for module, count in ((choose, 8), (certify, 24)):
            patch.setattr(module, "SAMPLE", count)
            patch.setattr(module, "ROUNDS", 1)
        patch.setattr(screen, "MORE", 24)
        patch.setattr(screen, "SLOWER", float("inf"))
        patch.setattr(screen, "fastest_of", in_int8)
        result = find_study("slim").run(options, folder)
    # later tests may export forms there again
    assert result.failures or not (folder / "engines").exists()
    return result


def of_name(result, name, **labels):
    """The records of a name with these labels."""
    return [r for r in result.records if r.name == name and labels.items() <= r.labels.items()]


@pytest.fixture(autouse=True)
def _free_sizes(free_sizes):
    """Every test here has them."""


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory):
    """Python in an environment that has ONNX Runtime and tokenizers, and no PyTorch or sparing."""
    python = environment(tmp_path_factory.mktemp("bare") / "venv", "onnxruntime", "tokenizers")
    assert lacks(python, "torch", "transformers", "sparing")
    return python


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The folder of the tiny classifier."""
    return save_toy(tmp_path_factory.mktemp("toy") / "model")


@pytest.fixture(scope="session")
def texts_file(tmp_path_factory):
    """A file of texts without labels."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(texts_of(ROWS)) + "\n")
    return path


@pytest.fixture(scope="session")
def texts_options(toy, texts_file):
    """The options of the run of texts."""
    return Options(model=str(toy), task="", texts=str(texts_file), **TINY)


@pytest.fixture(scope="session")
def texts_run(texts_options, tmp_path_factory):
    """A run of texts without labels, in PyTorch and ONNX Runtime."""
    jaxtyping.config.update("jaxtyping_disable", True)
    return run_of(texts_options, tmp_path_factory.mktemp("run") / "texts", "onnxruntime")


@pytest.fixture(scope="session")
def images_run(tmp_path_factory):
    """A run of digits in four patches from a new model, in PyTorch alone, with the control."""
    return run_of(DIGITS, tmp_path_factory.mktemp("run") / "images")
