"""What a part gives: the frontier without it, and what is said of several runs."""

from __future__ import annotations

import importlib
import math

import pytest
import torch

from sparing.slim.evidence.candidates import Candidate, Screened, Timed
from sparing.slim.evidence.certify import stored_name
from sparing.slim.state import State

COUNT = 1000
DASH = "\N{EN DASH}"
EXACT = Candidate("dense", "onnxruntime", "float32")
DENSE8 = Candidate("dense", "onnxruntime", "int8")
SLIM8 = Candidate("slim", "openvino", "int8")
SPEEDS = {EXACT: 1.0, DENSE8: 2.0, SLIM8: 4.0}
CHANGES = {EXACT: 0, DENSE8: 10, SLIM8: 50}  # of 1,000: 2 % and 8 % can be certified


@pytest.fixture
def slim_parts():
    return importlib.import_module("slim_parts")


def answers(changes):
    """Logits (texts, 1 exit, 2 classes) of which so many are of the other class."""
    logits = torch.tensor([[1.0, 0.0]]).repeat(COUNT, 1)
    logits[:changes] = torch.tensor([0.0, 1.0])
    return logits[:, None]


@pytest.fixture
def run(slim_parts):
    state = State(
        forms=tuple(Screened(key, speed, True, True) for key, speed in SPEEDS.items()),
        candidates=tuple(
            Timed(key, CHANGES[key] / COUNT, 0.0, True, speed) for key, speed in SPEEDS.items()
        ),
    )
    stored = {
        stored_name(key, part): answers(count)
        for key, count in CHANGES.items()
        for part in ("choose", "calibrate")
    }
    return state, stored


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (None, [1, 2, 2, 2, 4]),
        ("the slim model", [1, 2, 2, 2, 2]),
        ("OpenVINO", [1, 2, 2, 2, 2]),
        ("INT8", [1, 1, 1, 1, 1]),
        ("all cascades", [1, 2, 2, 2, 4]),
    ],
)
def test_a_frontier_is_certified_without_a_part(slim_parts, run, part, expected):
    left = slim_parts.LEFT_OUT[part] if part else lambda one: False
    assert slim_parts.speeds_without(*run, left) == expected


def row(task, whole, without, part="INT8"):
    return {"part": part, "run": f"{task}-0", "task": task, "whole": whole, "without": without}


def test_a_part_pays_on_a_task_where_no_run_is_slower_with_it(slim_parts):
    one, two, slow = [1.0] * 5, [1.0, 1.0, 1.0, 1.1, 2.0], [1.0, 1.0, 1.0, 0.9, 1.9]
    rows = [row("a", two, one), row("b", two, one), row("b", slow, two), row("c", one, one)]
    assert slim_parts.pays_on(rows) == ["a"]
    assert slim_parts.pays_on([row("a", two, one), row("a", one, one)]) == ["a"]


def test_the_table_has_a_line_for_every_part_and_a_task_counts_once(slim_parts):
    one, two, eight = [1.0] * 5, [2.0] * 5, [8.0] * 5
    rows = [row("a", two, one), row("a", two, one), row("b", eight, one)]
    table = slim_parts.parts_table({"gains": rows})
    line = next(line for line in table.splitlines() if line.startswith("| INT8 |"))
    assert f"{100 * (math.sqrt(2 * 8) - 1):+.0f} %" in line
    assert line.endswith("| a, b |")
    assert len(table.splitlines()) == 2 + len(slim_parts.LEFT_OUT)
    assert (
        "| bfloat16 | 0 | \N{EN DASH} | \N{EN DASH} | \N{EN DASH} | \N{EN DASH} | not measured |"
        in table
    )


def test_the_table_of_fine_tuning_has_shares_and_minutes(slim_parts):
    tuned = [{"run": "a-0", "before": 0.05, "after": 0.0412, "minutes": 7.4}]
    assert "| a-0 | 5.00 % | 4.12 % | 7 |" in slim_parts.tuned_table({"tuned": tuned})
