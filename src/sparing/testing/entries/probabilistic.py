"""Test configurations of probabilistic, and their references."""

from __future__ import annotations

from sparing.testing.claims import Equals
from sparing.testing.subjects import Entry

ENTRIES = (
    Entry(
        (
            {},
            {"prior": "uniform"},
            {"key_adaptation": 2},
            {"value_precision": 0.5, "value_iterations": 2},
            {"prior": "uniform", "value_precision": 0.25, "value_adaptation": 1},
        ),
        (Equals("softmax"),),
    ),
)
