"""Files of a data set as published: in a folder, a tar or a zip, read without unpacking."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sparing.core.errors import DataError, SparingError, quoted
from sparing.tasks._endings import ends_with
from sparing.tasks.shared.files import CHUNK_BYTES, read_most, unpacked_limit

ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
MOST_MEMBERS = 2_000_000
PICTURE_BYTES = 2**26  # of one packed picture
TEXT_BYTES = 2**24
_PACKED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_Read = Callable[[], bytes]


def find_archive(task: str, folder: Path, stems: Sequence[str], needed: str) -> Path:
    """The first folder, else archive, with a name that begins with one of ``stems``.

    Longer names (``aclImdb_v1.tar.gz``) match too. ``needed`` names the files for the error.
    """
    for stem in stems:
        if (folder / stem).is_dir():
            return folder / stem
    for stem in stems:
        for path in sorted(folder.glob(f"{stem}*")):
            if path.is_file() and ends_with(path.name, ENDINGS):
                return path
    raise DataError(f"task {task}: put {needed} into {folder}")


def files_in(path: Path, pattern_text: str, most: int) -> Iterator[tuple[re.Match[str], bytes]]:
    """The files with a path that ends with a match of ``pattern_text``, with the match.

    The order is arbitrary.
    """
    pattern = re.compile(f".*/{pattern_text}")
    with damage_named(path):
        for number, (name, size, read) in enumerate(_members(path, most)):
            if number >= MOST_MEMBERS:
                raise DataError(f"{path} holds more than {MOST_MEMBERS:,} files")
            match = pattern.fullmatch(f"/{name}")
            if match is not None:
                if size > most:
                    raise DataError(
                        f"{path}: {quoted(name)} has {size:,} bytes; at most {most:,} are read"
                    )
                yield match, read()


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn any error of a damaged archive into ``DataError``, in one line."""
    try:
        yield
    except (SparingError, MemoryError):
        raise
    except OSError as error:
        reason = error.strerror or "not a sound gzip file"
        raise DataError(f"{path} cannot be read: {reason}") from error
    except Exception as error:  # the readers of archives raise errors of a dozen kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(
            f"{path} is damaged or cut short: get it again ({quoted(reason)[1:-1]})"
        ) from error


def _members(source: Path, most: int) -> Iterator[tuple[str, int, _Read]]:
    """The path, the size and a reader of each plain file."""
    if source.is_dir():
        for path in source.rglob("*"):
            if path.is_file():
                name = path.relative_to(source).as_posix()
                yield name, path.stat().st_size, functools.partial(_plain, path, most)
    elif source.suffix.lower() == ".zip":
        limit = unpacked_limit(source.stat().st_size)
        with zipfile.ZipFile(source) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > limit:
                raise DataError(f"{source} unpacks to more than {limit:,} bytes")
            for entry in entries:
                yield entry.filename, entry.file_size, functools.partial(archive.read, entry)
    else:
        yield from _tar_members(source, most)


def _plain(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return read_most(file, most)[:most]


def _tar_members(path: Path, most: int) -> Iterator[tuple[str, int, _Read]]:
    with path.open("rb") as file:
        start = file.read(6)
    opener = next((_PACKED[mark] for mark in _PACKED if start.startswith(mark)), _open_plain)
    with opener(path) as unpacked:
        limit = unpacked_limit(path.stat().st_size)
        bounded = cast(Any, _Bounded(path, unpacked, limit, most))
        with tarfile.open(fileobj=bounded, mode="r:") as tar:
            for member in tar:
                if member.isfile():
                    yield member.name, member.size, functools.partial(_content, tar, member)
                if member.offset_data + member.size > limit:
                    raise DataError(f"{path} unpacks to more than {limit:,} bytes")
            _require_end(tar)


def _open_plain(path: Path) -> io.BufferedIOBase:
    return path.open("rb")


class _Bounded(io.RawIOBase):
    """An unpacked stream with a limit on its bytes, in all and at once.

    tarfile reads a header of any size that the archive states into memory.
    """

    def __init__(self, path: Path, stream: io.BufferedIOBase, total: int, at_once: int) -> None:
        self.path, self.stream = path, stream
        self.total, self.at_once = total, max(at_once, CHUNK_BYTES)

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if not 0 <= size <= self.at_once:
            raise DataError(f"{self.path} has a part of {size:,} bytes; {self.at_once:,} at most")
        content = self.stream.read(size)
        self._require(self.stream.tell())
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, unpacking everything before it."""
        if whence == io.SEEK_SET:
            self._require(offset)
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        """The position in the unpacked stream."""
        return self.stream.tell()

    def _require(self, position: int) -> None:
        if position > self.total:
            raise DataError(f"{self.path} unpacks to more than {self.total:,} bytes")


def _require_end(tar: tarfile.TarFile) -> None:
    """Raise ``TarError`` unless the archive ends where reading did and its checksum is right.

    A damaged header in the middle looks like the end to tarfile, which would skip the rest.
    """
    file = tar.fileobj
    assert file is not None
    file.seek(tar.offset)
    while content := file.read(CHUNK_BYTES):  # a gzip file has its checksum at its end
        if content.strip(b"\0"):
            raise tarfile.ReadError(f"no sound header at byte {tar.offset:,}")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None  # it is a plain file
    return file.read()
