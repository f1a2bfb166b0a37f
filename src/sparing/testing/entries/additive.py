"""Test configurations of additive, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_additive(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """The small network run for one query and one key at a time."""
    square = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    for sample in range(len(q)):
        for head in range(q.shape[1]):
            for i, query in enumerate(q[sample, head]):
                for j, key in enumerate(k[sample, head]):
                    hidden = made.query_weight[head] @ query + made.key_weight[head] @ key
                    hidden = torch.tanh(hidden + made.bias[head])
                    square[sample, head, i, j] = made.score_weight[head] @ hidden
    return normalised(square.exp(), v, mask=mask)


REFERENCE = dense_additive

ENTRIES = (Entry(({}, {"hidden_dim": 3}), (Matches(dense_additive),)),)
