"""Contrastive learning: images of one kind near each other, the nearest of another kind far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sparing.core.errors import UsageError, require_choice
from sparing.core.mechanism import without_autocast
from sparing.core.ranks import gathered, whole_batch
from sparing.mechanisms.shared.arithmetic import wide
from sparing.tasks import Examples, Task
from sparing.train.augmentation import Augmentation
from sparing.train.evaluation import Evaluation, evaluating

POSITIVES = ("views", "classes")
METRIC = "neighbour_accuracy"
GALLERY = 2000


class HardNegatives:
    """A margin between positives and the nearest negative.

    Formula: mean over anchors a of mean over positives p of
    max(0, m + d(a, p) - min over negatives n of d(a, n)).

    Symbols: d is the Euclidean distance of class tokens at unit length, m is ``margin``. With
    ``positives="classes"`` an image's positives are the others of its class and its negatives those
    of another. With "views" each image is changed twice, the two are each other's positives, and
    all other images are negatives, whatever their labels. An image is never its own positive or
    negative; anchors without a positive or a negative have no loss.

    Source: Schroff et al., 2015 (FaceNet), arXiv 1503.03832, equation 3, and section 3.2 for the
    hardest negative; Chen et al., 2020, arXiv 2002.05709, section 2.1, for views. What differs from
    HuggingGreen's published code: it took the farthest negative, compared images with themselves,
    and read class 1 as "alike".
    """

    teacher: nn.Module | None = None
    metric = METRIC
    splits = True

    def __init__(
        self,
        positives: str = "views",
        margin: float = 0.2,
        augmentation: Augmentation | None = None,
    ) -> None:
        require_choice("contrastive training", "positives", positives, POSITIVES)
        if not margin > 0:
            raise UsageError(f"contrastive training: margin must be above 0; got {margin}")
        self.positives, self.margin = positives, margin
        self.augmentation = augmentation or Augmentation()

    def describe(self) -> dict[str, Any]:
        """The positives, the margin and the augmentation."""
        settings: dict[str, Any] = {"positives": self.positives, "margin": self.margin}
        if self.positives == "views":
            settings["augmentation"] = str(self.augmentation)
        return {"contrastive": settings}

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch of images."""
        pixels, kinds = batch["pixel_values"], batch["labels"]
        if self.positives == "views":
            views = [self.augmentation(pixels, f"{step} {side}") for side in "ab"]
            whole, here = whole_batch(len(pixels))
            pixels, kinds = torch.cat(views), torch.arange(whole)[here].repeat(2)
        kinds = kinds.to(pixels.device)
        return triplet_loss(gathered(embedded(model, pixels)), gathered(kinds), self.margin)

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """How often the nearest of up to 2,000 training images is of the same class."""
        with evaluating(model), torch.inference_mode():
            gallery = task.train.subset(_evenly(len(task.train), GALLERY))
            known = torch.cat(list(_all(model, task, gallery, batch_size)))
            queries = torch.cat(list(_all(model, task, task.validation, batch_size)))
            near = (queries @ known.T).argmax(1)
        answers = gallery.labels[near]
        right = (answers == task.validation.labels).tolist()
        share = sum(right) / len(right)
        return Evaluation(METRIC, {METRIC: share}, 1 - share, answers.tolist(), right)


def embedded(
    model: Any, pixels: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, "batch hidden_width"]:
    """The class token behind the last layer, at unit length; heads of a classifier are left out."""
    states = model.base_model(pixel_values=pixels).last_hidden_state
    return F.normalize(wide(states[:, 0]), dim=-1)


def triplet_loss(
    points: Float[Tensor, "batch width"], kinds: Int[Tensor, " batch"], margin: float
) -> Float[Tensor, ""]:
    """The loss of ``HardNegatives``; 0, with gradients, where no anchor has both."""
    if not len(points):
        return points.sum()
    with without_autocast(points.device.type):  # 2 - 2 cos of near points cancels
        return _hinged(wide(points), kinds, margin)


def _hinged(
    points: Float[Tensor, "batch width"], kinds: Int[Tensor, " batch"], margin: float
) -> Float[Tensor, ""]:
    alike = kinds[:, None] == kinds
    itself = torch.eye(len(points), dtype=torch.bool, device=points.device)
    # at unit length; the root has no gradient at 0
    distances = (2 - 2 * points @ points.T).clamp_min(1e-12).sqrt()
    hardest = distances.masked_fill(alike, torch.inf).amin(1, keepdim=True)
    counted: Bool[Tensor, "batch batch"] = alike & ~itself & hardest.isfinite()
    lost = (margin + distances - hardest.where(hardest.isfinite(), distances)).clamp_min(0)
    by_anchor = (lost * counted).sum(1) / counted.sum(1).clamp_min(1)
    return by_anchor.sum() / counted.any(1).sum().clamp_min(1)


def _all(model: nn.Module, task: Task, examples: Examples, size: int) -> Iterator[Tensor]:
    device = next(model.parameters()).device
    for first in range(0, len(examples), size):
        indices = range(first, min(first + size, len(examples)))
        batch = task.collate([examples[index] for index in indices])
        yield embedded(model, batch["pixel_values"].to(device)).cpu()


def _evenly(count: int, most: int) -> list[int]:
    """Positions of up to ``most`` examples, spread over all: rows may be sorted by class."""
    step = max(1.0, count / most)
    return [int(index * step) for index in range(min(count, most))]
