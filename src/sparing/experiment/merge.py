"""Merge the shards of one study, run in several folders, into one run."""

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
    data_of,
    difference_texts,
    machines_of,
    read_config,
)

MODELS, QUESTIONS, TASKS = "models", "questions", "tasks"


@dataclass(frozen=True)
class Merged:
    """What a merged run consists of: how many cells came from each folder, in their order.

    ``doubled`` cells were finished in more than one; the first one's records are kept.
    """

    folder: Path
    cells: dict[str, int]
    doubled: int


def merge(folders: Sequence[Path], into: Path) -> Merged:
    """Write the finished cells of all folders as one run into a new one; the others stay.

    Runs of different questions of one study become a run of all these questions. Trained models
    are copied, the first folder's of each, because open cells need them. The analysis is left out:
    the study's command on the new folder computes it again.

    Raises ``UsageError`` for fewer than two folders, runs with other settings or data, studies
    without shards, and a folder ``into`` that is not empty. Raises ``DataError`` for folders
    without a run and for damaged files.
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
        cells = _cells(Run(folder, config))
        counts[str(folder)] = len(cells.keys() - taken.keys())
        doubled += len(cells.keys() & taken.keys())
        taken |= {key: records for key, records in cells.items() if key not in taken}
    data = {name: digest for config in configs for name, digest in data_of(config).items()}
    machines = {
        machine: facts for config in configs for machine, facts in machines_of(config).items()
    }
    whole = {**configs[0], "identity": joined, "name": into.name, DATA: data, MACHINES: machines}
    _write(into, whole, [record for records in taken.values() for record in records], folders)
    return Merged(into, counts, doubled)


def _cells(run: Run) -> dict[str, list[Record]]:
    """The records of each finished cell, its mark last as it was written."""
    entries = run.log.read()
    finished = {entry.cell for entry in entries if entry.name == FINISHED} - {ANALYSIS}
    cells: dict[str, list[Record]] = {}
    for entry in entries:
        if entry.cell in finished:
            cells.setdefault(entry.cell, []).append(entry)
    return cells


def _require_same(first: Path, before: dict[str, Any], other: Path, config: dict[str, Any]) -> None:
    """The same study on the same data."""
    digests, now = data_of(before), data_of(config)
    changed = [name for name in digests if now.get(name, digests[name]) != digests[name]]
    if before.get("study") != config.get("study"):
        raise UsageError(
            f"{first} is a run of {before.get('study')}, {other} one of {config.get('study')}"
        )
    if changed:
        raise UsageError(f"{other} is a run on other data than {first}: {changed[0]} differs")


def _join(first: Path, one: dict[str, Any], other: Path, two: dict[str, Any]) -> dict[str, Any]:
    """One identity of two, which differ at most in their questions.

    A run without a question need not have its settings (under its name) and those of its tasks.
    """
    questions = [[*identity.get(QUESTIONS, ())] for identity in (one, two)]
    alone = {*questions[0]} ^ {*questions[1]}
    for key in {**one, **two}:
        if key == QUESTIONS or (key in alone and not (key in one and key in two)):
            continue
        was, now = one.get(key), two.get(key)
        if key == TASKS and alone:
            tasks = [identity.get(TASKS) or {} for identity in (one, two)]
            was, now = (
                {k: settings[k] for k in tasks[0].keys() & tasks[1].keys()} for settings in tasks
            )
        if was != now:
            was, now = difference_texts(was, now)
            raise UsageError(
                f"{other} is another run than {first}: {key} is {now} there, {was} here"
            )
    joined = {**two, **one}
    if alone:
        joined[QUESTIONS] = sorted({*questions[0], *questions[1]})
        joined[TASKS] = {**two.get(TASKS, {}), **one.get(TASKS, {})}
    return joined


def _trainings(folder: Path) -> Iterator[Path]:
    """The folders of a run's models: the outermost ones below ``models`` that hold files."""
    for path, folders, files in os.walk(folder / MODELS):
        if files:
            folders.clear()
            yield Path(path)


def _copy(source: Path, copy: Path) -> None:
    """Copy a model's folder; an error names one file, not all of them."""
    try:
        shutil.copytree(source, copy)
    except shutil.Error as error:
        why = str(error.args[0][0][2]).partition(": ")[0]
        raise DataError(f"{source} cannot be copied: {why}; nothing was merged") from error


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
        part.replace(into)  # replaces an empty folder
