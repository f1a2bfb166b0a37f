"""Held-out rows: which of them choose a plan and which bound it."""

from __future__ import annotations

import torch

from sparing.slim.models import halves
from sparing.tasks import Examples


def test_held_out_halves_are_drawn_so_that_rows_that_take_turns_are_in_both():
    rows = Examples("values", torch.arange(41.0).view(-1, 1), torch.arange(41) % 2)
    first, second = halves(rows)
    assert len(first) - len(second) == 1
    together = sorted([*first.inputs.flatten().tolist(), *second.inputs.flatten().tolist()])
    assert together == rows.inputs.flatten().tolist()
    for half in (first, second):
        assert 5 <= int(half.labels.sum()) <= len(half) - 5
    assert torch.equal(halves(rows)[0].inputs, first.inputs)
