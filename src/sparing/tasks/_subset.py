"""Notes on data of which only a part is there."""

from __future__ import annotations

from collections.abc import Mapping, Sized


def missing(read: Mapping[str, Sized], published: Mapping[str, int]) -> tuple[str, ...]:
    """What is not there of what was published, as a note on each split of images."""
    return tuple(
        f"subset: {split} holds {len(images)} of {published[split]} published images"
        for split, images in read.items()
        if len(images) < published[split]
    )
