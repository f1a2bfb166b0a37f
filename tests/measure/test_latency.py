"""Latency under a clock that we turn ourselves: no test here depends on real time."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from sparing.core.errors import UsageError
from sparing.measure.latency import paired_latency
from sparing.measure.statistics import median_ratio


class FakeClock:
    """A clock that only calls move, each by its cost in seconds."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def costing(self, seconds):
        def call():
            self.now += seconds() if callable(seconds) else seconds

        return call


def test_ratio_and_percentiles_of_known_costs():
    clock = FakeClock()
    calls = {"dense": clock.costing(0.010), "sparse": clock.costing(0.004)}
    result = paired_latency(calls, baseline="dense", rounds=7, clock=clock)
    assert result["dense"].samples_ms == pytest.approx((10.0,) * 7)
    assert result["sparse"].p50_ms == pytest.approx(4.0)
    assert result["sparse"].p99_ms == pytest.approx(4.0)
    assert result["sparse"].ratio.value == pytest.approx(0.4)
    assert result["sparse"].ratio.count == 7
    assert result["dense"].ratio.interval == pytest.approx((1.0, 1.0))


def test_percentiles_come_from_the_samples():
    clock = FakeClock()
    costs = iter([0.01] * 3 + [0.001 * number for number in range(3, 24)])
    calls = {"dense": clock.costing(lambda: next(costs))}
    result = paired_latency(calls, baseline="dense", rounds=21, clock=clock)["dense"]
    assert result.samples_ms == pytest.approx(tuple(range(3, 24)))
    expected = np.percentile(result.samples_ms, (50, 90, 99))
    assert (result.p50_ms, result.p90_ms, result.p99_ms) == pytest.approx(tuple(expected))
    assert result.p50_ms == pytest.approx(13)


def test_short_calls_are_repeated_until_a_sample_is_long_enough():
    clock = FakeClock()
    calls = {"short": clock.costing(0.00003), "long": clock.costing(0.05)}
    result = paired_latency(calls, baseline="long", min_sample_ms=2.0, rounds=5, clock=clock)
    assert result["long"].repeats == 1
    assert 67 <= result["short"].repeats <= 75
    assert result["short"].p50_ms == pytest.approx(0.03)


def test_each_call_takes_every_place_and_meets_every_neighbour():
    names = []
    clock = FakeClock()

    def logged(name):
        def call():
            names.append(name)
            clock.now += 0.01

        return call

    calls = {name: logged(name) for name in "abc"}
    paired_latency(calls, baseline="a", rounds=6, warmup=0, clock=clock)
    rounds = [tuple(names[start : start + 3]) for start in range(3, len(names), 3)]
    assert len(rounds) == 6
    assert set(rounds) == {tuple(order) for order in ("abc", "bca", "cab", "cba", "acb", "bac")}


@pytest.fixture
def quick(monkeypatch):
    """A full collection takes a tenth of a second here, and simulations would pay it each time."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


def simulated_ratio(seed, *, truth=1.0, rounds=20):
    """Two calls under noise, warming-up drift and a penalty for going first in a round."""
    generator = np.random.default_rng(seed)
    clock, position = FakeClock(), [0]

    def costing(factor):
        def cost():
            position[0] += 1
            first = 1.05 if position[0] % 2 else 1.0
            drift = 1 + 0.3 * np.exp(-position[0] / 10)
            return 0.01 * factor * first * drift * generator.lognormal(0, 0.05)

        return clock.costing(cost)

    calls = {"dense": costing(1.0), "other": costing(truth)}
    result = paired_latency(calls, baseline="dense", rounds=rounds, warmup=0, clock=clock)
    samples = [result[name].samples_ms for name in ("other", "dense")]
    return result["other"].ratio, samples


def test_the_same_against_itself_shows_no_difference_in_spite_of_order_and_drift(quick):
    ratios = [simulated_ratio(seed)[0] for seed in range(150)]
    hits = sum(ratio.interval[0] <= 1 <= ratio.interval[1] for ratio in ratios)
    assert hits >= 0.89 * 150
    assert np.mean([ratio.value for ratio in ratios]) == pytest.approx(1.0, abs=0.005)


def test_without_rotation_the_order_would_have_looked_like_a_difference(quick, monkeypatch):
    monkeypatch.setattr("sparing.measure.latency.turn", lambda names, number: names)
    ratios = [simulated_ratio(seed)[0] for seed in range(30)]
    hits = sum(ratio.interval[0] <= 1 <= ratio.interval[1] for ratio in ratios)
    assert hits < 0.5 * 30


def test_an_effect_of_ten_percent_is_found(quick):
    ratios = [simulated_ratio(seed, truth=0.9)[0] for seed in range(40)]
    detected = sum(ratio.interval[1] < 1 for ratio in ratios)
    assert detected >= 0.9 * 40
    assert np.mean([ratio.value for ratio in ratios]) == pytest.approx(0.9, abs=0.01)


def test_the_ratio_is_that_of_the_kept_samples():
    ratio, (other, dense) = simulated_ratio(0)
    assert ratio == median_ratio(other, dense)


def test_the_budget_ends_rounds_but_leaves_the_fewest():
    clock = FakeClock()
    calls = {"dense": clock.costing(1.0)}
    slow = paired_latency(calls, baseline="dense", budget_s=0.5, clock=clock)["dense"]
    assert len(slow.samples_ms) == 5
    some = paired_latency(calls, baseline="dense", budget_s=11.0, clock=clock)["dense"]
    assert 5 < len(some.samples_ms) < 20


def test_threads_and_collector_stand_still_and_are_restored():
    before = torch.get_num_threads()
    settings = []

    def call():
        settings.append((torch.get_num_threads(), gc.isenabled()))

    result = paired_latency(
        {"dense": call}, baseline="dense", threads=before + 1, rounds=2, min_sample_ms=0.0
    )
    assert set(settings) == {(before + 1, False)}
    assert result["dense"].threads == before + 1
    assert (torch.get_num_threads(), gc.isenabled()) == (before, True)


def test_an_error_in_a_call_passes_through_and_restores():
    before = torch.get_num_threads()

    def fails():
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        paired_latency({"dense": fails}, baseline="dense", threads=before + 1)
    assert (torch.get_num_threads(), gc.isenabled()) == (before, True)


def test_impossible_wishes_are_refused():
    calls = {"softmax": lambda: None}
    with pytest.raises(UsageError, match="did you mean 'softmax'"):
        paired_latency(calls, baseline="sofmax")
    with pytest.raises(UsageError, match="rounds"):
        paired_latency(calls, baseline="softmax", rounds=0)
    with pytest.raises(UsageError, match="warmup"):
        paired_latency(calls, baseline="softmax", warmup=-1)
