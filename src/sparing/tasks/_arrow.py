"""Arrow files from others, checked before anything in them is unpacked."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, quoted
from sparing.core.reading import read_object

STATE, FILES = "state.json", "_data_files"
HEADER, BATCH_OF_DICTIONARY, COMPRESSION = 2, 1, 3  # fields of the format's own tables, by number


def require_plain_files(folder: Path) -> None:
    """Raise ``DataError`` unless a saved data set's files are in it and uncompressed.

    ``save_to_disk`` never compresses. A compressed file of kilobytes may unpack to more than the
    memory, and is unpacked as soon as it is opened.
    """
    for state in sorted({*folder.glob(STATE), *folder.glob(f"*/{STATE}")}):
        listed = read_object(state, DataError).get(FILES, [])
        for entry in listed if isinstance(listed, list) else ():
            name = entry.get("filename") if isinstance(entry, dict) else None
            if not isinstance(name, str) or name != Path(name).name:
                raise DataError(f"{state} names the file {quoted(name)}, not one beside it")
            if (state.parent / name).is_file() and _is_compressed(state.parent / name):
                raise DataError(f"{state.parent / name} is compressed, as save_to_disk never is")


def _is_compressed(path: Path) -> bool:
    """Whether any batch of an arrow stream is compressed; bodies are not read."""
    import pyarrow as pa  # type: ignore[import-untyped]

    with pa.memory_map(str(path)) as source:
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type in ("record batch", "dictionary"):
                metadata = message.metadata.to_pybytes()
                batch = _table(metadata, _root(metadata), HEADER)
                if batch is not None and message.type == "dictionary":
                    batch = _table(metadata, batch, BATCH_OF_DICTIONARY)
                if batch is not None and _field(metadata, batch, COMPRESSION) is not None:
                    return True
    return False


def _root(metadata: bytes) -> int:
    """The offset of a flatbuffer's root table."""
    return _number("<I", metadata, 0)


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """The offset of a table's field; None where it is missing."""
    layout = table - _number("<i", metadata, table)
    at = layout + 4 + 2 * number
    if at + 2 > layout + _number("<H", metadata, layout):
        return None
    offset = _number("<H", metadata, at)
    return table + offset if offset else None


def _table(metadata: bytes, table: int, number: int) -> int | None:
    """The offset of the table to which a field points."""
    at = _field(metadata, table, number)
    return None if at is None else at + _number("<I", metadata, at)


def _number(kind: str, metadata: bytes, at: int) -> int:
    try:
        value: Any = struct.unpack_from(kind, metadata, at)[0]
    except struct.error as error:
        raise DataError("the description of a batch is damaged") from error
    return int(value)
