"""Test configurations of eager, and their references."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sparing.core.mask import Mask
from sparing.testing.claims import Equals
from sparing.testing.references import dense_softmax
from sparing.testing.subjects import Entry


def written_out(made: Any, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask) -> Tensor:
    """Exponentials of all scores, divided by their sums."""
    del made
    return dense_softmax(q, k, v, mask=mask)


REFERENCE = written_out
ENTRIES = (Entry(({},), (Equals("softmax"),)),)
