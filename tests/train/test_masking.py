"""Masks, the loss over what they hide, and what is left of it after some training."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from transformers import ViTConfig, ViTForMaskedImageModeling

from sparing.core.errors import Unsupported, UsageError
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train import Recipe, train
from sparing.train.masking import MaskedPatches, Masking, pixel_masks
from sparing.transfer.stages import masked_form


@pytest.fixture(scope="module")
def task():
    whole = load_task("digits", patch_size=2)
    return replace(whole, train=whole.train.subset(list(range(300))))


def small(task, seed=0):
    return masked_form(build_model("vit", task, layers=2, width=16, heads=2, seed=seed))


@pytest.mark.parametrize("kind", ["random", "block"])
@pytest.mark.parametrize(
    ("rows", "columns", "share"), [(4, 4, 0.15), (14, 14, 0.15), (3, 5, 0.6), (2, 1, 0.9)]
)
def test_every_mask_hides_as_many(kind, rows, columns, share):
    masks = Masking(share, kind).masks(50, rows, columns, "a")
    hidden = min(rows * columns - 1, max(1, round(share * rows * columns)))
    assert masks.sum(1).tolist() == [hidden] * 50
    if rows * columns > 4:
        assert len({tuple(mask.tolist()) for mask in masks}) > 5


def test_masks_follow_from_seed_and_name():
    masking = Masking(0.4)
    first = masking.masks(5, 4, 4, "1")
    assert torch.equal(first, masking.masks(5, 4, 4, "1"))
    assert not torch.equal(first, masking.masks(5, 4, 4, "2"))
    assert not torch.equal(first, replace(masking, seed=1).masks(5, 4, 4, "1"))


def test_blocks_hang_together_and_scattered_patches_do_not():
    def touching(kind):
        masks = Masking(0.15, kind).masks(200, 14, 14, "a").view(200, 14, 14)
        pairs = (masks[:, 1:] & masks[:, :-1]).sum() + (masks[:, :, 1:] & masks[:, :, :-1]).sum()
        return int(pairs) / int(masks.sum())

    assert touching("block") > 1.2 > 0.5 > touching("random")


def test_every_patch_is_hidden_as_often_by_chance():
    often = Masking(0.25).masks(4000, 4, 4, "a").double().mean(0)
    assert float((often - 0.25).abs().max()) < 0.03


def test_pixels_of_masked_patches():
    masks = torch.tensor([[True, False, False, True]])
    mask = pixel_masks(masks, torch.zeros(1, 3, 4, 4))[0, 0]
    expected = torch.zeros(4, 4, dtype=torch.bool)
    expected[:2, :2] = expected[2:, 2:] = True
    assert torch.equal(mask, expected)


def test_the_loss_looks_at_masked_pixels_alone(task):
    model = small(task).eval()
    batch = task.collate([task.train[n] for n in range(3)])
    objective = MaskedPatches(Masking(0.3))
    loss = objective(model, batch, 7)
    pixels = batch["pixel_values"]
    masks = objective.masking.masks(3, 4, 4, "7")
    made = model(pixel_values=pixels, bool_masked_pos=masks).reconstruction
    total = count = 0
    for image, patch in itertools.product(range(3), range(16)):
        if masks[image, patch]:
            row, column = 2 * (patch // 4), 2 * (patch % 4)
            part = (slice(row, row + 2), slice(column, column + 2))
            total += float((made - pixels)[image, 0][part].detach().abs().sum())
            count += 4
    assert loss.item() == pytest.approx(total / count, rel=1e-4)


def test_training_explains_what_was_not_seen(task, tmp_path):
    model, objective = small(task), MaskedPatches()
    before = objective.validate(model, task, 64).score
    recipe = Recipe(epochs=4, batch_size=32, learning_rate=3e-3)
    result = train(model, task, recipe, output_dir=tmp_path / "run", objective=objective)
    assert result.metric == "explained"
    assert result.validation_accuracy is None
    assert result.validation_score > max(0.15, before + 0.1)
    after = objective.validate(model, task, 37)
    assert after.metric == "explained"
    assert after.right is None
    assert after.count == len(task.validation)


def test_an_interrupted_pretraining_ends_with_the_same_bits(task, tmp_path):
    recipe = Recipe(epochs=2, batch_size=64, save_every_steps=2)
    whole = small(task)
    train(whole, task, recipe, output_dir=tmp_path / "whole", objective=MaskedPatches())

    def stop(fraction, text):
        if fraction >= 0.5:
            raise KeyboardInterrupt

    broken = small(task)
    with pytest.raises(KeyboardInterrupt):
        train(
            broken,
            task,
            recipe,
            output_dir=tmp_path / "broken",
            objective=MaskedPatches(),
            on_progress=stop,
        )
    again = small(task, seed=1)
    train(again, task, recipe, output_dir=tmp_path / "broken", objective=MaskedPatches())
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_classifier_is_refused_with_the_name_of_what_is_wanted(task):
    model = build_model("vit", task, layers=1, width=16, heads=2)
    batch = task.collate([task.train[0]])
    with pytest.raises(Unsupported, match="ForMaskedImageModeling"):
        MaskedPatches()(model, batch, 0)


def test_one_patch_cannot_be_masked():
    config = ViTConfig(image_size=8, patch_size=8, num_channels=1, encoder_stride=8, hidden_size=16)
    config.num_hidden_layers, config.num_attention_heads, config.intermediate_size = 1, 2, 16
    model = ViTForMaskedImageModeling(config)
    with pytest.raises(UsageError, match="two patches"):
        MaskedPatches()(model, {"pixel_values": torch.zeros(2, 1, 8, 8)}, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"share": 0.0}, "share"), ({"share": 1.0}, "share"), ({"kind": "blocks"}, "block")],
)
def test_impossible_masks_are_named(options, words):
    with pytest.raises(UsageError, match=words):
        Masking(**options)
