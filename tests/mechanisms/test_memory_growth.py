"""What costs linear time takes linear memory: nothing is kept for pairs of tokens."""

from __future__ import annotations

import math

import pytest

from sparing.core.catalogue import MECHANISMS, mechanism, mechanism_class
from sparing.core.heads import Heads
from sparing.core.workload import Workload
from sparing.measure.memory import peak_memory

SHORT, LONG = 4096, 16384
MOST = 1.1


def growth(short, long):
    return math.log(long / short) / math.log(LONG / SHORT)


def modelled_growth(name):
    """The exponent of the modelled cost in the tokens."""
    sums = []
    for tokens in (SHORT, LONG):
        cost = mechanism(name, Heads(1, 64, tokens=tokens)).cost(Workload(1, 1, tokens, tokens, 64))
        sums.append(max(1, cost.matmul_flops + cost.other_flops))
    return growth(*sums)


def measured_growth(name, causal, short, long):
    """The exponent of peak memory in the tokens."""
    peaks = [
        peak_memory(
            "tests.mechanisms.memory_subject:attention",
            {"name": name, "tokens": tokens, "causal": causal},
        ).bytes
        for tokens in (short, long)
    ]
    return growth(*peaks)


@pytest.fixture(autouse=True)
def _freed_blocks_go_back(monkeypatch):
    """glibc's threshold for blocks of their own stays where it starts, so that only need counts."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(128 * 1024))


LINEAR = [name for name in MECHANISMS.names() if modelled_growth(name) <= MOST]


def test_the_linear_family_is_who_we_think():
    assert {"linear", "kerformer", "linformer", "nystrom", "window", "uniform"} <= set(LINEAR)
    assert {"softmax", "eager", "probabilistic"}.isdisjoint(LINEAR)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR)
def test_memory_grows_no_faster_than_the_tokens(name):
    assert measured_growth(name, False, SHORT, LONG) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in LINEAR if mechanism_class(n).traits.causal])
def test_causal_memory_grows_no_faster_either(name):
    assert measured_growth(name, True, SHORT, LONG) <= MOST


@pytest.mark.slow
def test_what_squares_would_be_found():
    assert measured_growth("eager", False, SHORT // 4, LONG // 4) > 1.5
