"""The engines by name, and what ``conduct`` needs of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparing.core.errors import UsageError, nearest
from sparing.core.progress import Progress
from sparing.experiment.conduct import Elsewhere
from sparing.experiment.parallel.driver import Driver
from sparing.experiment.parallel.orders import Source
from sparing.experiment.run import Cell, Failure, Run

LOCAL, RAY = "local", "ray"


@dataclass(frozen=True)
class Where:
    """Where cells run: ``engine`` is ``local`` or ``ray``, with the ``address`` of a cluster.

    ``processes`` run at a time; 0 is one on this machine, and a cluster's all.
    """

    engine: str = LOCAL
    processes: int = 0
    address: str = ""

    def __post_init__(self) -> None:
        if self.engine not in (LOCAL, RAY):
            raise UsageError(
                f"unknown engine {self.engine[:40]!r}{nearest(self.engine, (LOCAL, RAY))}"
            )
        if self.processes < 0:
            raise UsageError(f"processes must be at least 1; got {self.processes}")
        if self.address and self.engine != RAY:
            raise UsageError("--address is of a Ray cluster: give --engine ray too")

    @property
    def is_here(self) -> bool:
        """Whether cells run one after the other in this process."""
        return self.engine == LOCAL and self.processes <= 1


class Local:
    """Processes of this machine; a cell that runs alone runs in this process."""

    def __init__(self, processes: int) -> None:
        from sparing.engines.workers import Workers

        self.workers = Workers(processes)
        self.count, self.neighbours = processes, processes - 1

    def submit(self, work: Callable[[Any], Any], order: Any, /) -> Future[Any]:
        """The result of a cell in one of the processes."""
        return self.workers.submit(work, order)

    def submit_alone(self, work: Any, order: Any, /) -> None:
        """Nothing: the cell is for this process."""

    def end(self) -> None:
        """End the processes."""
        self.workers.end()


@contextmanager
def elsewhere(where: Where, source: Source) -> Iterator[Elsewhere]:
    """How a run's cells are done there, for ``conduct``; processes end with the block.

    Raises ``UsageError`` where the engine cannot be used.
    """
    engine = _opened(where)

    def do(
        run: Run, cells: Sequence[Cell], minutes: float | None, on_progress: Progress
    ) -> list[Failure]:
        if not any(cell.beside for cell in cells) and where.engine == LOCAL:
            shared = any(cell.together for cell in cells)
            hint = "; torchrun lets processes share its trainings" if shared else ""
            raise UsageError(
                f"no cell of {run.config['study']} may run beside others: leave --processes out"
                f"{hint}"
            )
        return Driver(run, engine, source, on_progress).do(cells, minutes)

    try:
        yield do
    finally:
        engine.end()


def _opened(where: Where) -> Any:
    if where.engine == LOCAL:
        return Local(where.processes)
    from sparing.engines.cluster import Cluster
    from sparing.measure.machine import facts_of_node, version_here

    cluster = Cluster(facts_of_node(), where.address, where.processes or None)
    try:
        cluster.require_version(version_here())
    except BaseException:
        cluster.end()
        raise
    return cluster
