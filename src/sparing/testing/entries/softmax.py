"""How softmax is tested: its configurations and what they must equal."""

from __future__ import annotations

from sparing.testing.claims import Equals
from sparing.testing.subjects import Entry

ENTRIES = (Entry(({},), (Equals("eager"),)),)
