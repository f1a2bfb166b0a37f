"""The configuration that small vision transformers share."""

from __future__ import annotations

from transformers import ViTConfig

from sparing.core.errors import UsageError
from sparing.models.shared.shape import TaskShape, check_kind, check_sizes, label_names


def vit_config(
    model: str,
    task: TaskShape,
    layers: int,
    heads: int,
    width: int,
    feed_forward_dim: int | None,
    dropout: float,
) -> ViTConfig:
    """See ``sparing.models.vit.build``; ``model`` is the name in errors."""
    check_kind(model, "image", task)
    inner = 2 * width if feed_forward_dim is None else feed_forward_dim
    check_sizes(model, layers=layers, heads=heads, width=width, feed_forward_dim=inner)
    if task.image_size % task.patch_size:
        raise UsageError(f"patches of {task.patch_size} do not tile images of {task.image_size}")
    return ViTConfig(
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
