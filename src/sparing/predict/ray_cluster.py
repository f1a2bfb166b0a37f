"""Workers on the nodes of a Ray cluster: actors that do what worker processes do.

Ray Data has no source that a driver reads as a stream, no order by default, and does not skip work
that is done: see ``docs/how-to/predict.md``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from sparing.core.errors import UsageError

TRIES = 3  # of a call, where its process is killed
INSTALL = "pip install '.[ray]' in a clone of sparing"

Given = ParamSpec("Given")
Result = TypeVar("Result")


class RayWorkers:
    """Actors of one processor each, for a ``with`` block: one for each of the cluster's unless
    ``count`` says how many.

    ``address`` is a cluster's, "auto" for the one of this machine, or "local" for a new one that
    ends with the block. Raises ``UsageError`` where there is none.
    """

    def __init__(self, address: str, count: int | None = None) -> None:
        self.ray = connected(address)
        self.count = count or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        kind = self.ray.remote(num_cpus=1, max_restarts=TRIES, max_task_retries=TRIES)(_Actor)
        self._actors = [kind.remote() for _ in range(self.count)]
        self._calls: Counter[int] = Counter(dict.fromkeys(range(self.count), 0))

    def submit(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Future[Result]:
        """The result of ``work`` in the actor with the fewest calls."""
        number = min(self._calls, key=lambda one: (self._calls[one], one))
        self._calls[number] += 1
        future: Future[Result] = self._actors[number].perform.remote(work, given, named).future()
        future.add_done_callback(lambda done: self._ended(number))
        return future

    def _ended(self, number: int) -> None:
        self._calls[number] -= 1

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
    try:
        where: dict[str, Any] = {"address": address}
        if address == "local":
            where["_node_ip_address"] = "127.0.0.1"
        ray.init(include_dashboard=False, logging_level=logging.ERROR, **where)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"no Ray cluster at {address!r}: {reason}") from error
    return ray
