"""Training a detector: a class and a box for each image, their loss and their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.image_transforms import center_to_corners_format
from transformers.loss.loss_for_object_detection import box_iou, generalized_box_iou

from sparing.core.errors import Unsupported, UsageError
from sparing.core.ranks import over_ranks
from sparing.mechanisms.shared.arithmetic import wide
from sparing.tasks import Examples, Task
from sparing.train.evaluation import Evaluation, evaluating

METRIC = "map50"
OVERLAP = 0.5


class BoxLoss:
    """Cross-entropy of the class, distance and overlap of the box.

    Formula: CE + a |b - c|_1 + g (1 - GIoU(b, c)), a mean over images.

    Symbols: b is the model's box, c the true one, centre, width and height in shares of the image;
    a is ``distance``, g ``overlap``.

    Source: Carion et al., 2020 (DETR), arXiv 2005.12872, section 3.1, with its weights 5 and 2;
    GIoU is Rezatofighi et al., 2019, arXiv 1902.09630. What differs: one object an image, so no
    matching is needed.
    """

    teacher: nn.Module | None = None
    metric = METRIC
    splits = True

    def __init__(self, distance: float = 5.0, overlap: float = 2.0) -> None:
        if distance < 0 or overlap < 0:
            raise UsageError("box loss: distance and overlap must not be negative")
        self.distance, self.overlap = distance, overlap

    def describe(self) -> dict[str, Any]:
        """Its weights."""
        return {"boxes": {"distance": self.distance, "overlap": self.overlap}}

    def __call__(self, model: nn.Module, batch: dict[str, Tensor], step: int) -> Float[Tensor, ""]:
        """The loss of a batch; ``UsageError`` without boxes, ``Unsupported`` for other models."""
        if "boxes" not in batch:
            raise UsageError("a box loss needs a task with boxes")
        answer = _answer(model, batch["pixel_values"])
        predicted, true = wide(answer.boxes), wide(batch["boxes"])
        kinds = F.cross_entropy(wide(answer.logits), batch["labels"])
        distance: Tensor = (predicted - true).abs().sum(1).mean()
        if not bool(distance.isfinite()):
            # overlaps of such boxes raise; the training loop names the value
            return over_ranks(distance, len(true))
        corners = [center_to_corners_format(boxes) for boxes in (predicted, true)]
        apart = 1 - generalized_box_iou(*corners).diagonal()
        loss: Tensor = kinds + self.distance * distance + self.overlap * apart.mean()
        return over_ranks(loss, len(true))

    def validate(self, model: nn.Module, task: Task, batch_size: int) -> Evaluation:
        """mAP@0.5, mean overlap and top-1 of the validation split."""
        return evaluate_boxes(model, task, "validation", batch_size=batch_size)


@dataclass(frozen=True)
class Detections:
    """The probability of every class and one box, for each image."""

    chances: Float[Tensor, "count classes"]
    boxes: Float[Tensor, "count 4"]


def evaluate_boxes(
    model: nn.Module, task: Task, split: str = "test", *, batch_size: int = 128
) -> Evaluation:
    """Detect over a split and score it; raises ``UsageError`` where it has no boxes or is empty."""
    examples = task.split(split)
    if examples.boxes is None or not len(examples):
        raise UsageError(f"task {task.name} has no boxes in its {split} split")
    return score_detections(detect(model, task, split, batch_size=batch_size), examples)


def score_detections(detections: Detections, examples: Examples) -> Evaluation:
    """mAP@0.5, mean overlap and top-1 of detections, one for each of the examples with boxes.

    Raises ``UsageError`` for examples without boxes.
    """
    if examples.boxes is None:
        raise UsageError("detections are scored beside boxes, and these examples have none")
    overlaps = paired_iou(detections.boxes, examples.boxes)
    answers = detections.chances.argmax(1)
    right = (answers == examples.labels).tolist()
    return Evaluation(
        metric=METRIC,
        scores={
            METRIC: mean_average_precision(detections, examples.labels, examples.boxes),
            "mean_iou": float(overlaps.mean()),
            "accuracy": sum(right) / len(right),
        },
        loss=float((1 - overlaps).mean()),
        predictions=answers.tolist(),
        right=right,
    )


def detect(model: nn.Module, task: Task, split: str, *, batch_size: int = 128) -> Detections:
    """A detector's answers for every image of a split."""
    examples = task.split(split)
    device = next(model.parameters()).device
    chances, boxes = [], []
    with evaluating(model), torch.inference_mode():
        for first in range(0, len(examples), batch_size):
            indices = range(first, min(first + batch_size, len(examples)))
            batch = task.collate([examples[index] for index in indices])
            answer = _answer(model, batch["pixel_values"].to(device))
            chances.append(answer.logits.float().softmax(-1).cpu())
            boxes.append(answer.boxes.float().cpu())
    return Detections(torch.cat(chances), torch.cat(boxes))


def paired_iou(
    first: Float[Tensor, "count 4"], second: Float[Tensor, "count 4"]
) -> Float[Tensor, " count"]:
    """The overlap of each box with the one of the same index: 0 where they do not touch."""
    corners = [center_to_corners_format(boxes) for boxes in (first, second)]
    parts = [box_iou(a[None], b[None])[0][0] for a, b in zip(*corners, strict=True)]
    return torch.cat(parts) if parts else first.new_zeros(0)


def mean_average_precision(
    detections: Detections,
    labels: Int[Tensor, " count"],
    boxes: Float[Tensor, "count 4"],
    overlap: float = OVERLAP,
) -> float:
    """The mean over classes of average precision at an overlap, for one object an image.

    Every image gives one detection for each class: its box, with that class's probability. A
    detection is right where the class is and the boxes overlap by at least ``overlap``. Precision
    is averaged over recall without interpolation (scikit-learn's ``average_precision_score``).
    Recall counts all objects of the class, detected or not. Classes without an object do not count.
    """
    hits = paired_iou(detections.boxes, boxes) >= overlap
    values = []
    for kind in sorted({*labels.tolist()}):
        of_kind = labels == kind
        right = of_kind & hits
        if not bool(right.any()):
            values.append(0.0)
            continue
        precision = average_precision_score(right.numpy(), detections.chances[:, kind].numpy())
        values.append(float(precision) * int(right.sum()) / int(of_kind.sum()))
    return sum(values) / max(1, len(values))


def _answer(model: nn.Module, pixels: Tensor) -> Any:
    answer = model(pixel_values=pixels)
    if getattr(answer, "boxes", None) is None:
        raise Unsupported(f"{type(model).__name__} gives no boxes: take the model vit_detector")
    return answer
