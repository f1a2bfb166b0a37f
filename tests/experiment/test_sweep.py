"""Sweeps: what is refused before it is called, in which order calls are made, and the records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from sparing import Heads, mechanism
from sparing.core.workload import Workload
from sparing.experiment.cells import sweep as sweeping
from sparing.experiment.cells.sweep import (
    SHORT,
    Budget,
    Demand,
    Forecast,
    Point,
    Sweep,
    core_demand,
    ratio_record,
    usable_bytes,
)
from sparing.measure.latency import paired_latency
from sparing.measure.load import collected
from sparing.measure.memory import PeakMemory
from tests.measure import subjects

GIB = 2.0**30
EXPONENT = {"square": 2, "line": 1}


class Clock:
    """Seconds that pass only in calls: a microsecond for each unit of a variant's work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[str, int, int]] = []

    def build(self, arm, tokens, batch=1):
        def call():
            self.calls.append((arm, tokens, batch))
            self.now += 1e-6 * batch * tokens ** EXPONENT[arm]

        return call


def demand(arm, tokens, batch=1):
    return Demand(float(batch * tokens ** EXPONENT[arm]), float(4 * tokens ** EXPONENT[arm]))


def point(arm, tokens, **others):
    arguments = {"arm": arm, "tokens": tokens, **others}
    return Point(arm, arguments, {"arm": arm, "tokens": tokens})


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    timed = partial(paired_latency, clock=lambda: made.now)
    monkeypatch.setattr(sweeping, "paired_latency", timed)
    monkeypatch.setattr(sweeping, "perf_counter", lambda: made.now)
    monkeypatch.setattr(sweeping, "usable_bytes", lambda where: 64 * GIB)
    return made


def sweep_of(clock, seconds=1000.0, size=64 * GIB):
    return Sweep(clock.build, 3, 1, Budget(demand, seconds, size))


def test_seconds_grow_from_a_shorter_call_as_its_flops_do(clock):
    long = 10 * SHORT
    for arm, growth in (("square", 100), ("line", 10)):
        forecast = sweep_of(clock).forecast(point(arm, long))
        short = 1e-6 * SHORT ** EXPONENT[arm]
        assert forecast.seconds == pytest.approx(growth * short)
        assert forecast.bytes == 4 * long ** EXPONENT[arm]
        assert forecast.refusal == ""
    assert {tokens for _, tokens, _ in clock.calls} == {SHORT}


def test_a_prediction_is_no_measurement_that_a_busy_machine_disturbs(clock):
    with collected() as loads:
        sweep_of(clock).forecast(point("line", 100))
    assert loads == []


def test_the_shorter_call_has_one_row_and_never_more_tokens(clock):
    forecast = sweep_of(clock).forecast(point("line", 100, batch=8))
    assert set(clock.calls) == {("line", 100, 1)}
    assert forecast.seconds == pytest.approx(8 * 100e-6)


def test_what_would_take_too_long_is_not_called(clock):
    long = 10 * SHORT
    sweep = sweep_of(clock, seconds=50.0)
    timed, [left_out] = sweep.time_fitting([point("square", long), point("line", long)])
    assert list(timed) == ["line"]
    assert ("square", long, 1) not in clock.calls
    assert (left_out.name, left_out.unit, left_out.obtained) == ("not_run", "s", "modelled")
    assert left_out.value == pytest.approx(1e-6 * long**2)
    labels = {"arm": "square", "tokens": long, "why": "time", "of": "time"}
    assert left_out.labels == labels


def test_a_limit_itself_still_fits():
    assert Forecast(1.0, 2.0, 1.0, 2.0).refusal == ""
    assert Forecast(1.1, 2.0, 1.0, 2.0).refusal == "time"
    assert Forecast(1.1, 2.1, 1.0, 2.0).refusal == "memory"
    record = Forecast(1.1, 2.1, 1.0, 2.0).not_run({}, "range")
    assert (record.value, record.unit, record.labels["of"]) == (2.1, "bytes", "range")


def test_no_call_may_take_more_than_half_of_the_free_memory(clock, monkeypatch):
    roomy = sweep_of(clock, size=1e9).forecast(point("square", 10_000))
    assert (roomy.most_bytes, roomy.refusal) == (1e9, "")
    monkeypatch.setattr(sweeping, "usable_bytes", usable_bytes)
    memory = type("Memory", (), {"available": 2e8})
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    tight = sweep_of(clock, size=1e9)
    assert usable_bytes(torch.device("cpu")) == 1e8
    assert usable_bytes(torch.device("cuda")) == float("inf")
    monkeypatch.setattr(sweeping, "device", lambda: torch.device("cpu"))
    assert tight.forecast(point("square", 10_000)).refusal == "memory"


def test_times_are_paired_in_rounds_against_the_baseline_or_the_first(clock):
    sweep = replace(sweep_of(clock), budget=None)
    points = [point("line", 5000), point("square", 5000)]
    timed = sweep.time(points, "square")
    assert list(timed) == ["line", "square"]
    assert timed["line"].ratio.value == pytest.approx(1 / 5000)
    assert [len(latency.samples_ms) for latency in timed.values()] == [3, 3]
    assert sweep.time(points)["square"].ratio.value == pytest.approx(5000)
    last = [arm for arm, _, _ in clock.calls[-6:]]
    assert last == ["line", "square", "square", "line", "square", "line"]
    assert sweep.time([]) == {}


def test_without_a_budget_nothing_is_called_to_predict(clock):
    sweep = replace(sweep_of(clock), budget=None)
    assert sweep.forecast(point("square", 10**9)).refusal == ""
    assert clock.calls == []


def test_memory_is_measured_in_a_process_of_its_own():
    labels = {"arm": "product", "tokens": 2000}
    cell = Sweep(subjects.product, 1, 1).memory_cell(
        "memory/product", Point("", {"tokens": 2000}, labels), 2.0
    )
    assert (cell.key, cell.weight) == ("memory/product", 2.0)
    [record] = cell.work()
    assert (record.name, record.unit, record.labels) == ("peak_bytes", "bytes", labels)
    assert 0.8 < record.value / (4 * 2000**2) < 1.5


def test_a_refused_point_starts_no_process(clock, monkeypatch):
    monkeypatch.setattr(sweeping, "peak_memory", None)
    cell = sweep_of(clock, size=1e6).memory_cell("key", point("square", 1000), 1.0)
    [record] = cell.work()
    assert (record.name, record.value) == ("not_run", 4e6)
    assert (record.labels["why"], record.labels["of"]) == ("memory", "memory")


def test_a_process_is_given_the_function_the_arguments_and_the_threads(monkeypatch):
    seen = []

    def peak(target, arguments, **options):
        seen.append((target, arguments, options["threads"]))
        return PeakMemory(7, "measured", "cpu", "")

    monkeypatch.setattr(sweeping, "peak_memory", peak)
    assert Sweep(subjects.product, 1, 2).peak(Point("", {"tokens": 3}, {})).bytes == 7
    assert seen == [("tests.measure.subjects:product", {"tokens": 3}, 2)]


def test_a_ratio_is_the_median_over_rounds(clock):
    timed = replace(sweep_of(clock), budget=None).time([point("line", 3000), point("square", 3000)])
    record = ratio_record("gain", timed["square"], timed["line"], {"over": "line"})
    assert (record.name, record.count, record.labels) == ("gain", 3, {"over": "line"})
    assert record.value == pytest.approx(3000)
    assert record.interval[0] <= record.value <= record.interval[1]


def test_the_demand_of_a_core_counts_its_streams_beside_its_peak():
    work = Workload(2, 3, 100, 100, 8)
    cost = mechanism("eager", Heads(3, 8)).cost(work)
    needed = core_demand(mechanism("eager", Heads(3, 8)), work)
    assert needed.flops == cost.matmul_flops + cost.other_flops
    assert needed.bytes == cost.peak_bytes + 4 * (2 * 3 * 100 * 8 * 4)
