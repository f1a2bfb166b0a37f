"""A small vision transformer with random weights: transformers' own class."""

from __future__ import annotations

from transformers import ViTConfig, ViTForImageClassification

from sparing.core.errors import UsageError
from sparing.models._shape import TaskShape, check_kind, check_sizes, label_names


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
    task's. Weights start with deviation 1 / sqrt(width); transformers' 0.02 is made for widths near
    768 and costs narrow models many epochs. Raises ``UsageError`` for sizes that do not fit each
    other or the task.
    """
    check_kind("vit", "image", task)
    inner = 2 * width if feed_forward_dim is None else feed_forward_dim
    check_sizes("vit", layers=layers, heads=heads, width=width, feed_forward_dim=inner)
    if task.image_size % task.patch_size:
        raise UsageError(f"patches of {task.patch_size} do not tile images of {task.image_size}")
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=0.0,
        image_size=task.image_size,
        patch_size=task.patch_size,
        num_channels=task.channels,
        initializer_range=width**-0.5,
        **label_names(task),
    )
    return ViTForImageClassification(config)
