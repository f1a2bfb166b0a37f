"""Test configurations of linear, and their references."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Matches
from sparing.testing.references import normalised
from sparing.testing.subjects import Entry


def dense_linear(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Linear attention with every weight written out, and PyTorch's own elu."""
    elu = torch.nn.functional.elu
    return normalised((elu(q) + 1) @ (elu(k) + 1).transpose(-1, -2), v, mask=mask)


ENTRIES = (Entry(({},), (Matches(dense_linear),)),)
REFERENCE = dense_linear
