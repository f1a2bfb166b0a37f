"""Images as sequences: one token a pixel, its grey level, row by row behind a class token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from sparing.tasks._facts import Facts
from sparing.tasks._images import VALIDATION, Part, Sizes, check_parts
from sparing.tasks._pictures import Pictures
from sparing.tasks._splits import stratified
from sparing.tasks.shared.task import Examples, Task

PAD, CLASS, FIRST = 0, 1, 2
LEVELS = 256
# ITU-R BT.601: the weights of red, green and blue.
LUMINANCE = (0.299, 0.587, 0.114)


def grey(pixels: UInt8[Tensor, "count 3 height width"]) -> UInt8[Tensor, "count height width"]:
    """Grey levels of colours."""
    weights = torch.tensor(LUMINANCE)[:, None, None]
    return (pixels.float() * weights).sum(1).round().to(torch.uint8)


def pixel_rows(images: UInt8[Tensor, "count height width"]) -> Int[Tensor, "count tokens"]:
    """Token numbers of grey images."""
    rows = images.flatten(1).long() + FIRST
    return torch.cat([torch.full_like(rows[:, :1], CLASS), rows], 1)


def pixel_task(
    name: str,
    facts: Facts,
    labels: tuple[str, ...],
    splits: Mapping[str, Examples],
    side: int,
    notes: tuple[str, ...] = (),
) -> Task:
    """A task of such sequences, evaluated by accuracy."""
    return Task(
        name,
        "tokens",
        splits["train"],
        splits["validation"],
        splits["test"],
        labels=labels,
        tokens=side**2 + 1,
        licence=facts.licence,
        source=facts.source,
        vocabulary=LEVELS + FIRST,
        pad_id=PAD,
        subset=any(note.startswith("subset") for note in notes),
        notes=notes,
    )


def sequence_task(
    name: str,
    facts: Facts,
    labels: tuple[str, ...],
    train: Part,
    test: Part,
    sizes: Sizes,
    notes: tuple[str, ...],
) -> Task:
    """Pictures as sequences; validation is cut from training images as in ``image_task``."""
    check_parts(name, replace(sizes, patch_size=1), train, test)
    held_out = min(VALIDATION, len(train.labels) // 10)
    count = len(train.labels) - held_out if sizes.examples is None else sizes.examples
    checked, fitted = stratified(train.labels, train.keys, (held_out, count), sizes.seed)
    every = range(len(test.labels))
    splits = {
        split: _sequences(part, places, sizes.image_size)
        for split, part, places in (
            ("train", train, fitted),
            ("validation", train, checked),
            ("test", test, every),
        )
    }
    return pixel_task(name, facts, labels, splits, sizes.image_size, notes)


def _sequences(part: Part, positions: Sequence[int], side: int) -> Examples:
    """The images at these positions; the task reads their pixels at one size."""
    pictures = Pictures(part.sources, side, part.keys).subset(positions)
    listed = [pictures[index] for index in range(len(pictures))]
    pixels = torch.stack(listed) if listed else torch.empty(0, 3, side, side)
    raw = ((pixels + 1) / 2 * 255).round().clamp(0, 255).to(torch.uint8)
    labels = torch.tensor([part.labels[position] for position in positions], dtype=torch.long)
    return Examples("input_ids", pixel_rows(grey(raw)), labels)
