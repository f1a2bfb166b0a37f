"""Image tasks: from pictures and labels to splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.tasks._facts import Facts
from sparing.tasks._pictures import Pictures
from sparing.tasks._splits import stratified
from sparing.tasks.shared.scores import MANY
from sparing.tasks.shared.task import Examples, Task

VALIDATION = 5000
Sources = Sequence[Path | bytes | Tensor]


@dataclass(frozen=True)
class Part:
    """Pictures with their class numbers; ``keys`` name them and decide their split.

    ``boxes`` are those of the pictures' objects, where they are known.
    """

    sources: Sources
    labels: Sequence[int]
    keys: Sequence[str]
    boxes: Sequence[Sequence[float]] | None = None


@dataclass(frozen=True)
class Sizes:
    """The side of an image and of a patch in pixels, and the number of training examples."""

    image_size: int
    patch_size: int
    examples: int | None = None
    seed: int = 0


def image_task(
    name: str,
    facts: Facts,
    labels: tuple[str, ...],
    train: Part,
    test: Part,
    sizes: Sizes,
    validation: Part | None = None,
    notes: tuple[str, ...] = (),
) -> Task:
    """A task of colour images from -1 to 1, evaluated by top-1 and, from six classes on, top-5.

    Where validation is not given, it takes a tenth of the training images, at most 5,000, with the
    classes in proportion. Notes that begin with "subset" make the task a subset.
    """
    check_parts(name, sizes, train, test)
    held_out = 0 if validation else min(VALIDATION, len(train.labels) // 10)
    count = len(train.labels) - held_out if sizes.examples is None else sizes.examples
    checked, fitted = stratified(train.labels, train.keys, (held_out, count), sizes.seed)
    checking = validation or chosen(train, checked)
    return Task(
        name,
        "image",
        _examples(chosen(train, fitted), sizes.image_size),
        _examples(checking, sizes.image_size),
        _examples(test, sizes.image_size),
        labels=labels,
        tokens=(sizes.image_size // sizes.patch_size) ** 2 + 1,
        licence=facts.licence,
        source=facts.source,
        metric=facts.metric,
        metrics=facts.metrics if len(labels) > MANY else (facts.metric,),
        image_size=sizes.image_size,
        channels=3,
        patch_size=sizes.patch_size,
        subset=any(note.startswith("subset") for note in notes),
        notes=notes,
    )


def check_parts(name: str, sizes: Sizes, train: Part, test: Part) -> None:
    """Raise ``UsageError`` for sizes that do not fit, ``DataError`` if there are no pictures."""
    if sizes.image_size < 1 or sizes.patch_size < 1 or sizes.image_size % sizes.patch_size:
        raise UsageError(
            f"{name}: patch_size must divide image_size; got {sizes.patch_size} and "
            f"{sizes.image_size}"
        )
    for part, images in (("training", train), ("test", test)):
        if not images.labels:
            raise DataError(f"task {name}: there are no {part} pictures")


def chosen(part: Part, indices: Sequence[int]) -> Part:
    """The pictures with these indices, in this order."""
    return Part(
        [part.sources[index] for index in indices],
        [part.labels[index] for index in indices],
        [part.keys[index] for index in indices],
        None if part.boxes is None else [part.boxes[index] for index in indices],
    )


def cut_test(whole: Part, seed: int) -> tuple[Part, Part]:
    """Training and test pictures: a fifth for the test, with the classes in proportion."""
    share, count = len(whole.labels) // 5, len(whole.labels)
    test, rest = stratified(whole.labels, whole.keys, (share, count - share), seed)
    return chosen(whole, rest), chosen(whole, test)


def _examples(part: Part, size: int) -> Examples:
    labels = torch.tensor(list(part.labels), dtype=torch.long)
    boxes = None if part.boxes is None else torch.tensor(part.boxes, dtype=torch.float32)
    pixels = Pictures(part.sources, size, part.keys).read()
    return Examples("pixel_values", pixels, labels, boxes=boxes)


def from_pixels(pixels: UInt8[Tensor, "count 3 height width"], labels: Sequence[int]) -> Part:
    """A part from pixels in memory, named by their positions."""
    return Part(list(pixels), labels, [str(index) for index in range(len(labels))])
