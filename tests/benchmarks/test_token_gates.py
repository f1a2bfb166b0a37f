"""Token gates compared at equal arithmetic: the line between shares, seeds, and a small run."""

from __future__ import annotations

import importlib

import pytest
import torch

from sparing.tasks import Examples, Task
from sparing.train import Recipe
from tests.transfer.classifiers import dense


@pytest.fixture
def gates():
    return importlib.import_module("token_gates")


@pytest.fixture
def received(gates):
    return [
        gates.Point("received", seed, share, cost, score + 0.01 * seed)
        for seed in (0, 1)
        for share, cost, score in ((1.0, 1.0, 0.9), (0.5, 0.6, 0.8))
    ]


def test_a_gain_is_over_attention_received_at_the_same_arithmetic_and_seed(gates, received):
    assert gates.gain(gates.Point("skim", 0, 0.1, 0.7, 0.9), received) == pytest.approx(0.9 - 0.825)
    assert gates.gain(gates.Point("skim", 1, 0.1, 0.6, 0.9), received) == pytest.approx(0.9 - 0.81)
    assert gates.gain(gates.Point("skim", 0, 0.1, 0.5, 0.9), received) is None
    assert gates.gain(gates.Point("skim", 0, 0.1, 1.1, 0.9), received) is None


def test_half_widths_are_students(gates):
    assert gates.half_width([0.5]) is None
    assert gates.half_width([0.0, 2.0]) == pytest.approx(12.706, rel=1e-4)


def test_rows_are_means_over_seeds(gates, received):
    points = [
        *received,
        gates.Point("skim", 0, 0.1, 0.7, 0.84),
        gates.Point("skim", 1, 0.1, 0.7, 0.84),
    ]
    rows = {(row["arm"], row["knob"]): row for row in gates.summary(points)}
    assert rows["received", 0.5]["score"] == pytest.approx(0.805)
    assert rows["received", 0.5]["gain"] is None
    assert rows["skim", 0.1]["gain"] == pytest.approx(0.01)
    assert rows["skim", 0.1]["seeds"] == 2
    outside = [
        *received,
        gates.Point("skim", 0, 0.1, 0.7, 0.8),
        gates.Point("skim", 1, 0.1, 0.3, 0.8),
    ]
    assert gates.summary(outside)[-1]["gain"] is None, "not a mean over some of the seeds"


def test_the_table_tells_gains_with_their_intervals(gates, received):
    points = [
        *received,
        gates.Point("skim", 0, 0.1, 0.7, 0.84),
        gates.Point("skim", 1, 0.1, 0.7, 0.85),
    ]
    lines = gates.table_of({"metric": "accuracy", "summary": gates.summary(points)}).splitlines()
    assert lines[2].startswith("| attention received | 1 | 1.00 | 90.5 (")
    assert lines[2].endswith(") | – |")
    assert lines[-1].startswith(
        "| a learned network (Transkimmer) | 0.1 | 0.70 | 84.5 (78.1 to 90.9)"
    )
    assert lines[-1].endswith("| +1.5 (1.5 to 1.5) |")


def test_all_arms_run_from_the_same_start(gates, tmp_path):
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(3, 50, (12,), generator=generator) for _ in range(32)]
    split = Examples("input_ids", rows, torch.arange(32) % 3)
    task = Task("small", "tokens", split, split, split, ("a", "b", "c"), 12, "none", "generated")
    dense(dtype=torch.float32).save_pretrained(tmp_path / "dense")
    recipe = Recipe(1, 8, 1e-3, precision="float32", device="cpu")
    work = gates.Work(task, str(tmp_path / "dense"), tmp_path / "runs", recipe)
    assert work.steps == 4
    points = list(gates.points_of(work, [0], [0.2]))
    by_arm = {arm: [p for p in points if p.arm == arm] for arm in ("received", "random")}
    for arm_points in by_arm.values():
        assert [point.knob for point in arm_points] == list(gates.SHARES)
        costs = [point.cost_share for point in arm_points]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < 0.8 < 0.99 < costs[0] < 1.01
    assert [point.arm for point in points[-2:]] == ["threshold", "skim"]
    assert points[-2].cost_share < 1.01
    again = list(gates.points_of(work, [0], [0.2]))
    assert again == points, "finished runs are read back"
