"""What a model's answer is worth against the labels: classes, or numbers."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F


def label_loss(
    logits: Float[Tensor, "batch outputs"],
    labels: Shaped[Tensor, " batch"],
    reduction: Literal["mean", "none"] = "mean",
) -> Float[Tensor, "..."]:
    """Cross-entropy where labels are class numbers, squared error where they are values.

    The kind of the labels says which: whole numbers are classes, of ``outputs`` in all; others are
    values, and there is one output. In float32 at least.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    if labels.is_floating_point():
        return F.mse_loss(wide[:, 0], labels.to(wide.dtype), reduction=reduction)
    return F.cross_entropy(wide, labels, reduction=reduction)


def predictions_of(
    outputs: Float[Tensor, "count outputs"], labels: Shaped[Tensor, " count"]
) -> tuple[list[Any], list[bool] | None]:
    """The class or value of each example, and for classes whether it is right."""
    if labels.is_floating_point():
        return outputs[:, 0].tolist(), None
    answers = outputs.argmax(-1)
    return answers.tolist(), (answers == labels).tolist()
