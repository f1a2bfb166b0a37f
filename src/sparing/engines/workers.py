"""Worker processes of one machine: each runs one call at a time, on its own threads.

A worker that is killed is replaced and its call is repeated; the others go on. That is why every
worker is a pool of one process: a pool of several gives up all their work when one of them dies.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, ParamSpec, TypeVar

from sparing.core.errors import SparingError, UsageError
from sparing.core.interrupts import Terminated, terminations_raised
from sparing.engines.children import end_with, variables

TRIES = 3  # of a call, where its process is killed
LOST = f"its process was killed {TRIES} times: is memory short?"
PATIENCE_S = 15.0  # for work to save itself after SIGTERM, before SIGKILL
LOOK_EVERY_S = 0.05
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Given = ParamSpec("Given")
Result = TypeVar("Result")


class WorkerLost(SparingError):
    """The process of a call was killed as often as it was tried."""


class Workers:
    """``count`` processes of ``threads`` threads each, for a ``with`` block.

    They start when there is work for them, import from where this process does, and never outlive
    it. At the end of the block work that still runs gets SIGTERM, and SIGKILL after ``PATIENCE_S``.
    """

    def __init__(self, count: int, *, threads: int = 1) -> None:
        if count < 1:
            raise UsageError(f"processes must be at least 1; got {count}")
        self.count = count
        self._workers = [_Worker(threads) for _ in range(count)]
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="worker")
        self._ended = False

    def submit(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Future[Result]:
        """The result of ``work`` in the next free worker; what it raises there is raised here.

        The function belongs to a module, and what it is given can be pickled. ``WorkerLost`` is
        raised where its process was killed in every try.
        """
        return self._threads.submit(self._do, work, given, named)

    def _do(
        self, work: Callable[..., Result], given: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Result:
        worker = self._free.get()
        try:
            for _ in range(TRIES):
                if self._ended:
                    raise CancelledError
                with contextlib.suppress(BrokenProcessPool):
                    return worker.run(work, given, named)
            raise WorkerLost(LOST)
        finally:
            self._free.put(worker)

    def pids(self) -> list[int]:
        """The process numbers of the workers that have started."""
        return [worker.pid for worker in self._workers if worker.pid]

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """End all workers; work that has not begun is dropped."""
        self._ended = True
        for worker in self._workers:
            worker.end()
        deadline = time.monotonic() + patience_s
        while any(worker.busy for worker in self._workers) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        for worker in self._workers:
            worker.kill()
        # the kernel ends a worker with the thread that started it: threads go last
        self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


class _Worker:
    """One process, started for its first work and again after it was killed."""

    def __init__(self, threads: int) -> None:
        self.pid, self.busy = 0, False
        self._threads = threads
        self._pool: ProcessPoolExecutor | None = None

    def run(
        self, work: Callable[..., Result], given: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Result:
        """The result of the work; raises ``BrokenProcessPool`` where the process is killed."""
        self.busy = True
        try:
            pool = self._pool = self._pool or self._started()
            return pool.submit(_perform, work, given, named).result()
        except BrokenProcessPool:
            self.kill()
            raise
        finally:
            self.busy = False

    def _started(self) -> ProcessPoolExecutor:
        about = (os.getpid(), self._threads)
        spawning = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, spawning, initializer=_begin, initargs=about)
        # threads must be known before a library of arrays is loaded; with the safe path no file of
        # the working directory takes the place of a library
        more = dict.fromkeys(THREAD_VARIABLES, str(self._threads)) | {"PYTHONSAFEPATH": "1"}
        with variables(more):
            first = pool.submit(os.getpid)
        self.pid = first.result()
        return pool

    def end(self) -> None:
        """Interrupt the running call."""
        if self.busy and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, where it has not ended."""
        pool, pid, self._pool, self.pid = self._pool, self.pid, None, 0
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pool is not None:
            pool.shutdown()


def _begin(parent: int, threads: int) -> None:
    """Prepare a new process: Ctrl-C is for its parent, which it does not outlive."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "torch" in sys.modules:  # by the program that is imported again
        import torch

        torch.set_num_threads(threads)


def _perform(
    work: Callable[..., Result], given: tuple[Any, ...], named: Mapping[str, Any]
) -> Result:
    """Do the work; SIGTERM interrupts it as Ctrl-C does."""
    try:
        with terminations_raised():
            return work(*given, **named)
    except Terminated:
        raise KeyboardInterrupt from None
