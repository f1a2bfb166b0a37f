"""A small convolutional network with random weights, as a baseline for image transformers."""

from __future__ import annotations

from transformers import RegNetConfig, RegNetForImageClassification

from sparing.models.shared.shape import TaskShape, check_kind, check_sizes, label_names


def build(task: TaskShape, *, width: int = 32, stages: int = 2) -> RegNetForImageClassification:
    """An image classifier of residual convolutions: no attention, nothing to swap.

    One convolution halves the image. Then each of ``stages`` is one block, and each but the first
    halves the sides of its input and doubles ``width``, the features of the first. Raises
    ``UsageError`` for sizes below 1 and for tasks of texts.

    Source: Radosavovic et al., 2020, arXiv 2003.13678, as transformers builds it; groups as wide as
    the first stage.
    """
    check_kind("regnet", "image", task)
    check_sizes("regnet", width=width, stages=stages)
    config = RegNetConfig(
        num_channels=task.channels,
        embedding_size=width,
        hidden_sizes=[width * 2**number for number in range(stages)],
        depths=[1] * stages,
        groups_width=width,
        layer_type="x",
        downsample_in_first_stage=False,
        **label_names(task),
    )
    return RegNetForImageClassification(config)
