from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.tasks import load_task, names


def test_names_are_public_names():
    glue = {"cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"}
    images = {
        "cifar10",
        "cifar100",
        "digits",
        "fashion-mnist",
        "flowers",
        "image-folder",
        "mnist",
        "scenes",
        "tiny-imagenet",
    }
    assert set(names()) == glue | images | {
        *("arithmetic", "entities", "imdb", "listops", "pathfinder", "retrieval", "squad"),
        *("sts", "text", "trec-qa", "wnut17"),
    }
    assert names() == sorted(names())


def test_listing_names_imports_nothing_heavy():
    code = (
        "import sys; from sparing.tasks import names; names();"
        "print([name for name in ('torch', 'numpy', 'sklearn', 'datasets') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "[]"


def test_a_misspelt_name_or_option_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        load_task("digit")
    with pytest.raises(UsageError, match="did you mean 'fashion-mnist'"):
        load_task("fashion-mnis")
    with pytest.raises(UsageError, match="no option 'patchsize'; did you mean 'patch_size'"):
        load_task("digits", patchsize=2)


def test_digits_is_split_once_and_for_all():
    task = load_task("digits")
    sizes = [len(split) for split in (task.train, task.validation, task.test)]
    assert sizes == [1167, 270, 360]
    rows = torch.cat(
        [split.inputs.flatten(1) for split in (task.train, task.validation, task.test)]
    )
    assert len(rows.unique(dim=0)) == 1797
    again = load_task("digits")
    assert torch.equal(task.test.inputs, again.test.inputs)
    assert task.test.labels[:8].tolist() == [5, 4, 9, 9, 5, 1, 9, 5]
    assert not torch.equal(task.test.labels, load_task("digits", seed=1).test.labels)


def test_digits_has_its_classes_in_proportion_and_its_chance_level():
    task = load_task("digits")
    whole = torch.bincount(torch.cat([task.train.labels, task.validation.labels, task.test.labels]))
    for split in (task.train, task.validation, task.test):
        share = torch.bincount(split.labels) / len(split)
        assert (share - whole / 1797).abs().max() < 0.005
    assert task.chance == pytest.approx(37 / 360)
    assert task.classes == 10


@pytest.mark.parametrize(("patch_size", "tokens"), [(1, 65), (2, 17), (4, 5)])
def test_digits_patches(patch_size, tokens):
    task = load_task("digits", patch_size=patch_size)
    assert task.tokens == tokens
    assert (task.image_size // task.patch_size) ** 2 + 1 == tokens
    assert (task.train.inputs.min(), task.train.inputs.max()) == (-1, 1)


def test_digits_refuses_patches_that_do_not_tile():
    with pytest.raises(UsageError, match="patch_size must be 1, 2, 4 or 8; got 3"):
        load_task("digits", patch_size=3)


def test_batches_of_images_are_stacked():
    task = load_task("digits")
    batch = task.collate([task.train[3], task.train[5]])
    assert torch.equal(batch["pixel_values"], task.train.inputs[[3, 5]])
    assert torch.equal(batch["labels"], task.train.labels[[3, 5]])


def test_batches_of_tokens_are_padded_to_their_own_longest():
    task = load_task("listops", examples=20, validation_examples=1, test_examples=1)
    rows = [task.train[index] for index in range(4)]
    batch = task.collate(rows)
    lengths = [len(row["input_ids"]) for row in rows]
    assert batch["input_ids"].shape == (4, max(lengths))
    assert batch["attention_mask"].sum(1).tolist() == lengths
    for line, keep, row in zip(batch["input_ids"], batch["attention_mask"], rows, strict=True):
        assert torch.equal(line[keep.bool()], row["input_ids"])
        assert (line[~keep.bool()] == task.pad_id).all()


def test_an_empty_batch_and_an_unknown_split_are_refused():
    task = load_task("digits")
    with pytest.raises(UsageError, match="at least one example"):
        task.collate([])
    with pytest.raises(UsageError, match="did you mean 'validation'"):
        task.split("validate")
