"""Learning without labels: rebuild the patches of an image that were masked."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.ranks import over_ranks, whole_batch
from sparing.tasks import Task
from sparing.train.evaluation import Evaluation, evaluating

KINDS = ("random", "block")
METRIC = "explained"
# A block's sides differ by no more than this factor, as in BEiT (arXiv 2106.08254, section 2.3).
ASPECT = 0.3
LEAST_BLOCK = 2
PIXELS_ADDED = 1e-5  # by transformers to the masked pixels, so that none is no division by zero


@dataclass(frozen=True)
class Masking:
    """Which patches are hidden: a ``share`` of them, one by one ("random") or in rectangles."""

    share: float = 0.15
    kind: str = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UsageError(f"masking: share must be between 0 and 1; got {self.share}")
        require_choice("masking", "kind", self.kind, KINDS)

    def masks(
        self, count: int, rows: int, columns: int, name: str
    ) -> Bool[Tensor, "count patches"]:
        """Masks of ``count`` images, by seed and name; each hides equally many patches."""
        if rows * columns < 2:
            raise UsageError("masking needs images of two patches or more")
        chance = random.Random(f"{self.seed}:{name}")
        hidden = min(rows * columns - 1, max(1, round(self.share * rows * columns)))
        draw = _scattered if self.kind == "random" else _blocks
        masks = torch.zeros(count, rows * columns, dtype=torch.bool)
        for mask in masks:
            mask[draw(chance, rows, columns, hidden)] = True
        return masks


def _scattered(chance: random.Random, rows: int, columns: int, hidden: int) -> list[int]:
    return chance.sample(range(rows * columns), hidden)


def _blocks(chance: random.Random, rows: int, columns: int, hidden: int) -> list[int]:
    """Rectangles at random positions until enough patches are covered; the last one is cut."""
    hidden_patches: dict[int, None] = {}
    while len(hidden_patches) < hidden:
        area = chance.uniform(
            min(LEAST_BLOCK, hidden - len(hidden_patches)), hidden - len(hidden_patches)
        )
        ratio = math.exp(chance.uniform(math.log(ASPECT), -math.log(ASPECT)))
        height = min(rows, max(1, round(math.sqrt(area * ratio))))
        width = min(columns, max(1, round(math.sqrt(area / ratio))))
        top, left = chance.randint(0, rows - height), chance.randint(0, columns - width)
        for index in range(height * width):
            if len(hidden_patches) < hidden:
                hidden_patches[(top + index // width) * columns + left + index % width] = None
    return list(hidden_patches)


class MaskedPatches:
    """The distance of rebuilt pixels from the real ones, over masked patches alone.

    Formula: sum_{masked p} |x_p - y_p| / (masked pixels times channels), the loss of transformers'
    ``ViTForMaskedImageModeling``. It ignores the task's labels.

    Source: Xie et al., 2022 (SimMIM), arXiv 2111.09886, section 3; the share of 0.15 is that of
    HuggingGreen (2023), section 3. Validation masks are sampled once with the seed. The score,
    "explained", is 1 minus that distance over the distance of each image's own mean colour. 0 means
    that nothing was learnt, 1 that everything is rebuilt.
    """

    teacher: nn.Module | None = None
    metric = METRIC
    splits = True

    def __init__(self, masking: Masking | None = None) -> None:
        self.masking = masking or Masking()

    def describe(self) -> dict[str, Any]:
        """The masking."""
        return {"masking": asdict(self.masking)}

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch; raises ``Unsupported`` for a model that rebuilds nothing."""
        pixels = batch["pixel_values"]
        whole, here = whole_batch(len(pixels))
        masks = self._masks(model, pixels, step, whole)[here]
        loss: Tensor = model(pixel_values=pixels, bool_masked_pos=masks).loss
        # the model divides by its masked pixels and a little more, the same number in each image
        hidden = int(pixel_masks(masks[:1], pixels[:1]).sum())
        counts = hidden * torch.tensor([len(pixels), whole]) + PIXELS_ADDED  # float32, as there
        share, everything = counts.tolist()
        factor = (share * whole) / (len(pixels) * everything)  # exactly 1 in one process
        return over_ranks(loss * factor, len(pixels))

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """The explained share of the masked pixels of the validation images."""
        with evaluating(model), torch.inference_mode():
            parts = [torch.stack(batch) for batch in self._errors(model, task, batch_size)]
        errors, plain = torch.cat(parts, 1).double() if parts else torch.zeros(2, 0)
        explained = 1 - errors.mean() / plain.mean().clamp_min(1e-12)
        return Evaluation(
            metric=METRIC,
            scores={METRIC: float(explained)},
            loss=float(errors.mean()),
            predictions=errors.tolist(),
            right=None,
        )

    def _errors(self, model: nn.Module, task: Task, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Each image's error, and that of its mean colour, batch by batch."""
        examples = task.validation
        if not len(examples):
            raise UsageError(f"task {task.name} has no validation images")
        device = next(model.parameters()).device
        for first in range(0, len(examples), size):
            indices = range(first, min(first + size, len(examples)))
            batch = task.collate([examples[index] for index in indices])
            pixels = batch["pixel_values"].to(device)
            masks = self._masks(model, pixels, f"validation {first}", len(pixels))
            made = model(pixel_values=pixels, bool_masked_pos=masks).reconstruction
            hidden = pixel_masks(masks, pixels)
            mean = pixels.mean((2, 3), keepdim=True)
            yield _distance(made, pixels, hidden), _distance(mean, pixels, hidden)

    def _masks(self, model: nn.Module, pixels: Tensor, name: int | str, count: int) -> Tensor:
        config: Any = model.config
        if not type(model).__name__.endswith("ForMaskedImageModeling"):
            raise Unsupported(
                f"{type(model).__name__} rebuilds no patches: take one ...ForMaskedImageModeling"
            )
        rows, columns = (side // int(config.patch_size) for side in pixels.shape[2:])
        return self.masking.masks(count, rows, columns, str(name)).to(pixels.device)


def pixel_masks(
    masks: Bool[Tensor, "batch patches"], pixels: Float[Tensor, "batch channels height width"]
) -> Bool[Tensor, "batch 1 height width"]:
    """The pixels of masked patches of square images."""
    side = math.isqrt(masks.shape[1])
    size = pixels.shape[2] // side
    grid = masks.view(len(masks), 1, side, side)
    return grid.repeat_interleave(size, 2).repeat_interleave(size, 3)


def _distance(
    made: Tensor, pixels: Tensor, hidden: Bool[Tensor, "batch 1 height width"]
) -> Float[Tensor, " batch"]:
    """The mean absolute difference over hidden pixels, image by image."""
    errors = (made - pixels).abs().mean(1, keepdim=True) * hidden
    return errors.sum((1, 2, 3)) / hidden.sum((1, 2, 3))
