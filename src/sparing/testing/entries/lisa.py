"""Test configurations of lisa, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import dense_softmax
from sparing.testing.subjects import Entry


def dense_lisa(made: Any, q: Tensor, x: Tensor, *, mask: Mask) -> Tensor:
    """Each token replaced by its codeword, then dense softmax attention: once for each book."""
    out = torch.zeros_like(q)
    for book in made.codebooks.to(x):
        nearest = (x @ book.bfloat16().to(x).T).argmax(-1)
        streams = (
            (book[nearest] @ weight.T + bias).view(*x.shape[:2], *q.shape[1::2]).transpose(1, 2)
            for weight, bias in zip(made.projections.to(x), made.biases.to(x), strict=True)
        )
        out += dense_softmax(*streams, mask=mask)
    return out


ENTRIES = (
    Entry(
        (
            {"books": 2, "codewords": 8},
            {"books": 3, "codewords": 5, "temperature": 0.5},
            {"books": 1, "codewords": 1},
        ),
        (Matches(dense_lisa),),
        row_sums=False,
    ),
)
REFERENCE = dense_lisa
