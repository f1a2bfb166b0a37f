"""Pieces of one study that were run in several folders, put together as one run."""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparing.core.errors import UsageError
from sparing.core.folder import Folder
from sparing.core.record import Record
from sparing.studies._run import (
    ANALYSIS,
    DATA,
    FINISHED,
    Run,
    apart,
    read_config,
    write_atomically,
)

MODELS = "models"


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

    Trained models go along, the first folder's of each: cells that are still to do rest on them.
    What followed from the records is left out: the study's own command on the new folder tells it
    anew. Raises ``UsageError`` for fewer than two folders, for runs that are not the same one (in
    settings or data), for studies that are not run in pieces, and where ``into`` holds anything;
    ``DataError`` for folders without a run and for damaged files.
    """
    if len({folder.resolve() for folder in folders}) < 2:
        raise UsageError("there is nothing to merge: name two folders and more")
    configs = [read_config(folder) for folder in folders]
    _require_pieces(str(configs[0].get("study")))
    for folder, config in zip(folders[1:], configs[1:], strict=True):
        _require_same(folders[0], configs[0], folder, config)
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
    data = {name: digest for each in configs for name, digest in (each.get(DATA) or {}).items()}
    whole = {**configs[0], "name": into.name, DATA: data}
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


def _require_pieces(study: str) -> None:
    """Cells of other runs rest on files that lie beside their records."""
    module = Folder("sparing.studies", "study").load(study)
    if not hasattr(module, "run") or "cells" not in inspect.signature(module.run).parameters:
        raise UsageError(f"runs of {study} are not made of pieces that could be merged")


def _require_same(first: Path, before: dict[str, Any], other: Path, config: dict[str, Any]) -> None:
    told, now = before.get(DATA) or {}, config.get(DATA) or {}
    changed = [name for name in told if now.get(name, told[name]) != told[name]]
    if before.get("study") != config.get("study"):
        raise UsageError(
            f"{first} is a run of {before.get('study')}, {other} one of {config.get('study')}"
        )
    if changed:
        raise UsageError(f"{other} is a run on other data than {first}: {changed[0]} differs")
    one, two = before["identity"], config["identity"]
    different = [key for key in {**one, **two} if one.get(key) != two.get(key)]
    if different:
        was, is_now = apart(one.get(different[0]), two.get(different[0]))
        raise UsageError(
            f"{other} is another run than {first}: {different[0]} is {is_now} there, {was} here"
        )


def _trainings(folder: Path) -> Iterator[Path]:
    """Where the models of a run lie: the outermost folders below ``models`` that hold files."""
    for place, folders, files in os.walk(folder / MODELS):
        if files:
            folders.clear()
            yield Path(place)


def _write(
    into: Path, config: dict[str, Any], records: Sequence[Record], folders: Sequence[Path]
) -> None:
    """The new folder appears whole or not at all."""
    beside = into.with_name(f".{into.name}.{os.getpid()}")
    try:
        write_atomically(
            beside / "records.jsonl", "".join(f"{entry.to_json()}\n" for entry in records)
        )
        write_atomically(beside / "failed.json", "[]\n")
        for folder in folders:
            for place in _trainings(folder):
                copy = beside / place.relative_to(folder)
                if not copy.exists():
                    shutil.copytree(place, copy)
        write_atomically(beside / "config.json", json.dumps(config, indent=2) + "\n")
        if into.is_dir():
            into.rmdir()
        beside.replace(into)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
