"""Handwritten digits, 8 x 8 pixels: small enough to train in seconds, and part of scikit-learn."""

from __future__ import annotations

from pathlib import Path

import torch

from sparing.core.errors import UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._splits import stratified
from sparing.tasks.shared.task import Examples, Task

SIZE = 8
FACTS = Facts(
    metrics=("accuracy",),
    licence="CC BY 4.0",
    source="UCI Optical Recognition of Handwritten Digits (Alpaydin, Kaynak 1998), doi "
    "10.24432/C50P49, as shipped by scikit-learn",
    splits="360 of 1,797 images",
    chance=37 / 360,
)


def load(*, data: Path | None = None, patch_size: int = 1, seed: int = 0) -> Task:
    """1,797 real images of ten classes, split 1,167 / 270 / 360 with the classes in proportion.

    ``patch_size`` 1 makes each pixel a token (64 and the class token), 2 gives 16, 4 gives 4.
    Pixels run from 0 to 16 in the source and are scaled to run from -1 to 1. ``data`` is not
    needed.

    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998; its test
    part, as scikit-learn ships it.
    """
    if patch_size not in (1, 2, 4, 8):
        raise UsageError(f"digits: patch_size must be 1, 2, 4 or 8; got {patch_size!r}")
    from sklearn.datasets import load_digits

    images, numbers = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, SIZE, SIZE) / 8 - 1
    labels = torch.tensor(numbers, dtype=torch.long)
    whole = Examples("pixel_values", pixels, labels)
    keys = [str(index) for index in range(len(whole))]
    test, validation, train = stratified(
        labels.tolist(), keys, (360, 270, len(whole) - 360 - 270), seed
    )
    return Task(
        name="digits",
        kind="image",
        train=whole.subset(train),
        validation=whole.subset(validation),
        test=whole.subset(test),
        labels=tuple(str(digit) for digit in range(10)),
        tokens=(SIZE // patch_size) ** 2 + 1,
        licence=FACTS.licence,
        source=FACTS.source,
        image_size=SIZE,
        channels=1,
        patch_size=patch_size,
    )
