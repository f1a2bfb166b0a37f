"""Pieces of one study that were run in several folders, put together as one run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.core.scratch import scratch_beside
from sparing.core.writing import write_atomically
from sparing.experiment.registry import study_of
from sparing.experiment.run import (
    ANALYSIS,
    DATA,
    FINISHED,
    MACHINES,
    Run,
    apart,
    data_of,
    machines_of,
    read_config,
)

MODELS, QUESTIONS, TASKS = "models", "questions", "tasks"


@dataclass(frozen=True)
class Merged:
    """What a merged run consists of: how many cells came from each folder, in their order.

    ``doubled`` cells were finished in more than one; the first one's records stand.
    """

    folder: Path
    cells: dict[str, int]
    doubled: int


def merge(folders: Sequence[Path], into: Path) -> Merged:
    """Write the finished cells of all folders as one run into a new one; the others stay.

    Runs that were asked other questions of the same study become a run that is asked all of them.
    Trained models go along, the first folder's of each: cells that are still to do rest on them.
    What followed from the records is left out: the study's own command on the new folder tells it
    anew. Raises ``UsageError`` for fewer than two folders, for runs that are not the same one (in
    settings or data), for studies that are not run in pieces, and where ``into`` holds anything;
    ``DataError`` for folders without a run and for damaged files.
    """
    if len({folder.resolve() for folder in folders}) < 2:
        raise UsageError("there is nothing to merge: name two folders and more")
    configs = [read_config(folder) for folder in folders]
    study = study_of(configs[0].get("study"))
    if not study.shards:
        raise UsageError(f"runs of {study.name} are not made of shards that could be merged")
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        _require_same(folders[0], configs[0], folder, config)
    joined = configs[0]["identity"]
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        joined = _join(folders[0], joined, folder, config["identity"])
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"{into} is not empty: merged runs go into a new folder")
    taken: dict[str, list[Record]] = {}
    counts: dict[str, int] = {}
    doubled = 0
    for folder, config in zip(folders, configs, strict=True):
        own = _cells(Run(folder, config))
        counts[str(folder)] = len(own.keys() - taken.keys())
        doubled += len(own.keys() & taken.keys())
        taken |= {key: records for key, records in own.items() if key not in taken}
    data = {name: digest for each in configs for name, digest in data_of(each).items()}
    machines = {own: facts for each in configs for own, facts in machines_of(each).items()}
    whole = {**configs[0], "identity": joined, "name": into.name, DATA: data, MACHINES: machines}
    _write(into, whole, [record for records in taken.values() for record in records], folders)
    return Merged(into, counts, doubled)


def _cells(run: Run) -> dict[str, list[Record]]:
    """The records of each finished cell, its mark last as it was written."""
    entries = run.log.read()
    finished = {entry.cell for entry in entries if entry.name == FINISHED} - {ANALYSIS}
    found: dict[str, list[Record]] = {}
    for entry in entries:
        if entry.cell in finished:
            found.setdefault(entry.cell, []).append(entry)
    return found


def _require_same(first: Path, before: dict[str, Any], other: Path, config: dict[str, Any]) -> None:
    """The same study on the same data."""
    told, now = data_of(before), data_of(config)
    changed = [name for name in told if now.get(name, told[name]) != told[name]]
    if before.get("study") != config.get("study"):
        raise UsageError(
            f"{first} is a run of {before.get('study')}, {other} one of {config.get('study')}"
        )
    if changed:
        raise UsageError(f"{other} is a run on other data than {first}: {changed[0]} differs")


def _join(first: Path, one: dict[str, Any], other: Path, two: dict[str, Any]) -> dict[str, Any]:
    """One identity of two, which differ at most in which questions are asked.

    Settings of a question (under its name) and of its tasks need only be where it is asked.
    """
    asked = [[*identity.get(QUESTIONS, ())] for identity in (one, two)]
    alone = {*asked[0]} ^ {*asked[1]}
    for key in {**one, **two}:
        if key == QUESTIONS or (key in alone and not (key in one and key in two)):
            continue
        was, now = one.get(key), two.get(key)
        if key == TASKS and alone:
            tasks = [identity.get(TASKS) or {} for identity in (one, two)]
            was, now = ({k: own[k] for k in tasks[0].keys() & tasks[1].keys()} for own in tasks)
        if was != now:
            was, now = apart(was, now)
            raise UsageError(
                f"{other} is another run than {first}: {key} is {now} there, {was} here"
            )
    joined = {**two, **one}
    if alone:
        joined[QUESTIONS] = sorted({*asked[0], *asked[1]})
        joined[TASKS] = {**two.get(TASKS, {}), **one.get(TASKS, {})}
    return joined


def _trainings(folder: Path) -> Iterator[Path]:
    """Where the models of a run lie: the outermost folders below ``models`` that hold files."""
    for place, folders, files in os.walk(folder / MODELS):
        if files:
            folders.clear()
            yield Path(place)


def _copy(place: Path, copy: Path) -> None:
    """Copy a model's folder; an error names one file, not all of them."""
    try:
        shutil.copytree(place, copy)
    except shutil.Error as error:
        why = str(error.args[0][0][2]).partition(": ")[0]
        raise DataError(f"{place} cannot be copied: {why}; nothing was merged") from error


def _write(
    into: Path, config: dict[str, Any], records: Sequence[Record], folders: Sequence[Path]
) -> None:
    """The new folder appears whole or not at all."""
    into = into.resolve()  # "." has no name
    into.parent.mkdir(parents=True, exist_ok=True)
    with scratch_beside(into) as part:
        RecordLog(part / RECORDS).replace(records)
        write_atomically(part / "failed.json", "[]\n")
        for folder in folders:
            for training in _trainings(folder):
                copy = part / training.relative_to(folder)
                if not copy.exists():
                    _copy(training, copy)
        write_atomically(part / "config.json", json.dumps(config, indent=2) + "\n")
        part.replace(into)  # an empty folder that is there gives way
