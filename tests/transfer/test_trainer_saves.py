"""An adaptive model under transformers' own Trainer, which saves in its own way."""

from __future__ import annotations

import pytest
import torch
from transformers import Trainer, TrainingArguments

import sparing
from sparing.core.errors import UsageError
from tests.transfer.classifiers import dense, texts


def test_trainer_saves_an_adaptive_model(tmp_path):
    model = sparing.adapt(dense("bert", dtype=torch.float32))
    given = texts([5, 5, 5, 5])
    rows = [
        {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor(n % 3)}
        for n, ids in enumerate(given["input_ids"])
    ]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    loaded = sparing.load(tmp_path / "saved")
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_what_would_be_pushed_says_that_it_is_not(tmp_path):
    model = sparing.adapt(dense("bert"))
    with pytest.raises(UsageError, match="upload the folder"):
        model.save_pretrained(tmp_path / "saved", push_to_hub=True)
    assert not (tmp_path / "saved").exists()


def test_other_processes_write_nothing(tmp_path):
    model = sparing.adapt(dense("bert"))
    model.save_pretrained(tmp_path / "saved", is_main_process=False)
    assert not (tmp_path / "saved").exists()
