"""A run's folder: finished cells stay, interrupted cells are repeated."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from sparing.core.compressed import compressed_path
from sparing.core.errors import DataError, SparingError, UsageError, is_full, lacks_memory
from sparing.core.locking import held_alone
from sparing.core.progress import Progress, progress_to
from sparing.core.reading import read_json
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.core.writing import replacing, write_atomically
from sparing.experiment.installed import study_names
from sparing.experiment.owned import FIGURES, FOLDERS, drop_run
from sparing.experiment.parallel.leading import ends_together, led
from sparing.measure.load import with_load

FINISHED = "cell"
ANALYSIS = "analysis"
DATA = "data"
MACHINES = "machines"
TRAIN = "train"  # what the verb of that name runs
LONGEST_ERROR = 400


@dataclass(frozen=True)
class Cell:
    """One unit of work that is done whole or not at all; ``key`` names it within the run.

    ``idle`` gives the reason to skip the cell, from the records so far; an empty text where it must
    run. A cell that may run ``beside`` others in another process measures no time, memory or energy
    that counts; before it, the cells with the keys ``needs`` have run. ``together`` is its training
    alone, where several processes can share it: see ``trained_cell``.
    """

    key: str
    work: Callable[[], list[Record]]
    weight: float = 1.0
    idle: Callable[[Sequence[Record]], str] | None = None
    beside: bool = False
    needs: tuple[str, ...] = ()
    together: Callable[[], object] | None = None

    def why_idle(self, records: Sequence[Record]) -> str:
        """The reason to skip it by these records; empty where it must run."""
        return self.idle(records) if self.idle else ""


@dataclass(frozen=True)
class Failure:
    """A cell that ended with an error; the others went on."""

    cell: str
    error: str


def slug(name: str) -> str:
    """A name for keys and folders: small letters and digits, with hyphens between words."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replace a file of tensors in one step, so that it is never half written."""
    from safetensors.torch import save_file

    compressed_path(path).unlink(missing_ok=True)  # it is of an earlier run
    with replacing(path) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A file of ``save_tensors``; raises ``DataError`` where it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path} is missing or damaged ({error}): begin the run anew with --overwrite"
        ) from error
    return tensors


class Run:
    """A folder with ``config.json`` and ``records.jsonl``, which may be compressed.

    Two runs are the same one if ``config["identity"]`` and ``config["data"]``, the digests of the
    data, agree. Everything else (machine, command, time) may differ when a run is continued.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.log = RecordLog(folder / RECORDS)
        self.failures: list[Failure] = []
        self._tell: Progress = lambda fraction, text: None
        self._piece = (0.0, 1.0)  # the running cell's share of the whole
        self._reached = 0.0

    def _part(self, name: str) -> Progress:
        """The progress of the running cell, as its share of the whole; ``name`` begins its text.

        Progress never goes back: a cell that trains several times stays where the first training
        ended.
        """

        def tell(fraction: float, text: str) -> None:
            low, high = self._piece
            self._reached = max(self._reached, low + fraction * (high - low))
            self._tell(self._reached, f"{name}: {text}")

        return tell

    def records(self) -> list[Record]:
        """The records of finished cells, analysis included; torn cells do not count."""
        entries = self.log.read()
        finished = {entry.cell for entry in entries if entry.name == FINISHED}
        return [e for e in entries if e.cell in finished and e.name != FINISHED]

    def finished(self) -> set[str]:
        """The keys of the cells that need not be done again."""
        return {entry.cell for entry in self.log.read() if entry.name == FINISHED}

    def keep(self, key: str, records: Sequence[Record], machine: str = "") -> None:
        """Write a cell's records and, last, the mark that it is finished.

        They come from the machine with that id; without one, from this one.
        """
        machine, commit = machine or str(self.config["machine_id"]), str(self.config["commit"])
        mark = Record(FINISHED, None, "", "measured")
        stamped = [
            replace(entry, cell=key, machine=machine, commit=commit) for entry in (*records, mark)
        ]
        self.log.append(stamped)

    def replace_analysis(self, records: Sequence[Record]) -> None:
        """Replace the records of an earlier analysis."""
        self.log.replace([e for e in self.log.read() if e.cell != ANALYSIS])
        self.keep(ANALYSIS, records)

    def do(self, cells: Sequence[Cell], on_progress: Progress) -> list[Failure]:
        """Do the cells that are not finished; a failed one is noted and the others go on.

        Interruptions, a full disk and full memory end the run at once; everything finished is
        kept.
        """
        self.begin()
        finished, total = self.finished(), sum(cell.weight for cell in cells) or 1.0
        done, self._tell, self._reached = 0.0, on_progress, 0.0
        for cell in cells:
            self._piece = (done / total, (done + cell.weight) / total)
            if cell.key not in finished and not (cell.idle and cell.why_idle(self.records())):
                on_progress(done / total, cell.key)
                self._do_one(cell)
            done += cell.weight
        on_progress(1.0, "done")
        self.write_failures(cells)
        return self.failures

    def write_failures(self, tried: Sequence[Cell]) -> None:
        """Write the failures of this call, and those before it of cells that it did not try."""
        failed = [
            *self._failed_before({cell.key for cell in tried}),
            *(vars(failure) for failure in self.failures),
        ]
        write_atomically(self.folder / "failed.json", json.dumps(failed, indent=2) + "\n")

    def _failed_before(self, tried: set[str]) -> list[dict[str, str]]:
        """What failed in an earlier call and was neither done since nor tried in this one."""
        now = {failure.cell for failure in self.failures} | tried | self.finished()
        try:
            before = read_json(self.folder / "failed.json")
            return [entry for entry in before if entry["cell"] not in now]
        except (DataError, KeyError, TypeError):
            return []

    def _do_one(self, cell: Cell) -> None:
        try:
            with progress_to(self._part(cell.key)):
                records = with_load(partial(led, cell.key, cell.work))
            self.keep(cell.key, records)  # a record that is not finite is refused here
        except Exception as error:
            if ends_all(error) or ends_together(error):
                raise  # the next cell would fail too
            self.failures.append(failure_of(cell.key, error))

    def begin(self) -> None:
        """Drop the records of cells that an earlier process did not finish."""
        entries = self.log.read()
        finished = {entry.cell for entry in entries if entry.name == FINISHED}
        whole = [entry for entry in entries if entry.cell in finished]
        if len(whole) < len(entries):
            self.log.replace(whole)


def failure_of(key: str, error: BaseException) -> Failure:
    """The failure of a cell with this error, in one line."""
    if os.environ.get("SPARING_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exception(error)
    line = str(error).strip().splitlines() or [""]
    known = isinstance(error, SparingError | RuntimeError | ValueError) and line[0]
    message = line[0] if known else f"{type(error).__name__}: {line[0]}".rstrip(": ")
    return Failure(key, message[:LONGEST_ERROR])


def ends_all(error: BaseException) -> bool:
    """Whether the disk or the memory of the machine is full.

    A full accelerator does not end the run: another arm may need less of its memory.
    """
    if type(error).__name__ == "OutOfMemoryError":
        return False
    return lacks_memory(error) or is_full(error) or is_full(error.__cause__)


@contextmanager
def open_run(
    folder: Path,
    config: dict[str, Any],
    *,
    overwrite: bool = False,
    by_task: bool = False,
) -> Iterator[Run]:
    """Open a run's folder for this process alone, new or continued; transformers' bars are hidden.

    With ``by_task`` the keys of a task's cells begin with its name, and the settings of a task
    without finished work may still change.

    Raises ``UsageError`` when the folder holds something else, another run, or is in use, and
    ``DataError`` when its files are corrupt.
    """
    from sparing.models.shared.quiet import quiet

    refuse_strangers(folder)
    with held_alone(folder, "run"), quiet():
        if overwrite:
            if (folder / "config.json").exists():
                read_config(folder, config.get("study"))  # only a run may be overwritten
            drop_run(folder)
        else:
            require_same(folder, config, by_task=by_task)
        path = folder / "config.json"
        before = machines_of(read_config(folder, config.get("study"))) if path.exists() else {}
        config = {**config, MACHINES: before | machines_of(config)}
        write_atomically(path, json.dumps(config, indent=2) + "\n")
        yield Run(folder, config)


def read_config(folder: Path, study: object = None) -> dict[str, Any]:
    """A run's configuration; raises ``DataError`` when the folder holds none.

    Its study is an installed one, a dotted name, or the ``study`` that the caller runs.
    """
    path = folder / "config.json"
    if not path.exists():
        raise DataError(f"{folder} holds no run: there is no config.json")
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("identity"), dict):
        raise DataError(f"{path} is not a run's configuration")
    name = config.get("study")
    known = (*study_names(), TRAIN, study)
    if not isinstance(name, str) or (name not in known and "." not in name):
        raise DataError(f"{path} is not a run's configuration: it names no study")
    return config


def refuse_strangers(folder: Path) -> None:
    """Raise ``UsageError`` before anything is written into a folder that is no run."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return
    strangers = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    if strangers:
        raise UsageError(f"{folder} is not empty and holds no run (found {strangers[0]})")


def require_same(folder: Path, config: dict[str, Any], *, by_task: bool) -> None:
    """Raise ``UsageError`` where the folder holds another run than the one of ``config``."""
    if not (folder / "config.json").exists():
        return
    existing = read_config(folder, config.get("study"))
    if existing["study"] != config.get("study"):
        raise UsageError(
            f"{folder} holds a run of {existing['study']}, not of {config.get('study')}"
        )
    before, now = existing["identity"], config["identity"]
    open_yet = (
        _not_begun(folder, {*(before.get("tasks") or ()), *(now.get("tasks") or ())})
        if by_task
        else set()
    )
    before, now = _without(before, open_yet), _without(now, open_yet)
    digests = data_of(existing)
    changed = [
        name
        for name, digest in data_of(config).items()
        if name not in open_yet and digests.get(name, digest) != digest
    ]
    # settings first: they change a task's rows while its files stay the same
    different = [key for key in {**now, **before} if before.get(key) != now.get(key)]
    if different and not _is_bare(folder, config):
        was, now_is = difference_texts(before.get(different[0]), now.get(different[0]))
        more = f", and {', '.join(different[1:])} differ" if different[1:] else ""
        raise UsageError(
            f"{folder} holds another run: {different[0]} was {was}, is {now_is}{more}; choose "
            "another folder, or begin this one anew with --overwrite"
        )
    if changed and not _is_bare(folder, config):
        raise UsageError(
            f"{folder} holds a run on other data: the files of {changed[0]} have changed since; "
            "choose another folder, or begin this one anew with --overwrite"
        )


def machines_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the machines behind a run's records, by machine id."""
    recorded = config.get(MACHINES)
    machines = dict(recorded) if isinstance(recorded, dict) else {}
    if config.get("machine_id") and config.get("machine"):
        machines[str(config["machine_id"])] = config["machine"]
    return machines


def data_of(config: dict[str, Any]) -> dict[str, str]:
    """Digests of data by task as the identity names it.

    Two questions may use one task with different settings; a run of one question names the task
    without the question. Raises ``DataError`` where the entry is not a table of digests.
    """
    identity, digests = config.get("identity"), config.get(DATA) or {}
    if not isinstance(digests, dict):
        raise DataError(f"{DATA} in config.json is not the digests of a run's data")
    tasks = (identity.get("tasks") or ()) if isinstance(identity, dict) else ()
    by_task = {}
    for name, digest in digests.items():
        whole = [task for task in tasks if str(task).endswith(f"/{name}")]
        by_task[whole[0] if len(whole) == 1 else name] = digest
    return by_task


def _not_begun(folder: Path, tasks: set[str]) -> set[str]:
    """The tasks without a finished cell and without files of a cell in the folder."""
    left = [path.name for name in FOLDERS for path in (folder / name).glob("*")]
    finished = existing_records(folder)[1]
    return {
        task
        for task in tasks
        if not any(key.startswith(f"{task}/") for key in finished)
        and not any(name.startswith(f"{task.replace('/', '-')}-") for name in left)
    }


def _without(identity: dict[str, Any], tasks: set[str]) -> dict[str, Any]:
    """A run's identity without the settings of these tasks."""
    return {
        key: {k: v for k, v in value.items() if k not in tasks}
        if isinstance(value, dict)
        else value
        for key, value in identity.items()
    }


def _is_bare(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a run has no results yet; those of a training are beside its folder."""
    if config.get("study") == TRAIN:
        patterns = ("result.json", "checkpoint-*", "seed-*/result.json", "seed-*/checkpoint-*")
        return not any(True for name in patterns for _ in folder.parent.glob(name))
    return not existing_records(folder)[1] and not any(
        (folder / n).exists() for n in (*FOLDERS, FIGURES)
    )


def difference_texts(before: Any, now: Any) -> tuple[str, str]:
    """Two values as texts; of two dictionaries only the entries that differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        before, now = ({key: value[key] for key in keys if key in value} for value in (before, now))
    return repr(before), repr(now)


def existing_records(folder: Path) -> tuple[list[Record], set[str]]:
    """The records and finished cells of the run in a folder; both are empty without a run.

    Raises ``DataError`` when its files are corrupt.
    """
    if not (folder / "config.json").is_file():
        return [], set()
    run = Run(folder, read_config(folder))
    return run.records(), run.finished()
