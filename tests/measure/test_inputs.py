"""Timing on real inputs with a clock of our own: the order of the calls, and the figures."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from sparing.core.errors import UsageError
from sparing.measure.inputs import InputTimes, fastest, speed_up, time_inputs
from sparing.measure.statistics import Interval


class Clock:
    """Stands still but for what the calls take."""

    def __init__(self):
        self.now_s = 0.0
        self.log = []

    def __call__(self):
        return self.now_s

    def call(self, name, cost_ms):
        """A call that takes ``cost_ms(input)`` and answers with its name and input."""

        def run(given):
            self.log.append((name, given))
            self.now_s += cost_ms(given) / 1e3
            return f"{name}{given}"

        return run


def _times(*rows):
    return InputTimes(np.array(rows, dtype=float), [])


def test_each_input_has_its_own_time_and_answer():
    clock = Clock()
    calls = {"a": clock.call("a", lambda n: n), "b": clock.call("b", lambda n: 10 * n)}
    timings = time_inputs(calls, [1, 2, 5], rounds=2, warmup=0, clock=clock)
    assert list(timings) == ["a", "b"]
    np.testing.assert_allclose(timings["a"].times_ms, [[1, 2, 5]] * 2)
    np.testing.assert_allclose(timings["b"].times_ms, [[10, 20, 50]] * 2)
    assert timings["a"].answers == ["a1", "a2", "a5"]
    assert timings["b"].answers == ["b1", "b2", "b5"]
    speed = speed_up(timings["a"], timings["b"])
    assert speed.value == pytest.approx(10)
    assert speed.inputs == 3
    assert fastest(timings, ["b", "a"]) == "a"


def test_everybody_has_every_turn():
    """All calls on one input before the next; each runs first, last and after each other."""
    clock = Clock()
    calls = {name: clock.call(name, lambda n: 1) for name in "abc"}
    time_inputs(calls, list(range(6)), rounds=2, warmup=0, clock=clock)
    turns = [clock.log[start : start + 3] for start in range(0, len(clock.log), 3)]
    assert len(turns) == 12
    assert [turn[0][1] for turn in turns] == [*range(6)] * 2
    assert all(len({given for _, given in turn}) == 1 for turn in turns)
    orders = ["".join(name for name, _ in turn) for turn in turns]
    assert orders[:6] == ["abc", "bca", "cab", "cba", "acb", "bac"]
    for position in range(3):
        assert {order[position] for order in orders} == set("abc")
    assert {order[position : position + 2] for order in orders for position in (0, 1)} == {
        "ab", "bc", "ca", "cb", "ba", "ac"
    }  # fmt: skip


@pytest.mark.parametrize("block", [1, 3, 4, 10, 50])
@pytest.mark.parametrize("rounds", [1, 3])
def test_blocks_are_run_call_by_call_and_answers_stay_in_order(block, rounds):
    """Against a plain form: lists of calls, block after block, and each one rotated or reversed."""
    names, inputs, clock = ["a", "b", "c"], list(range(10)), Clock()
    calls = {name: clock.call(name, lambda n: n + 1) for name in names}
    timings = time_inputs(calls, inputs, rounds=rounds, warmup=0, block=block, clock=clock)
    expected = []
    for number in range(rounds):
        parts = [inputs[start : start + block] for start in range(0, len(inputs), block)]
        for index, part in enumerate(parts):
            shift, odd = (index + number) % 3, (index + number) // 3 % 2
            order = names[shift:] + names[:shift]
            for name in reversed(order) if odd else order:
                expected += [(name, given) for given in part]
    assert clock.log == expected
    for name, timing in timings.items():
        assert timing.answers == [f"{name}{given}" for given in inputs]
        np.testing.assert_allclose(timing.times_ms, [[n + 1 for n in inputs]] * rounds)


@pytest.mark.parametrize("block", [0, -1])
def test_a_block_has_an_input(block):
    with pytest.raises(UsageError, match="at least one round"):
        time_inputs({"a": lambda n: n}, [1], block=block)


def test_slow_drift_cancels():
    clock = Clock()

    def drifting(given):
        return 1 + clock.now_s

    calls = {"a": clock.call("a", drifting), "b": clock.call("b", drifting)}
    timings = time_inputs(calls, list(range(400)), rounds=1, warmup=0, clock=clock)
    assert speed_up(timings["a"], timings["b"]).value == pytest.approx(1, abs=1e-3)


def test_warming_up_is_not_timed():
    clock = Clock()
    first = {"left": 4}

    def cold(given):
        first["left"] -= 1
        return 100 if first["left"] >= 0 else 1

    calls = {"a": clock.call("a", cold), "b": clock.call("b", cold)}
    timings = time_inputs(calls, [7, 8, 9], rounds=1, warmup=2, clock=clock)
    assert clock.log[:4] == [("a", 7), ("b", 7), ("a", 8), ("b", 8)]
    np.testing.assert_allclose([timing.times_ms for timing in timings.values()], 1)
    assert timings["a"].answers == ["a7", "a8", "a9"]


def test_the_median_belongs_to_an_input():
    times = _times([1, 2, 3], [1, 9, 3], [5, 2, 3])
    assert times.typical_ms.tolist() == [1, 2, 3]
    assert times.percentile_ms(50.0) == 2
    assert times.percentile_ms(100.0) == 3


def test_progress_and_surroundings():
    threads, collecting, progress = torch.get_num_threads(), gc.isenabled(), []
    settings = []

    def call(given):
        settings.append((torch.get_num_threads(), gc.isenabled()))

    time_inputs({"a": call}, [1, 2], rounds=2, warmup=0, on_progress=progress.append)
    assert progress == [0.25, 0.5, 0.75, 1.0]
    assert set(settings) == {(1, False)}
    assert (torch.get_num_threads(), gc.isenabled()) == (threads, collecting)


def test_what_a_call_raises_passes_through():
    def broken(given):
        raise ValueError("an engine that breaks")

    collecting = gc.isenabled()
    with pytest.raises(ValueError, match="an engine that breaks"):
        time_inputs({"a": broken}, [1], warmup=0)
    assert gc.isenabled() == collecting


@pytest.mark.parametrize("change", [{"calls": {}}, {"inputs": []}, {"rounds": 0}, {"warmup": -1}])
def test_nothing_to_time(change):
    given = {"calls": {"a": str}, "inputs": [1], "rounds": 1, "warmup": 0, **change}
    with pytest.raises(UsageError, match="needs calls, inputs, at least one round"):
        time_inputs(**given)


def test_speed_is_of_sums_not_of_inputs():
    speed = speed_up(_times([1, 100]), _times([10, 100]))
    assert speed.value == pytest.approx(110 / 101)
    low, high = speed.interval
    assert low < 1 < 10 < high, "two inputs say little of others"
    assert speed_up(_times([1]), _times([2])).interval is None
    twice = speed_up(_times([1, 2, 3]), _times([2, 4, 6]))
    assert (twice.value, *twice.interval) == pytest.approx((2, 2, 2))


def test_the_interval_covers_other_inputs_of_the_kind(monkeypatch):
    monkeypatch.setattr("sparing.measure.inputs.RESAMPLES", 400)
    generator = np.random.default_rng(0)
    population = generator.gamma(4, 1, 200_000)
    truth = population.sum() / (population / (1 + population % 1)).sum()
    covered, runs = 0, 40
    for seed in range(runs):
        sampled = generator.choice(population, 120)
        ratio = speed_up(_times(sampled / (1 + sampled % 1)), _times(sampled), seed=seed)
        low, high = ratio.interval
        assert low <= ratio.value <= high
        covered += low <= truth <= high
    assert covered >= 0.85 * runs


def test_the_interval_is_drawn_from_its_seed_alone():
    generator = np.random.default_rng(1)
    candidate, baseline = _times(generator.random(50)), _times(generator.random(50))
    first: Interval = speed_up(candidate, baseline, seed=3).interval
    np.random.seed(0)  # noqa: NPY002
    assert speed_up(candidate, baseline, seed=3).interval == first
    assert speed_up(candidate, baseline, seed=4).interval != first


def test_pairs_that_do_not_fit_and_names_that_are_unknown():
    with pytest.raises(UsageError, match="in pairs; got 2 and 3 inputs"):
        speed_up(_times([1, 2]), _times([1, 2, 3]))
    times = {"eager": _times([1]), "onnx": _times([2])}
    assert fastest(times, ["onnx"]) == "onnx"
    with pytest.raises(UsageError, match="'onxx' was not timed; did you mean 'onnx'"):
        fastest(times, ["eager", "onxx"])
    with pytest.raises(UsageError, match="at least one name"):
        fastest(times, [])
