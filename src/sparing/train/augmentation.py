"""Images slightly changed at every step: mirrored, shifted, brighter or paler; tensors only."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError
from sparing.core.ranks import whole_batch
from sparing.train.objective import Objective

Images = Float[Tensor, "batch channels height width"]


@dataclass(frozen=True)
class Augmentation:
    """The possible changes of an image, random for each image.

    ``flips`` is the probability of mirroring. ``shift`` is the largest move up, down, left and
    right in pixels (the edge is repeated outside). ``brightness`` is the largest change of the
    pixels, in deviations of the image; ``contrast`` the largest change of their distance from the
    mean.
    """

    flips: float = 0.5
    shift: int = 4
    brightness: float = 0.2
    contrast: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.flips <= 1:
            raise UsageError(f"augmentation: flips must be in [0, 1]; got {self.flips}")
        if self.shift < 0 or self.brightness < 0 or not 0 <= self.contrast < 1:
            raise UsageError(
                "augmentation: shift and brightness must not be negative, contrast is in [0, 1)"
            )

    def __call__(self, images: Images, name: int | str) -> Images:
        """Changed images; a function of the images, the seed and the name alone.

        In several processes each image changes as in one.
        """
        drawn = torch.Generator().manual_seed(random.Random(f"{self.seed}:{name}").getrandbits(63))
        images = self._moved(images, drawn)
        if not self.brightness and not self.contrast:
            return images
        mean = images.mean((1, 2, 3), keepdim=True)
        spread = (images - mean).square().mean((1, 2, 3), keepdim=True).sqrt()
        raised, stretched = (_even(images, drawn) for _ in range(2))
        return (
            mean
            + (images - mean) * (1 + self.contrast * stretched)
            + self.brightness * raised * spread
        )

    def _moved(self, images: Images, drawn: torch.Generator) -> Images:
        """Mirrored and shifted: every pixel is read from its source position."""
        count, _, height, width = images.shape
        whole, here = whole_batch(count)
        mirrored = (torch.rand(whole, generator=drawn) < self.flips)[here]
        moves = torch.randint(-self.shift, self.shift + 1, (2, whole), generator=drawn)
        down, right = moves[:, here]
        rows = (torch.arange(height) + down[:, None]).clamp(0, height - 1)
        columns = torch.arange(width).expand(count, -1)
        columns = columns.flip(1).where(mirrored[:, None], columns)
        columns = (columns + right[:, None]).clamp(0, width - 1)
        rows, columns = rows.to(images.device), columns.to(images.device)
        picked = images.gather(2, rows[:, None, :, None].expand_as(images))
        return picked.gather(3, columns[:, None, None, :].expand_as(images))


def _even(images: Tensor, drawn: torch.Generator) -> Tensor:
    """One number from -1 to 1 for each image."""
    whole, here = whole_batch(len(images))
    numbers = 2 * torch.rand((whole, 1, 1, 1), generator=drawn)[here] - 1
    return numbers.to(images.device, images.dtype)


class Augmented:
    """A loss of changed images; validation sees the unchanged ones."""

    def __init__(self, inner: Objective, augmentation: Augmentation | None = None) -> None:
        self.inner, self.augmentation = inner, augmentation or Augmentation()

    @property
    def teacher(self) -> nn.Module | None:
        """The inner loss's teacher."""
        return self.inner.teacher

    def describe(self) -> dict[str, Any]:
        """The inner loss's description, and the possible changes."""
        return {**self.inner.describe(), "augmentation": asdict(self.augmentation)}

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The inner loss; ``UsageError`` for other inputs than images, and for boxes.

        Boxes would not move with the image.
        """
        if "pixel_values" not in batch:
            raise UsageError("only images can be augmented")
        if "boxes" in batch and (self.augmentation.flips or self.augmentation.shift):
            raise UsageError(
                "boxes do not move with the image: set flips and shift to 0 for this task"
            )
        changed = self.augmentation(batch["pixel_values"], step)
        return self.inner(model, {**batch, "pixel_values": changed}, step)
