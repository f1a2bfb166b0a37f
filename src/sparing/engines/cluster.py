"""The nodes of a Ray cluster: calls run as Ray's tasks, on any node or alone on one.

Ray schedules, repeats what a killed worker or a lost node did, and carries arguments and results.
Every node needs the same version of sparing. Programs that reach a cluster's ports can run code on
its nodes: one that is started here listens on this machine alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparing.core.errors import UsageError, one_line
from sparing.engines.children import variables
from sparing.engines.workers import LOST, TRIES, WorkerLost

LOCAL, RUNNING = "local", "auto"
LOOPBACK = "127.0.0.1"
STORE_BYTES = 128 * 2**20  # of a cluster that is started here: arguments and results are small
REACHED_S = 5.0
# Without it Ray repeats for ever what a node kills for its memory. The process that calls has it.
MEMORY_RETRIES = "RAY_task_oom_retries"
START = "start one with ray start --head, or give --address local"
NO_NODES = "no node of the cluster is alive"
MISSING = "ray is not installed ({}): pip install '.[ray]' in a clone of sparing, on every node"


@dataclass(frozen=True)
class Node:
    """One node: Ray's id of it, its logical processors, its host name, and what it has."""

    id: str
    processors: int
    host: str
    processor: str
    version: str


@contextmanager
def opened(address: str = RUNNING, processes: int | None = None) -> Iterator[Any]:
    """The module ``ray``, connected until the block ends; one that is connected already stays so.

    ``address`` is ``auto`` for the cluster that runs on this machine, ``HOST:PORT``, or ``local``,
    which starts one of ``processes`` processors here. What a node kills for its memory is
    repeated as often as what is killed otherwise. A process that was connected to Ray before has
    Ray's own number of repeats. Raises ``UsageError`` where there is no cluster.
    """
    address = address or RUNNING
    _require_reachable(address)
    ray = _imported()
    # Ray prints what happens to nodes on standard output, which is for results
    with contextlib.redirect_stdout(sys.stderr):
        if ray.is_initialized():
            yield ray
            return
        _connect(ray, address, processes)
        try:
            yield ray
        finally:
            ray.shutdown()


class Cluster:
    """A Ray cluster as an engine of calls, until ``end``.

    ``facts`` gives the host, the processor and the version of sparing where it is called; it is
    sent as code. The rest is as in ``opened``.
    """

    def __init__(
        self,
        facts: Callable[[], tuple[str, str, str]],
        address: str = RUNNING,
        processes: int | None = None,
    ) -> None:
        self._leave = contextlib.ExitStack()
        self._ray = self._leave.enter_context(opened(address, processes))
        errors = self._ray.exceptions
        self._killed = errors.WorkerCrashedError, errors.OutOfMemoryError
        self._gone = errors.NodeDiedError, errors.TaskUnschedulableError
        self._facts, self._most = facts, processes
        self._used = ""  # the node of the last call that was alone
        self._known: dict[str, Node] = {}
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="cluster")
        self._open: list[Any] = []

    @property
    def count(self) -> int:
        """How many calls run at a time: the logical processors of all nodes that are alive."""
        processors = sum(self._alive().values())
        return max(1, min(processors, self._most or processors))

    @property
    def neighbours(self) -> int:
        """How many other calls may run on the node of one."""
        return max(0, min(self.count, max(self._alive().values(), default=1)) - 1)

    def nodes(self) -> list[Node]:
        """The nodes that are alive; what each of them has is read there.

        One that goes meanwhile is left out. Raises ``WorkerLost`` where a node kills all that reads
        it, and where none is alive.
        """
        alive = self._alive()
        read = self._ray.remote(num_cpus=0, max_retries=TRIES - 1)(self._facts)
        new = [node for node in alive if node not in self._known]
        references = {
            node: read.options(scheduling_strategy=self._on(node)).remote() for node in new
        }
        for node, reference in references.items():
            try:
                self._known[node] = Node(node, alive[node], *self._ray.get(reference))
            except self._gone:
                del alive[node]
            except self._killed as error:
                raise WorkerLost(LOST) from error
        if not alive:
            raise WorkerLost(NO_NODES)
        return [self._known[node] for node in alive]

    def require_version(self, version: str) -> None:
        """Raise ``UsageError`` for a node that has another version of sparing, or none."""
        for node in self.nodes():
            if node.version != version:
                raise UsageError(
                    f"{node.host} has {node.version}, this process has {version}: install the same "
                    "on all nodes"
                )

    def submit(self, work: Callable[[Any], Any], given: Any) -> Future[Any]:
        """The result of ``work(given)`` on any node; Ray repeats it where a process is killed."""
        remote = self._ray.remote(num_cpus=1, max_retries=TRIES - 1)(work)
        reference = remote.remote(given)
        self._open.append(reference)
        made: Future[Any] = Future()
        reference.future().add_done_callback(partial(self._pass_on, made))
        return made

    def _pass_on(self, made: Future[Any], finished: Future[Any]) -> None:
        """Give the result or the error of a finished call to the future that the caller has."""
        error = finished.exception()
        if isinstance(error, (*self._gone, *self._killed)):
            error = WorkerLost(LOST)
        if error is not None:
            made.set_exception(cause_of(error))
        else:
            made.set_result(finished.result())

    def submit_alone(self, work: Callable[[Any], Any], given: Any) -> Future[Any]:
        """The same on a node that runs nothing else of Ray's; on the one of the last such call.

        After that one is lost, it is another node with the same processor, where there is one.
        """
        return self._threads.submit(self._alone, work, given)

    def _alone(self, work: Callable[[Any], Any], given: Any) -> Any:
        for _ in range(TRIES):
            node = self._quiet_node()
            remote = self._ray.remote(num_cpus=node.processors, max_retries=0)(work)
            reference = remote.options(scheduling_strategy=self._on(node.id)).remote(given)
            self._open.append(reference)
            with contextlib.suppress(*self._killed, *self._gone):
                return self._ray.get(reference)
        raise WorkerLost(LOST)

    def _quiet_node(self) -> Node:
        """The node for what is measured: always the same, or one with the same processor."""
        nodes = self.nodes()
        before = self._known.get(self._used)
        kinds = Counter(node.processor for node in nodes)
        same = before.processor if before else kinds.most_common(1)[0][0]
        chosen = min(
            nodes, key=lambda node: (node.id != self._used, node.processor != same, node.id)
        )
        self._used = chosen.id
        return chosen

    def _alive(self) -> dict[str, int]:
        """The logical processors of each node that is alive and has any, by Ray's id."""
        return {
            node["NodeID"]: int(node["Resources"]["CPU"])
            for node in sorted(self._ray.nodes(), key=lambda node: str(node["NodeID"]))
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        }

    def _on(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return NodeAffinitySchedulingStrategy(node_id=node, soft=False)

    def end(self) -> None:
        """Stop what still runs, and leave the cluster; one that was started here ends."""
        for reference in self._open:
            with contextlib.suppress(Exception):  # it has finished
                self._ray.cancel(reference, force=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._leave.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(MISSING.format(error)) from error
    return ray


def _require_reachable(address: str) -> None:
    """Raise ``UsageError`` where nothing listens at HOST:PORT: Ray itself tries for a minute."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"there is no Ray cluster at {address!r} ({error}): {START}") from error


def cause_of(error: BaseException) -> BaseException:
    """The error of a call itself: Ray's has the trace of the other process in its text."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error


def _connect(ray: Any, address: str, processes: int | None) -> None:
    """Join a cluster, or start one on this machine."""
    import logging

    more: dict[str, Any] = {"address": address}
    if address == LOCAL:
        more |= {"num_cpus": processes, "object_store_memory": STORE_BYTES}
        more |= {"include_dashboard": False, "_node_ip_address": LOOPBACK}
    memory = {MEMORY_RETRIES: os.environ.get(MEMORY_RETRIES, str(TRIES - 1))}
    with _signals_kept(), _nothing_to_import(), variables(memory):
        try:
            ray.init(**more, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises that itself where a node starts too slowly
            why = one_line(str(error))[:120]
            raise UsageError(f"there is no Ray cluster at {address!r} ({why}): {START}") from error


@contextmanager
def _nothing_to_import() -> Iterator[None]:
    """Be in the root folder: Ray puts the current one first in its workers' import path.

    A file of a working directory must not take the place of a library.
    """
    before = Path.cwd()
    os.chdir(before.anchor)
    try:
        yield
    finally:
        os.chdir(before)


def work_in(directory: Path) -> None:
    """Go to the folder of the process that sent a call, for its paths; stay where it is not."""
    with contextlib.suppress(OSError):
        os.chdir(directory)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put the handler of SIGTERM back, which Ray replaces: finished work is kept on SIGTERM."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
