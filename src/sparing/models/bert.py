"""A small BERT with random weights: transformers' own class."""

from __future__ import annotations

from sparing.models._bert import Bert, bert
from sparing.models.shared.shape import TaskShape


def build(
    task: TaskShape,
    *,
    layers: int = 2,
    heads: int = 4,
    width: int = 64,
    feed_forward_dim: int | None = None,
    dropout: float = 0.0,
) -> Bert:
    """A sequence classifier of ``layers`` blocks, ``width`` features and ``heads`` heads.

    Where the answer is a span of a text, it predicts first and last tokens instead, and where it is
    entities, a label for each token.
    ``feed_forward_dim`` is twice the width unless given; ``dropout`` acts on hidden states alone.
    Raises ``UsageError`` for sizes that do not fit each other or the task.
    """
    inner = 2 * width if feed_forward_dim is None else feed_forward_dim
    return bert(
        "bert",
        task,
        layers=layers,
        heads=heads,
        width=width,
        feed_forward_dim=inner,
        dropout=dropout,
    )
