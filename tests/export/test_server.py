"""The page's lines for a server, without sparing and PyTorch, answer as an opened chain does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from sparing.agree.model import open_text_model
from sparing.export.folder import copy_chain, export_chain, open_chain
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import segments

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "export.md"
BLOCK = re.compile(r"^```python\n((?:(?!^```).)*InferenceSession.*?)^```", re.MULTILINE | re.DOTALL)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
LONGEST = 12
TEXTS = [" ".join(WORDS[5 + start : 8 + 2 * start]) for start in range(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    BertTokenizer({word: number for number, word in enumerate(WORDS)}).save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    words = {"vocab_size": len(WORDS), "max_position_embeddings": LONGEST}
    config = BertConfig(**sizes, **words, num_hidden_layers=2, initializer_range=0.4)
    torch.manual_seed(0)
    model = adapt(BertForSequenceClassification(config).eval(), exits=[1])
    model.plan = dataclasses.replace(model.plan, exits=(1,), threshold=0.5)
    given = {"input_ids": torch.randint(5, 20, (2, 8))}
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    given["token_type_ids"] = torch.zeros_like(given["input_ids"])
    paths = export_chain(segments(model), given, folder / "parts", longest=LONGEST)
    exits = open_chain(folder / "parts").every_exit(_read(folder, TEXTS, "pt"))
    sure = exits.softmax(-1).amax(-1)[:, 0].sort().values
    middle = float(sure[9:11].mean())  # between two texts: rounding decides nothing
    copy_chain(paths, folder, threshold=middle, longest=LONGEST)
    return folder


def _read(folder, texts, kind):
    tokenizer = BertTokenizer.from_pretrained(folder)
    options = {"padding": True, "truncation": True, "max_length": LONGEST}
    return tokenizer(texts, return_tensors=kind, **options)


def test_numpy_alone_answers_as_the_chain(folder):
    names = {}
    (block,) = BLOCK.findall(PAGE.read_text())
    assert "torch" not in block
    assert "sparing" not in block
    exec(compile(block, PAGE.name, "exec"), names)
    opened = names["open_classifier"](folder)
    chain, left = open_chain(folder), set()
    for text in (text for text in TEXTS if len(text.split()) < LONGEST - 1):
        logits, places = chain(_read(folder, [text], "np"))
        ours, number = names["classify"](text, *opened)
        np.testing.assert_array_equal(ours, logits[0])
        assert number == places[0]
        left.add(number)
    assert left == {0, 1}


def test_other_readers_see_an_ordinary_model(folder):
    """The threshold of the file counts where a reader knows nothing of exits."""
    chain, file = open_chain(folder), open_text_model(str(folder / "onnx" / "model.onnx"))
    inputs = _read(folder, TEXTS, "np")
    logits, places = chain(inputs)
    assert set(places.tolist()) == {0, 1}
    given = {name: inputs[name] for name in file.takes}
    np.testing.assert_array_equal(file.run(given), logits)
    assert (file.engine, file.labels) == ("onnxruntime", None)
