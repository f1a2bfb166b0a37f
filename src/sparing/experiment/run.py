"""A run's folder: what is finished stays, what was interrupted is done again, nothing else."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from sparing.measure.load import with_load

FINISHED = "cell"
ANALYSIS = "analysis"
DATA = "data"
MACHINES = "machines"
TRAIN = "train"  # what the verb of that name runs
LONGEST_ERROR = 400


@dataclass(frozen=True)
class Cell:
    """One piece of work that is done whole or not at all; ``key`` names it within the run.

    ``idle`` says, from the records so far, why it would decide nothing; while it says so the cell
    is left out.
    """

    key: str
    work: Callable[[], list[Record]]
    weight: float = 1.0
    idle: Callable[[Sequence[Record]], str] | None = None

    def why_idle(self, records: Sequence[Record]) -> str:
        """Why it need not be done by what is known; empty where it is to be done."""
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
    """Replace a file of tensors in one step; what lies there is whole."""
    from safetensors.torch import save_file

    compressed_path(path).unlink(missing_ok=True)  # it is of an earlier run
    with replacing(path) as beside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, beside)


class Run:
    """A folder with ``config.json`` and ``records.jsonl``, which may be compressed.

    ``config["identity"]`` holds what makes two runs the same one, ``config["data"]`` a digest of
    what was learned from; everything else (machine, command, time) may differ when a run is
    continued.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.log = RecordLog(folder / RECORDS)
        self.failures: list[Failure] = []
        self._tell: Progress = lambda fraction, text: None
        self._piece = (0.0, 1.0)  # of the whole, that the cell at work is
        self._reached = 0.0

    def _part(self, name: str) -> Progress:
        """The progress of the cell at work, as its piece of the whole; ``name`` leads its text.

        A cell that trains several times waits where the first training ended: no bar goes back.
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

    def keep(self, key: str, records: Sequence[Record]) -> None:
        """Write a cell's records and, last, the mark that it is finished."""
        machine, commit = str(self.config["machine_id"]), str(self.config["commit"])
        mark = Record(FINISHED, None, "", "measured")
        stamped = [
            replace(entry, cell=key, machine=machine, commit=commit) for entry in (*records, mark)
        ]
        self.log.append(stamped)

    def replace_analysis(self, records: Sequence[Record]) -> None:
        """Put what follows from the measurements in place of an earlier analysis."""
        self.log.replace([e for e in self.log.read() if e.cell != ANALYSIS])
        self.keep(ANALYSIS, records)

    def do(self, cells: Sequence[Cell], on_progress: Progress) -> list[Failure]:
        """Do the cells that are not finished; a failed one is noted and the others go on.

        Interruptions, a full disk and a memory that is full end the run at once; everything
        finished is kept.
        """
        self._drop_torn_cells()
        finished, total = self.finished(), sum(cell.weight for cell in cells) or 1.0
        done, self._tell, self._reached = 0.0, on_progress, 0.0
        for cell in cells:
            self._piece = (done / total, (done + cell.weight) / total)
            if cell.key not in finished and not (cell.idle and cell.why_idle(self.records())):
                on_progress(done / total, cell.key)
                self._do_one(cell)
            done += cell.weight
        on_progress(1.0, "done")
        tried = {cell.key for cell in cells}
        failed = [*self._failed_before(tried), *(vars(failure) for failure in self.failures)]
        write_atomically(self.folder / "failed.json", json.dumps(failed, indent=2) + "\n")
        return self.failures

    def _failed_before(self, tried: set[str]) -> list[dict[str, str]]:
        """What failed in an earlier call and was neither done since nor tried in this one."""
        now = {failure.cell for failure in self.failures} | tried | self.finished()
        try:
            before = read_json(self.folder / "failed.json")
            return [each for each in before if each["cell"] not in now]
        except (DataError, KeyError, TypeError):
            return []

    def _do_one(self, cell: Cell) -> None:
        try:
            with progress_to(self._part(cell.key)):
                found = with_load(cell.work)
            self.keep(cell.key, found)  # a record that is not finite is refused here
        except Exception as error:
            if _ends_all(error):
                raise  # the next one would fare no better
            if os.environ.get("SPARING_LOG_LEVEL", "").lower() == "debug":
                traceback.print_exc()
            line = str(error).strip().splitlines() or [""]
            known = isinstance(error, SparingError | RuntimeError | ValueError) and line[0]
            told = line[0] if known else f"{type(error).__name__}: {line[0]}".rstrip(": ")
            self.failures.append(Failure(cell.key, told[:LONGEST_ERROR]))

    def _drop_torn_cells(self) -> None:
        entries = self.log.read()
        finished = {entry.cell for entry in entries if entry.name == FINISHED}
        whole = [entry for entry in entries if entry.cell in finished]
        if len(whole) < len(entries):
            self.log.replace(whole)


def _ends_all(error: Exception) -> bool:
    """Whether the machine has no room left: on its disk, or in its memory.

    A device's memory is another matter: arms differ in what they need of it.
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

    ``by_task`` says that the keys of a task's cells begin with its name: then what is said of a
    task that nothing was done for yet may still change.

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

    Its study is one of ours, a dotted name, or the ``study`` that the caller runs.
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
    """Raise ``UsageError`` before anything is written into a folder that is not ours."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return
    strangers = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    if strangers:
        raise UsageError(f"{folder} is not empty and holds no run (found {strangers[0]})")


def require_same(folder: Path, config: dict[str, Any], *, by_task: bool) -> None:
    """Raise ``UsageError`` where the folder holds another run than the one of ``config``."""
    if not (folder / "config.json").exists():
        return
    there = read_config(folder, config.get("study"))
    if there["study"] != config.get("study"):
        raise UsageError(f"{folder} holds a run of {there['study']}, not of {config.get('study')}")
    before, now = there["identity"], config["identity"]
    open_yet = (
        _not_begun(folder, {*(before.get("tasks") or ()), *(now.get("tasks") or ())})
        if by_task
        else set()
    )
    before, now = _without(before, open_yet), _without(now, open_yet)
    told = data_of(there)  # older versions did not tell
    changed = [
        name
        for name, digest in data_of(config).items()
        if name not in open_yet and told.get(name, digest) != digest
    ]
    # settings first: with others a task has other rows, and its files are the same
    different = [key for key in {**now, **before} if before.get(key) != now.get(key)]
    if different and not _is_bare(folder, config):
        was, now_is = apart(before.get(different[0]), now.get(different[0]))
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
    """What is known of the machines that a run's records may come from, by their ids."""
    told = config.get(MACHINES)
    found = dict(told) if isinstance(told, dict) else {}
    if config.get("machine_id") and config.get("machine"):
        found[str(config["machine_id"])] = config["machine"]
    return found


def data_of(config: dict[str, Any]) -> dict[str, str]:
    """Digests of data by task as the identity names it.

    Two questions may train on one task each in its own way, and a run that is asked one of them
    tells the task without the question. Raises ``DataError`` where they are no digests.
    """
    identity, told = config.get("identity"), config.get(DATA) or {}
    if not isinstance(told, dict):
        raise DataError(f"{DATA} in config.json is not the digests of a run's data")
    tasks = (identity.get("tasks") or ()) if isinstance(identity, dict) else ()
    found = {}
    for name, digest in told.items():
        whole = [task for task in tasks if str(task).endswith(f"/{name}")]
        found[whole[0] if len(whole) == 1 else name] = digest
    return found


def _not_begun(folder: Path, tasks: set[str]) -> set[str]:
    """The tasks that have no finished cell and nothing that a cell left in the folder."""
    left = [place.name for name in FOLDERS for place in (folder / name).glob("*")]
    finished = standing(folder)[1]
    return {
        task
        for task in tasks
        if not any(key.startswith(f"{task}/") for key in finished)
        and not any(name.startswith(f"{task.replace('/', '-')}-") for name in left)
    }


def _without(identity: dict[str, Any], tasks: set[str]) -> dict[str, Any]:
    """A run's identity less what it says of these tasks alone."""
    return {
        key: {k: v for k, v in value.items() if k not in tasks}
        if isinstance(value, dict)
        else value
        for key, value in identity.items()
    }


def _is_bare(folder: Path, config: dict[str, Any]) -> bool:
    """Whether a run came to nothing yet; what a training has lies around its folder."""
    if config.get("study") == TRAIN:
        kept = ("result.json", "checkpoint-*", "seed-*/result.json", "seed-*/checkpoint-*")
        return not any(True for name in kept for _ in folder.parent.glob(name))
    return not standing(folder)[1] and not any((folder / n).exists() for n in (*FOLDERS, FIGURES))


def apart(before: Any, now: Any) -> tuple[str, str]:
    """Two values in words; of two dictionaries what differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        before, now = ({key: each[key] for key in keys if key in each} for each in (before, now))
    return repr(before), repr(now)


def standing(folder: Path) -> tuple[list[Record], set[str]]:
    """The records and finished cells of the run in a folder; none of either where there is no run.

    Raises ``DataError`` when its files are corrupt.
    """
    if not (folder / "config.json").is_file():
        return [], set()
    there = Run(folder, read_config(folder))
    return there.records(), there.finished()
