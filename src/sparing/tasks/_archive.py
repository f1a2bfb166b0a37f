"""Files of a data set as published: in a folder, a tar or a zip, read without unpacking."""

from __future__ import annotations

import functools
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sparing.core.errors import DataError

TORN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,  # of a zip whose entry names a way to pack that there is not, or a password
)
CHUNK_BYTES = 2**20
ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_Read = Callable[[], bytes]


def find_archive(task: str, folder: Path, stems: Sequence[str], wanted: str) -> Path:
    """The first folder, else archive, whose name begins with one of ``stems``.

    Names that go on (``aclImdb_v1.tar.gz``) serve too. ``wanted`` says in words what belongs there.
    """
    for stem in stems:
        if (folder / stem).is_dir():
            return folder / stem
    for stem in stems:
        for path in sorted(folder.glob(f"{stem}*")):
            if path.is_file() and path.name.endswith(ENDINGS):
                return path
    raise DataError(f"task {task}: put {wanted} into {folder}")


def files_in(place: Path, wanted: str) -> Iterator[tuple[re.Match[str], bytes]]:
    """The files whose path matches ``wanted`` at its end, with the match, in no certain order.

    Paths have slashes and begin with one. Raises ``DataError`` for an archive that is damaged.
    """
    pattern = re.compile(f".*/{wanted}")
    try:
        for name, read in _members(place):
            match = pattern.fullmatch(f"/{name}")
            if match is not None:
                yield match, read()
    except TORN as error:
        raise DataError(f"{place} is damaged or cut short: get it again ({error})") from error
    except OSError as error:
        reason = error.strerror or "not a sound gzip file"
        raise DataError(f"{place} cannot be read: {reason}") from error


def _members(place: Path) -> Iterator[tuple[str, _Read]]:
    if place.is_dir():
        for path in place.rglob("*"):
            if path.is_file():
                yield path.relative_to(place).as_posix(), path.read_bytes
    elif place.suffix == ".zip":
        with zipfile.ZipFile(place) as archive:
            for entry in archive.infolist():
                yield entry.filename, functools.partial(archive.read, entry)
    else:
        with tarfile.open(place) as tar:
            for member in tar:
                if member.isfile():
                    yield member.name, functools.partial(_content, tar, member)
            _require_end(tar)


def _require_end(tar: tarfile.TarFile) -> None:
    """Raise ``TarError`` unless the archive ends where reading did, and its checksum is right.

    A damaged header in the middle looks like the end to tarfile: the rest would be left out.
    """
    file = tar.fileobj
    assert file is not None
    file.seek(tar.offset)
    while content := file.read(CHUNK_BYTES):  # to its end: there is the checksum of a gzip file
        if content.strip(b"\0"):
            raise tarfile.ReadError(f"no sound header at byte {tar.offset:,}")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None  # it is a plain file
    return file.read()
