"""Wrappers around a transformers model: opened, or their inner model is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel

import sparing
from sparing.advise.model import open_subject
from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.swap import is_swapped
from sparing.transfer.unwrapping import unwrapped
from tests.tasks.tokenizers import SIZES, save_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
CONFIG = {"vocab_size": 90, **SIZES}
IDS = torch.arange(5, 21).reshape(2, 8)


def classifier():
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**CONFIG)).eval()


def compiled():
    return torch.compile(classifier(), backend="eager")


def lora():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"])
    return peft.get_peft_model(classifier(), config).eval()


def data_parallel():
    return nn.DataParallel(classifier())


def fake(kind, package, **parts):
    """An object of a class that is known by its name and package alone."""
    made = type(kind, (nn.Module,), {"__module__": f"{package}.inner"})()
    for name, part in parts.items():
        made.add_module(name, part)
    return made


def sentences():
    layers = nn.ModuleList([fake("Transformer", "x", auto_model=BertModel(BertConfig(**CONFIG)))])
    return fake("SentenceTransformer", "sentence_transformers", layers=layers)


def cross_encoder():
    return fake("CrossEncoder", "sentence_transformers", model=classifier())


@pytest.mark.parametrize("make", [compiled, lora, data_parallel, sentences, cross_encoder])
def test_known_wrappers_are_opened(make):
    model = make()
    inner = unwrapped(model)
    assert isinstance(inner, BertForSequenceClassification | BertModel)
    subject = open_subject(model)
    assert (subject.kind, subject.heads) == (type(inner).__name__, 2)
    report = sparing.swap(model, "linear")
    assert (len(report.swapped), is_swapped(inner)) == (2, True)
    sparing.unswap(model)
    assert not is_swapped(inner)


@pytest.mark.parametrize("make", [compiled, data_parallel, cross_encoder])
def test_adapt_and_prune_open_them_too(make):
    model = make()
    expected = unwrapped(model)(input_ids=IDS).logits
    torch.testing.assert_close(sparing.adapt(model)(input_ids=IDS).logits, expected)
    assert sparing.prune(model, {0: [1]}).removed == 1


@pytest.mark.parametrize(
    ("change", "inner"),
    [
        (lambda model: sparing.adapt(model), False),
        (lambda model: sparing.prune(model, {0: [1]}), False),
        (lambda model: sparing.adapt(model.get_base_model()), True),
    ],
)
def test_adapters_that_would_be_lost_are_refused(change, inner):
    with pytest.raises(Unsupported, match=r"not merged: give model\.merge_and_unload\(\)"):
        change(lora())


def test_adapters_that_are_merged_are_none():
    assert sparing.adapt(lora().merge_and_unload()).config.num_labels == 2


def test_an_unknown_wrapper_names_the_inner_model():
    wrapper = fake("Mine", "my_lab", parts=nn.ModuleList([classifier()]))
    for change in (
        lambda: sparing.swap(wrapper, "linear"),
        lambda: sparing.adapt(wrapper),
        lambda: sparing.prune(wrapper, {0: [1]}),
        lambda: sparing.advise(wrapper),
    ):
        with pytest.raises(Unsupported, match=r"Mine is a wrapper .* give model\.parts\[0\]"):
            change()
    with pytest.raises(UsageError, match="needs a transformers model"):
        sparing.swap(nn.Linear(2, 2), "linear")


def test_parameters_that_come_later_are_not_kept_in_step():
    parallel = type("DistributedDataParallel", (nn.Module,), {"__module__": "torch.nn.parallel"})()
    parallel.module = classifier()
    with pytest.raises(Unsupported, match=r"give model\.module, and wrap it afterwards"):
        sparing.swap(parallel, "linformer")
    assert sparing.adapt(parallel).config.num_labels == 2


def test_models_of_sentence_transformers(tmp_path):
    package = pytest.importorskip("sentence_transformers")
    classifier().save_pretrained(tmp_path / "model")
    save_tokenizer(tmp_path / "tokenizer")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    tokenizer.save_pretrained(tmp_path / "model")
    for kind in (package.SentenceTransformer, package.CrossEncoder):
        model = kind(str(tmp_path / "model"), device="cpu")
        assert len(sparing.swap(model, "linear").swapped) == 2, kind
        sparing.unswap(model)
        assert open_subject(model).heads == 2
