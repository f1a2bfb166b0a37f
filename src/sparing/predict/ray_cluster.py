"""Workers on the nodes of a Ray cluster: actors that do what worker processes do.

Plain actors and not Ray Data: its sources are read by its own tasks, or held as a whole. So rows of
unknown number could not be a stream in order that skips what is finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from sparing.engines.cluster import cause_of, opened, work_in
from sparing.engines.workers import LOST, TRIES, WorkerLost

Given = ParamSpec("Given")
Result = TypeVar("Result")


class RayWorkers:
    """Actors of one processor each, for a ``with`` block: one for each processor of the cluster.

    ``count`` says how many there are otherwise; there are never more than ``most``. ``address`` is
    that of a cluster, "auto" for the one of this machine, or "local" for a new one that ends with
    the block. Raises ``UsageError`` where there is no cluster.
    """

    def __init__(self, address: str, count: int | None, most: int) -> None:
        self._leave = ExitStack()
        self.ray = self._leave.enter_context(opened(address))
        processors = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        self.count = min(count or processors, processors, most)
        # a killed process is replaced, and its call is repeated
        tries = {"max_restarts": TRIES - 1, "max_task_retries": TRIES - 1}
        kind = self.ray.remote(num_cpus=1, **tries)(_Actor)
        self._actors = [kind.remote(Path.cwd()) for _ in range(self.count)]
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
        """The error of the work itself, or that its process is lost."""
        if isinstance(error, self.ray.exceptions.RayActorError):
            return WorkerLost(LOST)
        return cause_of(error)

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in self._actors:
            self.ray.kill(actor)
        self._leave.close()


class _Actor:
    """A process of a node, in the folder of the process that started it."""

    def __init__(self, directory: Path) -> None:
        work_in(directory)

    def perform(
        self, work: Callable[..., Result], given: tuple[Any, ...], named: dict[str, Any]
    ) -> Result:
        """Do the work."""
        return work(*given, **named)
