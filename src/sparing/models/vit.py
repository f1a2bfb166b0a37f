"""A small vision transformer with random weights: transformers' own class."""

from __future__ import annotations

from transformers import ViTForImageClassification

from sparing.models._vit import vit_config
from sparing.models.shared.shape import TaskShape


def build(
    task: TaskShape,
    *,
    layers: int = 2,
    heads: int = 2,
    width: int = 32,
    feed_forward_dim: int | None = None,
    dropout: float = 0.0,
) -> ViTForImageClassification:
    """An image classifier of ``layers`` blocks, ``width`` features and ``heads`` heads.

    ``feed_forward_dim`` is twice the width unless given; ``dropout`` acts on hidden states, not on
    attention weights, which most efficient mechanisms do not have. Patches and image size are the
    task's. Weights start with deviation 1 / sqrt(width); transformers' 0.02 suits widths near 768
    and costs narrow models many epochs. Raises ``UsageError`` for sizes that do not fit each other
    or the task.
    """
    return ViTForImageClassification(
        vit_config("vit", task, layers, heads, width, feed_forward_dim, dropout)
    )
