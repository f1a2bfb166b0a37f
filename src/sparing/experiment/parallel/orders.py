"""A cell as an order to another process, which prepares the study again and runs that cell."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparing.core.errors import is_full
from sparing.core.progress import progress_to
from sparing.core.record import Labels, Record
from sparing.engines.cluster import work_in
from sparing.experiment.parallel.running import noted
from sparing.experiment.plan import BESIDE
from sparing.experiment.run import Cell, Run, difference_texts, ends_all, failure_of
from sparing.measure.load import CELL_TIME, TIME_UNITS, with_load
from sparing.measure.machine import machine, machine_id, version_here, version_text


@dataclass(frozen=True)
class Source:
    """How another process prepares a study again: ``prepare`` of a module, and its arguments.

    Paths in the options are relative to ``directory``. ``modules`` are imported before: a mechanism
    may be of one.
    """

    module: str
    options: Any
    folder: Path
    data: Path | None = None
    modules: tuple[str, ...] = ()
    directory: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True)
class Order:
    """One cell to run elsewhere; ``config`` is that of the run, which the study there must equal.

    ``others`` is how many cells may run at the same time on that machine. The times of a cell that
    is not alone are dropped.
    """

    source: Source
    key: str
    config: dict[str, Any] = field(repr=False)
    others: int = 0


@dataclass(frozen=True)
class Done:
    """A cell's records, or its ``error``; ``ends`` is the reason why the whole run must end.

    ``machine`` are the facts of the machine that ran it, ``node`` is its host name.
    """

    key: str
    records: list[Record]
    node: str
    machine: dict[str, Any]
    error: str = ""
    ends: str = ""
    full: bool = False

    @property
    def machine_id(self) -> str:
        """The id of that machine."""
        return machine_id(self.machine)


def carry_out(order: Order) -> Done:
    """Run the cell of an order in this process; errors are part of the result."""
    from sparing.models.shared.quiet import quiet
    from sparing.train.surroundings import generators_kept

    facts, node = machine(), socket.gethostname()
    try:
        with quiet(), generators_kept(), noted(order.source.folder, order.key) as tell:
            cell = _prepared(order)[order.key]
            with progress_to(tell):
                records = with_load(cell.work)
        for record in records:
            record.to_json()  # one that is not finite is refused here
    except Refused as error:
        return Done(order.key, [], node, facts, ends=str(error))
    except Exception as error:
        failure = failure_of(order.key, error)
        full = is_full(error) or is_full(error.__cause__)
        ends = failure.error if ends_all(error) else ""
        return Done(order.key, [], node, facts, error=failure.error, ends=ends, full=full)
    if order.others:
        records = _without_times(records, order.others)
    return Done(order.key, records, node, facts)


class Refused(Exception):
    """This process has another version of sparing, other data, or does not see the folder."""


_last: tuple[Source, dict[str, Cell]] | None = None


def _prepared(order: Order) -> Mapping[str, Cell]:
    """The study's cells by key; the study is prepared once in a process."""
    global _last
    if _last is None or _last[0] != order.source:
        source = order.source
        work_in(source.directory)
        _require_here(order)
        for module in source.modules:
            importlib.import_module(module)
        study = importlib.import_module(source.module)
        experiment = study.prepare(source.options, source.folder, source.data)
        require_alike(order.config, experiment.config)
        opened = Run(source.folder, order.config)
        experiment.begin(opened)
        _last = source, {cell.key: cell for cell in experiment.cells(opened)}
    return _last[1]


def _require_here(order: Order) -> None:
    node, here = socket.gethostname(), version_here()
    there = version_text(str(order.config["sparing_version"]), str(order.config["commit"]))
    if here != there:
        raise Refused(f"{node} has {here}, this run is of {there}: install the same on all nodes")
    if not (order.source.folder / "config.json").is_file():
        raise Refused(
            f"{node} does not see {order.source.folder}: put it on a path that all nodes share"
        )


def require_alike(expected: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise ``Refused`` unless a run prepared here has the settings and the data of ``config``."""
    node = socket.gethostname()
    for name, digest in config["data"].items():
        here = expected["data"].get(name, digest)
        if here != digest:
            raise Refused(f"{node} has other data of {name}: {digest} there, {here} here")
    for key, value in config["identity"].items():
        if expected["identity"].get(key) != value:
            was, now = difference_texts(expected["identity"].get(key), value)
            raise Refused(f"{node} prepares another run: {key} is {now} there, {was} here")


def _without_times(records: list[Record], others: int) -> list[Record]:
    """The records without times and energies, which cells on one machine take from each other."""
    counted = [r for r in records if r.unit not in TIME_UNITS or r.name == CELL_TIME]
    dropped = sorted({r.name for r in records} - {r.name for r in counted})
    about: Labels = {"others": others, "dropped": ", ".join(dropped)}
    return [*counted, Record(BESIDE, None, "", "measured", about)]
