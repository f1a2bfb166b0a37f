"""Where your own data is: a folder or file, files of the splits, or a data set of the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError
from sparing.core.paths import expanded
from sparing.tasks._endings import ends_with
from sparing.tasks._frame import is_saved_data_set, saved_data_set
from sparing.tasks.shared.hub import from_hub, looks_like_hub


@dataclass(frozen=True)
class OwnFiles:
    """How a task of your own rows finds them.

    ``stems`` are the names of files, or of a data set's splits, by split; those before others are
    preferred. ``missing`` says what a folder without training rows should have.
    """

    task: str
    stems: Mapping[str, Sequence[str]]
    endings: Sequence[str]
    missing: str

    def locate(
        self, source: str, given: Mapping[str, str], data: Path | None
    ) -> tuple[dict[str, Path], Any]:
        """The files by split, or else a data set of ``datasets``; the other is empty or None.

        Names are looked for here, then below ``data``. Raises ``UsageError`` for a source beside
        files, or neither, and ``DataError`` for what is not there.
        """
        if source and given:
            raise UsageError(f"{self.task}: give source or the files of the splits, not both")
        if source:
            return self._of_source(source, _path(source, data))
        if "train" not in given:
            raise UsageError(
                f"{self.task}: give source (a folder, a file, a hub name) or train (a file)"
            )
        files = {split: _path(name, data) for split, name in given.items()}
        for split, path in files.items():
            if not path.is_file():
                raise DataError(f"task {self.task}: there is no file {given[split]}")
        return files, None

    def _of_source(self, source: str, path: Path) -> tuple[dict[str, Path], Any]:
        if not path.exists() and looks_like_hub(source):
            name, _, part = source.partition(":")
            instead = f"there is no file or folder {source} here either"
            return {}, from_hub(self.task, *filter(None, (name, part)), instead=instead)
        if path.is_dir() and is_saved_data_set(path):
            return {}, saved_data_set(path)
        return self._files_of(path), None

    def _files_of(self, path: Path) -> dict[str, Path]:
        """The files of a folder by split; one file alone is train."""
        if path.is_file():
            return {"train": path}
        if not path.is_dir():
            raise DataError(f"task {self.task}: there is no file or folder {path}")
        there = {
            entry.name.lower(): entry
            for entry in sorted(path.iterdir())
            if ends_with(entry.name, self.endings) and entry.is_file()
        }
        files = {}
        for split, stems in self.stems.items():
            names = (stem + ending for stem in stems for ending in self.endings)
            first = next((there[name] for name in names if name in there), None)
            if first is not None:
                files[split] = first
        if "train" not in files:
            raise DataError(f"task {self.task}: {path} has {self.missing}")
        return files

    def splits_in(self, source: str, data_set: Any) -> dict[str, str]:
        """The names of a data set's splits by split; raises ``DataError`` without one to train."""
        named = {
            split: next((stem for stem in stems if stem in data_set), "")
            for split, stems in self.stems.items()
        }
        if not named["train"]:
            raise DataError(f"task {self.task}: {source} has no split train")
        return {split: stem for split, stem in named.items() if stem}


def _path(source: str, data: Path | None) -> Path:
    here = expanded(source)
    below = None if data is None else expanded(data) / source
    return below if below is not None and not here.exists() and below.exists() else here
