"""Held-out rows: which of them choose a plan and which bound it, and what that lets one say."""

from __future__ import annotations

import re

import pytest
import torch

from sparing.core.record import Record
from sparing.slim.models import halves
from sparing.slim.saving import _guarantee
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


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, "at most 4.1% of inputs"),
        ({"kept": False, "epsilon": 0.03}, "at most 4.1% of inputs"),
        ({"kept": True, "epsilon": 0.03}, r"at most 3% of inputs .* which its threshold"),
    ],
)
def test_rows_that_a_threshold_was_chosen_on_bound_only_what_it_was_chosen_for(labels, words):
    given = {"delta": 0.05, "disagreements": 2, **labels}
    bound = Record("disagreement_bound", 0.041, "share", "measured", given, count=400)
    assert re.search(words, _guarantee(bound))
