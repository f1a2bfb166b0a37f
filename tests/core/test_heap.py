"""Freed memory stays in the process for a while, and goes back afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparing.core import heap

# Pages that the kernel hands out while a block is taken and freed, before and inside. Aligned
# blocks lie apart at first, so some rounds are not counted.
PAGES = """
import resource, torch
from sparing.core.heap import freed_kept

def new_pages(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        torch.empty(40 * 2**20, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(new_pages(10))
with freed_kept():
    new_pages(20)
    print(new_pages(10))
"""


GLIBC = heap._function("mallopt") is not None


@pytest.fixture(autouse=True)
def usual(monkeypatch):
    for name in heap.GIVEN:
        monkeypatch.delenv(name, raising=False)


def test_freed_memory_is_used_again_without_new_pages():
    """Elsewhere than with glibc it may be as before."""
    command = [sys.executable, "-c", PAGES]
    seen = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True)
    before, inside = map(int, seen.stdout.split())
    assert before > max(100, 10 * inside) or not GLIBC


@pytest.fixture
def calls(monkeypatch):
    """What the C library is asked for, in order."""
    made = []
    monkeypatch.setattr(heap, "_function", lambda name: lambda *given: made.append((name, *given)))
    return made


def test_usual_settings_come_back_after_an_error_and_memory_is_given_back(calls):
    def interrupted():
        with heap.freed_kept():
            before.extend(calls)
            raise KeyboardInterrupt

    before = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert before == [("mallopt", *pair) for pair in heap.KEPT.items()]
    after = [("mallopt", *pair) for pair in heap.USUAL.items()]
    assert calls == [*before, *after, ("malloc_trim", 0)]


@pytest.mark.parametrize("name", heap.GIVEN)
def test_settings_of_the_environment_are_left_alone(calls, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    with heap.freed_kept():
        pass
    assert calls == []


def test_nothing_changes_without_glibc(monkeypatch):
    monkeypatch.setattr(heap, "_function", lambda name: None)
    with heap.freed_kept():
        heap.return_freed()
