"""Pack a finished run for git: compress its records, remove files that can be written again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparing.core.compressed import compress_file, compressed_path, stored_path
from sparing.core.errors import DataError, UsageError
from sparing.core.locking import held_alone
from sparing.core.reading import read_json
from sparing.core.record import RECORDS, Record, RecordLog
from sparing.experiment.installed import study_names
from sparing.experiment.owned import ANSWERS, CHANGED, PAGE, drop_drawn
from sparing.experiment.plan import IDLE
from sparing.experiment.registry import find_study
from sparing.experiment.run import FINISHED, read_config
from sparing.report.rendering import replace_file
from sparing.report.run import read_run

COMPRESSED = (RECORDS, ANSWERS, CHANGED)
KEPT = ("config.json", "goals.json", "failed.json", "state.json", PAGE)


@dataclass(frozen=True)
class Packed:
    """The result of packing: the bytes of files for git, before and after.

    ``sparing report`` writes the ``removed`` files again. ``left`` are other files and folders,
    with their bytes: they stay, and do not belong in git.
    """

    folder: Path
    bytes_before: int
    bytes_after: int
    removed: tuple[str, ...]
    left: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "folder": str(self.folder)}


def pack(folder: Path, *, partial: bool = False) -> Packed:
    """Compress records and answers of a finished run, write report.md, remove drawings.

    A packed folder is only brought up to date. A file is removed after its compressed form was
    read back and is the same. ``partial`` packs a run
    with cells that are not done, too. The next command that adds to the run unpacks it.

    Raises ``UsageError`` for a run that is in use or, unless ``partial``, not finished, and
    ``DataError`` for a folder that is no run or is damaged.
    """
    config = read_config(folder, _study_of(folder))
    with held_alone(folder, "run"):
        log = RecordLog(folder / RECORDS)
        records = log.read()
        if not records:
            raise DataError(f"{folder} holds no records to pack")
        reason = "" if partial else _unfinished(folder, config, records)
        if reason:
            raise UsageError(
                f"{folder} is not finished: {reason}; its own command goes on, and --partial "
                "packs it as it is"
            )
        before = _bytes_of(folder.rglob("*"))
        for name in COMPRESSED:
            if stored_path(folder / name) and (folder / name).exists():  # raises where two differ
                compress_file(folder / name)
        if config["study"] in study_names():
            page = find_study(config["study"]).page(read_run(folder)).markdown
            replace_file(folder / PAGE, page.encode())
        removed = [str(path.relative_to(folder)) for path in drop_drawn(folder)]
        (folder / ".lock").unlink(missing_ok=True)
        return _packed(folder, before, removed)


def _study_of(folder: Path) -> object:
    """The study that a folder names, whether it is installed or not: nothing of it is imported."""
    if not (folder / "config.json").is_file():
        return None
    config = read_json(folder / "config.json")
    return config.get("study") if isinstance(config, dict) else None


def _unfinished(folder: Path, config: dict[str, Any], records: Sequence[Record]) -> str:
    """The reason why a run is not finished; empty where it is."""
    finished = {record.cell for record in records if record.name == FINISHED}
    skipped = {record.labels.get("key") for record in records if record.name == IDLE}
    planned = config.get("cells") or []
    missing = [key for key in planned if key not in finished | skipped]
    torn = sorted({record.cell for record in records} - finished)
    if missing:
        return f"{len(missing):,} of {len(planned):,} cells are not done, such as {missing[0]}"
    if torn:
        return f"the cell {torn[0]} was interrupted"
    if config["study"] in study_names() and not (folder / "goals.json").is_file():
        return "its goals are not decided"
    return ""


def _packed(folder: Path, before: int, removed: Sequence[str]) -> Packed:
    file_names = {*KEPT, *(compressed_path(folder / name).name for name in COMPRESSED)}
    left = {
        path.name: _bytes_of(path.rglob("*") if path.is_dir() else [path])
        for path in sorted(folder.iterdir())
        if path.name not in file_names
    }
    after = _bytes_of(folder / name for name in file_names)
    return Packed(folder, before - sum(left.values()), after, tuple(removed), left)


def _bytes_of(paths: Iterable[Path]) -> int:
    """The bytes of those that are plain files."""
    return sum(p.stat().st_size for p in paths if p.is_file() and not p.is_symlink())
