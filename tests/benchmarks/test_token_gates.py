"""Token gates compared at equal arithmetic: the line between shares, seeds, and a small run."""

from __future__ import annotations

import pytest
import torch
from benchmarks.token_gates import SHARES, Point, Work, gain, half_width, points_of, summary

from sparing.tasks import Examples, Task
from sparing.train import Recipe
from tests.transfer.classifiers import dense

RECEIVED = [
    Point("received", seed, share, cost, score + 0.01 * seed)
    for seed in (0, 1)
    for share, cost, score in ((1.0, 1.0, 0.9), (0.5, 0.6, 0.8))
]


def test_a_gain_is_over_attention_received_at_the_same_arithmetic_and_seed():
    assert gain(Point("skim", 0, 0.1, 0.7, 0.9), RECEIVED) == pytest.approx(0.9 - 0.825)
    assert gain(Point("skim", 1, 0.1, 0.6, 0.9), RECEIVED) == pytest.approx(0.9 - 0.81)
    assert gain(Point("skim", 0, 0.1, 0.5, 0.9), RECEIVED) is None
    assert gain(Point("skim", 0, 0.1, 1.1, 0.9), RECEIVED) is None


def test_half_widths_are_students():
    assert half_width([0.5]) is None
    assert half_width([0.0, 2.0]) == pytest.approx(12.706, rel=1e-4)


def test_rows_are_means_over_seeds():
    points = [*RECEIVED, Point("skim", 0, 0.1, 0.7, 0.84), Point("skim", 1, 0.1, 0.7, 0.84)]
    rows = {(row["arm"], row["knob"]): row for row in summary(points)}
    assert rows["received", 0.5]["score"] == pytest.approx(0.805)
    assert rows["received", 0.5]["gain"] is None
    assert rows["skim", 0.1]["gain"] == pytest.approx(0.01)
    assert rows["skim", 0.1]["seeds"] == 2
    outside = [*RECEIVED, Point("skim", 0, 0.1, 0.7, 0.8), Point("skim", 1, 0.1, 0.3, 0.8)]
    assert summary(outside)[-1]["gain"] is None, "not a mean over some of the seeds"


def test_all_arms_run_from_the_same_start(tmp_path):
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(3, 50, (12,), generator=generator) for _ in range(32)]
    split = Examples("input_ids", rows, torch.arange(32) % 3)
    task = Task("small", "tokens", split, split, split, ("a", "b", "c"), 12, "none", "generated")
    dense(dtype=torch.float32).save_pretrained(tmp_path / "dense")
    recipe = Recipe(1, 8, 1e-3, precision="float32", device="cpu")
    work = Work(task, str(tmp_path / "dense"), tmp_path / "runs", recipe)
    assert work.steps == 4
    points = list(points_of(work, [0], [0.2]))
    by_arm = {arm: [p for p in points if p.arm == arm] for arm in ("received", "random")}
    for own in by_arm.values():
        assert [point.knob for point in own] == list(SHARES)
        costs = [point.cost_share for point in own]
        assert costs == sorted(costs, reverse=True)
        assert costs[-1] < 0.8 < 0.99 < costs[0] < 1.01
    assert [point.arm for point in points[-2:]] == ["threshold", "skim"]
    assert points[-2].cost_share < 1.01
    again = list(points_of(work, [0], [0.2]))
    assert again == points, "finished runs are read back"
