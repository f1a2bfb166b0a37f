"""A model built from a swapped model's configuration has the attention of its class."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import sparing
from tests.transfer.classifiers import dense, texts

GIVEN = texts([9, 9])


@pytest.fixture
def teacher():
    model = dense()
    sparing.swap(model, "linear")
    return model


def _student(config):
    model = BertForSequenceClassification(config).double().eval()
    model.load_state_dict(dense().state_dict())
    return model


def _from_pretrained(teacher, folder):
    dense().save_pretrained(folder)
    return BertForSequenceClassification.from_pretrained(folder, config=teacher.config)


BUILDERS = {
    "the configuration itself": lambda teacher, _: _student(teacher.config),
    "a copy": lambda teacher, _: _student(copy.deepcopy(teacher.config)),
    "a pickled copy": lambda teacher, _: _student(pickle.loads(pickle.dumps(teacher.config))),
    "its values": lambda teacher, _: _student(BertConfig.from_dict(teacher.config.to_dict())),
    "from_pretrained": _from_pretrained,
}


@pytest.mark.filterwarnings("ignore:.*transformers' own attention")
@pytest.mark.parametrize("builder", BUILDERS)
def test_own_attention_is_what_the_class_would_use(builder, teacher, tmp_path):
    student = BUILDERS[builder](teacher, tmp_path)
    expected = dense()(**GIVEN).logits
    sparing.swap(student, "linear")
    assert not torch.equal(student(**GIVEN).logits, expected)
    eager_logits = student(**GIVEN, output_attentions=True).logits
    torch.testing.assert_close(eager_logits, expected)
    square = torch.ones(2, 1, 9, 9, dtype=torch.bool)
    masked = student(input_ids=GIVEN["input_ids"], attention_mask=square).logits
    torch.testing.assert_close(masked, expected)
    sparing.unswap(student)
    torch.testing.assert_close(student(**GIVEN).logits, expected)
    assert student.config._attn_implementation == "sdpa"
    assert teacher.config._attn_implementation == "sparing"


def test_without_mechanisms_there_is_one_clear_line(teacher):
    student = _student(teacher.config)
    with pytest.raises(sparing.UsageError, match=r"call sparing.swap.*or sparing.unswap") as error:
        student(**GIVEN)
    assert "\n" not in str(error.value)
    before = teacher(**GIVEN).logits
    sparing.unswap(student)
    assert torch.equal(student(**GIVEN).logits, dense()(**GIVEN).logits)
    assert torch.equal(teacher(**GIVEN).logits, before)


def test_an_adaptive_form_of_a_student(teacher):
    logits = sparing.adapt(_student(teacher.config))(**GIVEN).logits
    torch.testing.assert_close(logits, dense()(**GIVEN).logits)


@pytest.mark.parametrize("mechanism", ["linear", "linformer", "adaptive"])
def test_a_pickled_swapped_model(mechanism):
    model = dense()
    sparing.swap(model, mechanism)
    loaded = pickle.loads(pickle.dumps(model))
    expected = model(**GIVEN).logits
    sparing.unswap(model)
    assert torch.equal(loaded(**GIVEN).logits, expected)
    sparing.unswap(loaded)
    assert torch.equal(loaded(**GIVEN).logits, dense()(**GIVEN).logits)
