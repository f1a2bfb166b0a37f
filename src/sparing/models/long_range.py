"""One encoder for every long-range task, so that mechanisms meet equal conditions: a BERT."""

from __future__ import annotations

from sparing.models._bert import Bert, bert
from sparing.models.shared.shape import TaskShape


def build(task: TaskShape, *, dropout: float = 0.1) -> Bert:
    """4 layers, width 128, 256 inner features, 4 heads; its sizes cannot be changed.

    What differs from the Long Range Arena (Tay et al., 2020, arXiv 2011.04006): there sizes,
    dropout and training differ from task to task and from text to code.
    """
    return bert(
        "long_range",
        task,
        layers=4,
        heads=4,
        width=128,
        feed_forward_dim=256,
        dropout=dropout,
    )
