"""Finding and opening data files, with errors that say what to put where."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from sparing.core.errors import DataError
from sparing.core.paths import expanded


def given_folder(data: Path | None) -> Path | None:
    """The data folder: ``data``, else the environment variable SPARING_DATA, else none."""
    given = data if data is not None else os.environ.get("SPARING_DATA")
    return expanded(given) if given else None


def data_folder(task: str, data: Path | None, places: Sequence[str], wanted: str) -> Path:
    """The folder that holds a task's files: the first existing of ``places`` below the data folder.

    ``wanted`` says in words which files belong there. The data folder itself is taken where none
    of ``places`` exists, so that it may also be the task's own folder. Raises ``DataError`` when
    there is no data folder.
    """
    root = given_folder(data)
    if root is None:
        raise DataError(
            f"task {task} needs a data folder: give --data or set SPARING_DATA, and put {wanted} "
            f"into its {places[0]}/"
        )
    if not root.is_dir():
        raise DataError(f"task {task}: the data folder {root} does not exist")
    return next((root / place for place in places if (root / place).is_dir()), root)


def find(task: str, folder: Path, choices: Sequence[str]) -> Path:
    """The first of ``choices``, plain or with ``.gz``, that exists in ``folder``."""
    for name in choices:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise DataError(f"task {task}: put {' or '.join(choices)} (or .gz) into {folder}")


def read_bytes(path: Path) -> bytes:
    """All bytes of a file, unpacked where its name ends in .gz.

    Raises ``DataError`` when it cannot be read or its packing is cut short or damaged.
    """
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return file.read()
    except EOFError as error:
        raise DataError(f"{path} is cut short: get it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a sound gzip file: get it again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
