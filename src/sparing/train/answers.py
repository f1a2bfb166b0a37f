"""A model's answers against the labels: classes, several labels, numbers, or spans of a text."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from sparing.core.ranks import over_ranks
from sparing.tasks.shared.task import UNLABELLED


def outputs_of(answer: Any) -> Float[Tensor, "batch ..."]:
    """The logits of a model's answer; those of first and last tokens are (batch, tokens, 2)."""
    if getattr(answer, "start_logits", None) is not None:
        return torch.stack((answer.start_logits, answer.end_logits), -1)
    logits: Tensor = answer.logits
    return logits


def label_loss(
    logits: Float[Tensor, "batch ..."],
    labels: Shaped[Tensor, " batch"] | Shaped[Tensor, "batch _"],
    reduction: Literal["mean", "none"] = "mean",
    *,
    answer: str = "",
) -> Float[Tensor, "..."]:
    """Cross-entropy where labels are class numbers, squared error where they are values.

    ``answer`` is the task's, for several labels and entities. Of others the type of the labels
    decides. Whole numbers are classes, of as many as there are outputs; others are values, with one
    output, or rows of a vector, of which 1 - cosine is the loss. Two whole numbers a row are the
    first and last token of an answer; their logits are (batch, tokens, 2), and each counts half.

    Rows of several labels are their probabilities, and the loss is the mean binary cross-entropy.
    Those of entities are a class for each token, and the loss is the mean over tokens with one. In
    float32 at least. Rows without a label (``UNLABELLED``) have no loss, but count in the mean.
    """
    loss = _label_loss(logits, labels, reduction, answer)
    if reduction == "none":
        return loss
    counted = (labels != UNLABELLED).sum() if answer == "entities" else len(labels)
    return over_ranks(loss, counted)


def _label_loss(
    logits: Float[Tensor, "batch ..."],
    labels: Shaped[Tensor, " batch"] | Shaped[Tensor, "batch _"],
    reduction: Literal["mean", "none"],
    answer: str,
) -> Float[Tensor, "..."]:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    if answer == "labels":
        goal = labels.to(wide.dtype)
        by_row = F.binary_cross_entropy_with_logits(wide, goal, reduction="none").mean(-1)
        return by_row.mean() if reduction == "mean" else by_row
    if answer == "entities":
        return _token_loss(wide, labels, reduction)
    if labels.is_floating_point() and labels.ndim == 2:
        far = 1 - torch.cosine_similarity(wide, labels.to(wide.dtype), dim=-1)
        return far.mean() if reduction == "mean" else far
    if labels.is_floating_point():
        return F.mse_loss(wide[:, 0], labels.to(wide.dtype), reduction=reduction)
    if reduction == "mean" and labels.ndim == 1 and bool((labels == UNLABELLED).any()):
        # the mean over labelled rows alone would be 0 / 0 where a batch has none
        return F.cross_entropy(wide, labels, ignore_index=UNLABELLED, reduction="sum") / len(labels)
    loss = F.cross_entropy(wide, labels, reduction=reduction)
    return loss.mean(-1) if loss.ndim > 1 else loss


def _token_loss(
    logits: Float[Tensor, "batch tokens classes"],
    labels: Int[Tensor, "batch tokens"],
    reduction: Literal["mean", "none"],
) -> Float[Tensor, "..."]:
    """The mean over all tokens with a label, or over those of each row; 0 where there is none."""
    losses = F.cross_entropy(
        logits.transpose(1, 2), labels, ignore_index=UNLABELLED, reduction="none"
    )
    counts = (labels != UNLABELLED).sum(-1)
    if reduction == "mean":
        return losses.sum() / counts.sum().clamp(min=1)
    return losses.sum(-1) / counts.clamp(min=1)


def rows_of(logits: Float[Tensor, "batch ..."]) -> Float[Tensor, "rows classes"]:
    """One row of classes for each decision: first and last tokens are two decisions."""
    return logits if logits.ndim == 2 else logits.transpose(1, 2).flatten(0, 1)


def predictions_of(
    outputs: Float[Tensor, "count outputs"],
    labels: Shaped[Tensor, "count ..."],
    answer: str,
) -> tuple[list[Any], list[bool] | None]:
    """The class or value of each example, and for classes whether it is right.

    ``answer`` is the task's. The value of a vector is its cosine with the one that it should be. Of
    several labels it is the numbers of those with a probability of at least 0.5, of entities and
    spans the row of ``Task.read``. ``labels`` are those of ``Task.truth``.
    """
    if answer in ("entities", "span"):
        return outputs.long().tolist(), (outputs == labels).all(-1).tolist()
    if answer == "labels":
        given = outputs >= 0
        whole = bool(((labels == 0) | (labels == 1)).all())  # probabilities are another model's
        right = (given == (labels > 0)).all(-1).tolist() if whole else None
        return [row.nonzero().flatten().tolist() for row in given], right
    if answer == "vector":
        return torch.cosine_similarity(outputs, labels, dim=-1).tolist(), None
    if labels.is_floating_point():
        return outputs[:, 0].tolist(), None
    answers = outputs.argmax(-1)
    return answers.tolist(), (answers == labels).tolist()
