"""Changed images: what may change, what may not, and that it follows from the step."""

from __future__ import annotations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.models import build_model
from sparing.tasks import load_task
from sparing.train.augmentation import Augmentation, Augmented
from sparing.train.contrastive import HardNegatives
from sparing.train.objective import LabelLoss, validator_of

STILL = Augmentation(flips=0.0, shift=0, brightness=0.0, contrast=0.0)


def images(count=6, side=8):
    return torch.rand(count, 3, side, side)


def test_nothing_asked_for_changes_nothing():
    given = images()
    assert torch.equal(STILL(given, 0), given)


def test_a_mirrored_image_is_mirrored():
    given = images()
    changed = Augmentation(1.0, 0, 0.0, 0.0)(given, 0)
    assert torch.equal(changed, given.flip(3))


def test_a_shift_moves_all_and_repeats_the_edge():
    given = images(40)
    changed = Augmentation(0.0, 2, 0.0, 0.0)(given, 0)
    shifts = set()
    for before, after in zip(given, changed, strict=True):
        positions = torch.arange(8)
        for down in range(-2, 3):
            for right in range(-2, 3):
                rows, columns = (positions + down).clamp(0, 7), (positions + right).clamp(0, 7)
                if torch.equal(before[:, rows][:, :, columns], after):
                    shifts.add((down, right))
                    break
    assert len(shifts) > 10


def test_brightness_and_contrast_keep_to_their_limits():
    given = images(200)
    raised = Augmentation(0.0, 0, 0.3, 0.0)(given, 0) - given
    spread = given.flatten(1).std(1, correction=0)
    ratio = raised[:, 0, 0, 0] / spread
    assert float(ratio.abs().max()) <= 0.3 + 1e-5
    assert float(ratio.abs().max()) > 0.25
    torch.testing.assert_close(raised, raised[:, :1, :1, :1].expand_as(raised), atol=1e-5, rtol=0)
    stretched = Augmentation(0.0, 0, 0.0, 0.3)(given, 0)
    mean = given.mean((1, 2, 3))
    torch.testing.assert_close(stretched.mean((1, 2, 3)), mean, atol=1e-5, rtol=0)
    ratio = stretched.flatten(1).std(1) / given.flatten(1).std(1)
    assert 0.69 < float(ratio.min()) < 0.75 < 1.25 < float(ratio.max()) < 1.31


def test_changes_follow_from_seed_and_step():
    given, change = images(), Augmentation()
    assert torch.equal(change(given, 1), change(given, 1))
    assert not torch.equal(change(given, 1), change(given, 2))
    assert not torch.equal(change(given, 1), Augmentation(seed=1)(given, 1))
    assert not torch.equal(change(given, "1000000001 a"), change(given, "2000000001 a"))


def test_the_loss_is_that_of_changed_images():
    task = load_task("digits", patch_size=2)
    model = build_model("vit", task, layers=1, width=16, heads=2).eval()
    batch = task.collate([task.train[n] for n in range(5)])
    change = Augmentation()
    loss = Augmented(LabelLoss(), change)(model, batch, 3)
    by_hand = LabelLoss()(model, {**batch, "pixel_values": change(batch["pixel_values"], 3)}, 3)
    assert torch.equal(loss, by_hand)


def test_what_is_inside_still_validates():
    inner = HardNegatives()
    assert validator_of(Augmented(inner)) is inner
    assert validator_of(Augmented(LabelLoss())) is None


def test_texts_cannot_be_augmented():
    with pytest.raises(UsageError, match="images"):
        Augmented(LabelLoss())(torch.nn.Identity(), {"input_ids": torch.ones(1, 2)}, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"flips": 1.5}, "flips"), ({"shift": -1}, "shift"), ({"contrast": 1.0}, "contrast")],
)
def test_impossible_changes_are_named(options, words):
    with pytest.raises(UsageError, match=words):
        Augmentation(**options)


def test_boxes_that_would_stay_behind_are_refused():
    batch = {"pixel_values": images(), "boxes": torch.zeros(6, 4)}
    with pytest.raises(UsageError, match="boxes do not move with the image"):
        Augmented(LabelLoss())(torch.nn.Identity(), batch, 0)
