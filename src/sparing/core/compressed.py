"""Files that git keeps compressed: a reader of ``NAME`` takes ``NAME.xz``, too."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from sparing.core.errors import DataError, UsageError
from sparing.core.reading import read_plain
from sparing.core.writing import remove_replaced, write_atomically

LARGEST_CONTENT = 2**28  # bytes of one file; the largest that a study wrote has 15 MB
MOST_MEMORY = 2**27  # bytes that reading a file may need; the largest preset needs 65 MB


def compressed_path(path: Path) -> Path:
    """Where the compressed form of a file is."""
    return path.with_name(f"{path.name}.xz")


def stored_path(path: Path) -> Path | None:
    """The file that holds the content of ``path``: itself or its compressed form; None without.

    A process that was killed while it changed one into the other leaves both, with one content.
    Raises ``DataError`` where there are both and they differ.
    """
    packed = compressed_path(path)
    if not packed.exists():
        return path if path.exists() else None
    if path.exists() and read_stored(path) != read_stored(packed):
        raise DataError(f"{path} and {packed.name} differ: move the one that is wrong away")
    return packed


def read_stored(path: Path) -> bytes:
    """The content of a file, of a compressed one (``.xz``) what was compressed.

    Raises ``DataError`` in one line where it cannot be read, and where a compressed one is damaged
    or holds more than 256 MiB.
    """
    try:
        data = read_plain(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return _expanded(data, path) if path.suffix == ".xz" else data


def _expanded(data: bytes, path: Path) -> bytes:
    """What was compressed; no more than the limit is ever held, whatever a file claims."""
    lzma = _lzma()
    reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)
    try:
        content: bytes = reader.decompress(data, LARGEST_CONTENT + 1)
    except lzma.LZMAError as error:
        raise DataError(f"{path} cannot be read: it is damaged, or no xz file") from error
    if len(content) > LARGEST_CONTENT:
        raise DataError(f"{path} cannot be read: it holds more than {LARGEST_CONTENT >> 20} MiB")
    if not reader.eof:
        raise DataError(f"{path} cannot be read: it is cut short")
    if reader.unused_data:
        raise DataError(f"{path} cannot be read: something follows its compressed content")
    return content


def compress_file(path: Path) -> Path:
    """Put the compressed form of a file in its place, and return where that is.

    The same content gives the same bytes: no time and no name are in them. The file is removed
    after its compressed form was read back from disk. Raises ``DataError`` for more than 256 MiB.
    """
    packed = compressed_path(path)
    content = read_stored(path)
    if len(content) > LARGEST_CONTENT:
        raise DataError(f"{path} is too large to compress: more than {LARGEST_CONTENT >> 20} MiB")
    write_atomically(packed, _compressed(content))
    if read_stored(packed) != content:
        raise DataError(f"{packed} does not hold what was written; {path.name} was kept")
    remove_replaced(path)
    return packed


def _compressed(content: bytes) -> bytes:
    """In the format xz.

    Records and answers take a third less than in gzip at its best, which looks back too little to
    see that several forms have equal numbers. Larger presets gain nothing more.
    """
    lzma = _lzma()
    compressed: bytes = lzma.compress(content, preset=6 | lzma.PRESET_EXTREME)
    return compressed


def _lzma() -> ModuleType:
    """The module that reads and writes xz, which a Python may have been built without."""
    try:
        import lzma
    except ImportError as error:
        raise UsageError(
            "this Python was built without lzma, which packed runs need: build it again beside "
            "liblzma's headers, or use another"
        ) from error
    return lzma


def expand_file(path: Path) -> None:
    """Put a file in the place of its compressed form, where that is what there is.

    Raises ``DataError`` as ``stored_path`` and ``read_stored`` do.
    """
    if stored_path(path) != (packed := compressed_path(path)):
        return
    if not path.exists():
        write_atomically(path, read_stored(packed))
    remove_replaced(packed)
