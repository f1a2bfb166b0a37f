"""Finding and opening data files, with errors that name the files and where to put them."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import cast

from sparing.core.errors import DataError, quoted
from sparing.core.paths import expanded

CHUNK_BYTES = 2**20
# The largest unpacked size, relative to the file: texts reach 10 times, zeros 1,000.
FREE_BYTES, MOST_TIMES, MOST_BYTES = 2**26, 50, 2**33


def given_folder(data: Path | None) -> Path | None:
    """The data folder: ``data``, else the environment variable SPARING_DATA, else none."""
    given = data if data is not None else os.environ.get("SPARING_DATA")
    return expanded(given) if given else None


def data_folder(task: str, data: Path | None, folders: Sequence[str], needed: str) -> Path:
    """The folder of a task's files: the first existing of ``places`` below the data folder.

    ``needed`` names the files for the error. The data folder itself is used where none of
    ``places`` exists, so it may also be the task's own folder. Raises ``DataError`` when there is
    no data folder.
    """
    root = given_folder(data)
    if root is None:
        raise DataError(
            f"task {task} needs a data folder: give --data or set SPARING_DATA, and put {needed} "
            f"into its {folders[0]}/"
        )
    if not root.is_dir():
        raise DataError(f"task {task}: the data folder {root} does not exist")
    return next((root / folder for folder in folders if (root / folder).is_dir()), root)


def find(task: str, folder: Path, choices: Sequence[str]) -> Path:
    """The first of ``choices``, plain or with ``.gz``, that exists in ``folder``."""
    for name in choices:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    raise DataError(f"task {task}: put {' or '.join(choices)} (or .gz) into {folder}")


def unpacked_limit(packed: int) -> int:
    """The most bytes that a packed file may unpack to: more is a mistake or an attack."""
    return min(MOST_BYTES, max(FREE_BYTES, MOST_TIMES * packed))


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """A file to read, unpacked where its name ends in .gz.

    Raises ``DataError`` for anything that is not a file; also, while reading, for a file that is
    unreadable, cut short or damaged.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file")  # reading a pipe would block
    try:
        with gzip.open(path) if is_packed(path) else path.open("rb") as file:
            yield cast(BufferedIOBase, file)
    except EOFError as error:
        raise DataError(f"{path} is cut short: get it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a sound gzip file: get it again") from error
    except OSError as error:
        reason = error.strerror or quoted(str(error))[1:-1]
        raise DataError(f"{path} cannot be read: {reason}") from error


def is_packed(path: Path) -> bool:
    """Whether a file's name ends in .gz."""
    return path.suffix.lower() == ".gz"


def read_bytes(path: Path) -> bytes:
    """All bytes of a file, as ``opened`` returns them.

    Raises ``DataError`` also above ``unpacked_limit``, or above 8 GiB.
    """
    with opened(path) as file:
        limit = unpacked_limit(path.stat().st_size) if is_packed(path) else MOST_BYTES
        content = read_most(file, limit)
    if len(content) > limit:
        raise DataError(f"{path} holds more than {limit:,} bytes: is it what it should be?")
    return content


def read_most(file: BufferedIOBase, most: int) -> bytes:
    """The file's bytes, at most one more than ``most``; read in chunks, to save memory."""
    content = bytearray()
    while len(content) <= most:
        chunk = file.read(min(CHUNK_BYTES, most + 1 - len(content)))
        if not chunk:
            break
        content += chunk
    return bytes(content)
