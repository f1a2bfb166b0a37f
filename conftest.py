"""Shapes in annotations are checked while the tests run; nothing may reach for the network."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import time
from collections.abc import Generator

import jaxtyping
import pytest
import torch

from tests import annotations, traces

# A suite that a shell starts in the background ignores Ctrl-C; what tests send must arrive.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Exports here have sizes that are symbols, where filling this cache costs a third of the time and
# saves nothing. PyTorch reads it when it first traces.
os.environ.setdefault("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
annotations.install(["sparing", "sparing_papers"])


@pytest.fixture
def free_sizes() -> Generator[None]:
    """Exports and compilers make sizes symbols, which checks of annotations would fix."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is there for good out of every collection of garbage.

    Each training ends with one, which goes over half a million objects of imported modules and
    collected tests: in hundreds of short trainings that is minutes.
    """
    if len(session.items) < 20:
        return
    for name in ("transformers.trainer", "torch._dynamo", "torch.export", "scipy.stats"):
        importlib.import_module(name)
    _read_onnx_operators_once()
    traces.install()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Leave out too what a module's tests have imported, once there is much of it."""
    result = yield
    ended = nextitem is not None and item.path != nextitem.path
    if ended and len(gc.get_objects()) > 50_000:
        gc.collect()
        gc.freeze()
    return result


def _read_onnx_operators_once() -> None:
    """Let all exports to ONNX share one table of operators.

    PyTorch parses the source of a thousand operators for every export, which is a fifth of the
    time of a small one; only operators of a caller's own, which no test has, would change it.
    """
    registration = importlib.import_module("torch.onnx._internal.exporter._registration")
    registry = getattr(registration, "ONNXRegistry", None)
    if hasattr(registry, "from_torchlib"):
        registry.from_torchlib = staticmethod(functools.cache(registry.from_torchlib))


@pytest.fixture(autouse=True)
def _two_threads():
    """Tests share the machine: more threads than this only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _quiet_machine():
    """Tests run beside each other: what verdicts say must not depend on how busy that is."""
    from sparing.measure import load

    def quiet():
        now = time.perf_counter()
        return load.Counters(now, now, now, now, None, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "read_counters", quiet)
        yield


@pytest.fixture
def _unpainted():
    """For tests of a page's words."""
    from tests.report.unpainted import unpainted

    with unpainted():
        yield


@pytest.fixture
def unchecked_shapes():
    """For tests that trace: PyTorch cannot trace through the checks of annotations."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
