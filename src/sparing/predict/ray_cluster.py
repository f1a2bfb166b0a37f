"""Workers on the nodes of a Ray cluster: actors that do what worker processes do.

Plain actors and not Ray Data: its sources are read by its own tasks, or held as a whole. So rows of
unknown number could not be a stream in order that skips what is finished.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from sparing.core.errors import UsageError
from sparing.engines.workers import TRIES, WorkerLost

INSTALL = "pip install '.[ray]' in a clone of sparing"
LOCAL, LOOPBACK = "local", "127.0.0.1"
PATIENCE_S = 10.0  # for the address to answer

Given = ParamSpec("Given")
Result = TypeVar("Result")


class RayWorkers:
    """Actors of one processor each, for a ``with`` block: one for each processor of the cluster.

    ``count`` says how many there are otherwise; there are never more than ``most``. ``address`` is
    that of a cluster, "auto" for the one of this machine, or "local" for a new one that ends with
    the block. Raises ``UsageError`` where there is no cluster.
    """

    def __init__(self, address: str, count: int | None, most: int) -> None:
        self.ray = connected(address)
        processors = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        self.count = min(count or processors, processors, most)
        # a killed process is replaced, and its call is repeated
        tries = {"max_restarts": TRIES - 1, "max_task_retries": TRIES - 1}
        kind = self.ray.remote(num_cpus=1, **tries)(_Actor)
        self._actors = [kind.remote() for _ in range(self.count)]
        self._calls: Counter[int] = Counter(dict.fromkeys(range(self.count), 0))

    def submit(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Future[Result]:
        """The result of ``work`` in the actor with the fewest calls; its errors are raised here.

        ``WorkerLost`` is raised where its process was killed in every try.
        """
        number = min(self._calls, key=lambda one: (self._calls[one], one))
        self._calls[number] += 1
        result: Future[Result] = Future()

        def ended(done: Future[Result]) -> None:
            self._calls[number] -= 1
            error = done.exception()
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(self._explained(error))

        self._actors[number].perform.remote(work, given, named).future().add_done_callback(ended)
        return result

    def _explained(self, error: BaseException) -> BaseException:
        """The error of the work itself: Ray's has the trace of the other process in its text."""
        if isinstance(error, self.ray.exceptions.RayActorError):
            return WorkerLost(f"its process was killed {TRIES} times: is memory short?")
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, BaseException) else error

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in self._actors:
            self.ray.kill(actor)
        self.ray.shutdown()


class _Actor:
    """A process of a node."""

    def perform(
        self, work: Callable[..., Result], given: tuple[Any, ...], named: dict[str, Any]
    ) -> Result:
        """Do the work."""
        return work(*given, **named)


def connected(address: str) -> Any:
    """The module ``ray``, connected; raises ``UsageError`` where that is not possible."""
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"ray is not installed ({error}): {INSTALL}") from error
    _require_open(address)
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where["_node_ip_address"] = LOOPBACK
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(include_dashboard=False, logging_level=logging.ERROR, **where)
    except Exception as error:  # Ray raises that itself where a node does not start in time
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"no Ray cluster at {address!r}: {reason}") from error
    if threading.current_thread() is threading.main_thread() and before is not None:
        signal.signal(signal.SIGTERM, before)  # Ray's own ends the process with another code
    return ray


def _require_open(address: str) -> None:
    """Raise ``UsageError`` where nothing answers at HOST:PORT: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster at {address!r}: {error}") from error
