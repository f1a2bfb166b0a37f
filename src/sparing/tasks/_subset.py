"""Notes on data that is only partly present."""

from __future__ import annotations

from collections.abc import Mapping, Sized


def missing(read: Mapping[str, Sized], published: Mapping[str, int]) -> tuple[str, ...]:
    """A note on each split of images that has fewer than published."""
    return tuple(
        f"subset: {split} holds {len(images)} of {published[split]} published images"
        for split, images in read.items()
        if len(images) < published[split]
    )
