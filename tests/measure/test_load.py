"""Whether a machine was busy, from given counters, and that every timing looks."""

from __future__ import annotations

import time

import psutil
import pytest
import torch

from sparing.core.record import Record
from sparing.measure import load
from sparing.measure.energy import EnergyMeter
from sparing.measure.inputs import time_inputs
from sparing.measure.latency import paired_latency
from sparing.measure.load import (
    Counters,
    Load,
    LoadWatch,
    between,
    collected,
    read_counters,
    with_load,
)
from sparing.measure.windows import EnergyWindows


@pytest.fixture(autouse=True)
def _real_counters(monkeypatch):
    """Other tests have a quiet machine."""
    monkeypatch.setattr(load, "read_counters", read_counters)


QUIET = {"processors": 2, "share": 0.99, "others": 0.05, "load_before": 0.3, "load_after": 1.1}


def load_of(**changes):
    threads = changes.get("threads", 1)
    return Load(**{"window_s": 3.0, "threads": threads, "our_threads": threads} | QUIET | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"threads": 2}, ""),
        ({"threads": 2, "load_before": 2.4, "load_after": 2.2}, ""),  # our two threads alone
        ({"threads": 2, "share": 0.93, "others": 0.3}, ""),
        ({"threads": 4, "share": 0.49}, ""),  # our threads share two processors among themselves
        ({"load_before": 9.0, "load_after": 0.8}, ""),  # others ended before we began
        ({"others": 1.0}, ""),  # the other processor is used by somebody else
        ({"processors": 64, "others": 30.0, "load_before": 31.0, "load_after": 32.0}, ""),
        ({"share": None, "others": None, "load_before": None, "load_after": None}, ""),
        ({"share": 0.6}, "a processor for 60% of the time"),
        ({"threads": 4, "share": 0.3}, "a processor for 30% of the time"),
        ({"others": 1.5}, "kept 1.5 of 2 processors busy"),
        ({"threads": 2, "others": 0.5}, "kept 0.5 of 2 processors busy"),
        ({"load_before": 10.0, "load_after": 11.0}, "9 threads of other programs waited"),
        ({"threads": 2, "load_before": 10.0, "load_after": 10.0}, "8 threads of other programs"),
        ({"load_before": 10.0, "load_after": 10.0, "our_threads": 9}, ""),  # children of ours
    ],
)
def test_a_busy_machine_is_noticed_and_our_work_is_not_that_of_others(changes, words):
    disturbance = load_of(**changes).disturbance
    assert words in disturbance if words else not disturbance


def counters(wall, thread, process=None, tree=None, machine=None, load=None):
    process = thread if process is None else process
    return Counters(wall, thread, process, process if tree is None else tree, machine, load)


def test_shares_and_the_work_of_others_by_hand(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(load, "_accelerated", lambda: False)
    start = counters(10.0, 1.0, 3.0, 8.0, 100.0, 0.5)
    after = counters(14.0, 4.0, 6.0, 12.0, 107.0, 1.5)
    load_between = between(start, after, 1)
    assert (load_between.share, load_between.others) == pytest.approx(
        (0.75, 0.75)
    )  # 7 s in all, 4 s of them ours
    assert (load_between.window_s, load_between.load_before, load_between.load_after) == (
        4.0,
        0.5,
        1.5,
    )
    # two threads that each had half of a processor, though the process had one whole
    assert between(start, counters(14.0, 3.0, 7.0), 2).share == pytest.approx(0.5)
    # the calling thread waited for the other one, which computed
    assert between(start, counters(14.0, 2.0, 10.0), 2).share == pytest.approx(0.875)
    assert between(start, after, 1, computes=False).share is None
    short = between(start, counters(10.1, 1.1, 3.1, 8.1, 100.2), 1)
    assert short.others is None  # the machine's counters move in steps of 10 ms


def test_threads_that_may_wait_for_an_accelerator_have_no_share(monkeypatch):
    monkeypatch.setattr(load, "_accelerated", lambda: True)
    assert between(counters(0.0, 0.0), counters(1.0, 0.1), 1).share is None


def test_real_counters_see_that_a_sleeping_thread_had_no_processor():
    watch = LoadWatch()
    time.sleep(0.05)
    assert watch.end().share < 0.5


@pytest.fixture
def busy(monkeypatch):
    """A machine with a load of ten, whatever it does."""

    def crowded():
        now = read_counters()
        return Counters(
            now.wall_s, now.wall_s, now.wall_s, now.wall_s, None, 6.0 * psutil.cpu_count()
        )

    monkeypatch.setattr(load, "read_counters", crowded)


def test_every_timer_carries_the_load(busy):
    def call(*_):
        return torch.ones(1)

    with collected() as loads:
        times = paired_latency({"a": call}, baseline="a", rounds=2, min_sample_ms=0.0)
        assert "waited" in times["a"].disturbance
        assert "waited" in time_inputs({"a": call}, [1, 2], rounds=1)["a"].load.disturbance
        with EnergyMeter(readers=[]) as meter:
            call()
        assert "waited" in meter.energy.load.disturbance
        windows = EnergyWindows(EnergyMeter(readers=[]))
        windows.start()
        windows.stop()
    assert len(loads) == 4


def test_a_cell_keeps_the_worst_load_beside_its_records(busy, monkeypatch):
    def timed():
        LoadWatch().end()
        LoadWatch().end()
        return [Record("accuracy", 1.0, "share", "measured")]

    *results, machine_load = with_load(timed)
    assert [record.name for record in results] == ["accuracy"]
    assert (machine_load.name, machine_load.labels["threads"]) == ("machine_load", 1)
    assert "waited" in str(machine_load.labels["disturbance"])
    assert load.disturbances([machine_load]) == {"": machine_load.labels["disturbance"]}
    assert "one measurement" in load.disturbance_words([machine_load])

    trained = with_load(lambda: [Record("train_time_s", 1.0, "s", "measured")])
    assert [record.name for record in trained] == ["train_time_s", "machine_load"]
    untimed = with_load(lambda: [Record("accuracy", 1.0, "share", "measured")])
    assert [record.name for record in untimed] == ["accuracy"]


def test_records_of_older_versions_count_as_quiet():
    times = [Record("latency_ms", 1.0, "ms", "measured", cell="latency/model/1")]
    assert load.disturbances(times) == {}
    assert load.disturbance_words(times) == ""
    quiet = load_of().record()
    assert load.disturbances([quiet]) == {}
