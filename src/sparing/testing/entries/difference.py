"""Test configurations of difference, and their references."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals, Matches
from sparing.testing.references import dense_softmax, real_tokens
from sparing.testing.subjects import Entry


def dense_difference(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Differences sent and added up number by number, then softmax attention written out."""
    sent_q = q if mask.causal else _added_up(made.threshold, q, mask)
    return dense_softmax(sent_q, _added_up(made.threshold, k, mask), v, mask=mask)


def _added_up(threshold: float, stream: Tensor, mask: Mask) -> Tensor:
    received = stream.clone()
    for sample in range(len(stream)):
        real = real_tokens(mask, sample, stream.shape[2]).nonzero()[:, 0].tolist()
        for head in range(stream.shape[1]):
            for feature in range(stream.shape[3]):
                held = stream[sample, head, real[0], feature].item() if real else 0.0
                for token in real[1:]:
                    difference = stream[sample, head, token, feature].item() - held
                    held += difference if abs(difference) >= threshold else 0.0
                    received[sample, head, token, feature] = held
    return received


REFERENCE = dense_difference

ENTRIES = (
    Entry(
        ({}, {"threshold": 0.8}, {"threshold": 0.0}),
        (Matches(dense_difference), Equals("softmax", {"threshold": 0.0})),
    ),
)
