"""Where shards are answered: in this process, in worker processes, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from sparing.engines.workers import Workers
from sparing.measure.machine import usable_processors
from sparing.predict.options import Options

Given = ParamSpec("Given")
Result = TypeVar("Result")


@runtime_checkable
class Pool(Protocol):
    """Workers of any kind, for a ``with`` block; ``count`` calls run at a time."""

    count: int

    def submit(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Future[Result]:
        """The result of a call in the next free worker."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: object) -> None: ...


class InProcess:
    """One worker that is this process: it opens the model without another start of Python."""

    count = 1

    def submit(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Future[Result]:
        """The result of a call, which has ended by then."""
        future: Future[Result] = Future()
        try:
            future.set_result(work(*given, **named))
        except Exception as error:  # raised where the result is taken, as other workers do
            future.set_exception(error)
        return future

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        """There is nothing to end."""


def open_pool(options: Options, most: int) -> Pool:
    """The workers that the options name; of processes not more than ``most``.

    Raises ``UsageError`` where there is no such cluster.
    """
    if options.engine == "ray":
        from sparing.predict.ray_cluster import RayWorkers

        return RayWorkers(options.address, options.processes, most)
    count = min(options.processes or usable_processors(), most)
    return InProcess() if count == 1 else Workers(count)
