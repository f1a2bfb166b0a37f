"""Test configurations of softmax, and their references."""

from __future__ import annotations

from sparing.testing.claims import Equals
from sparing.testing.subjects import Entry

ENTRIES = (Entry(({},), (Equals("eager"),)),)
