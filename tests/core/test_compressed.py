"""A file or its compressed form: one content, whatever happens in between."""

from __future__ import annotations

import lzma
import os
import sys

import pytest

from sparing.core import compressed
from sparing.core.compressed import compress_file, expand_file, read_stored, stored_path
from sparing.core.errors import DataError, UsageError

CONTENT = b"a line\n" * 50


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(CONTENT)
    return path


def test_a_file_becomes_its_compressed_form_and_comes_back(path):
    packed = compress_file(path)
    assert packed.name == "records.jsonl.xz"
    assert [file.name for file in path.parent.iterdir()] == [packed.name]
    assert lzma.decompress(packed.read_bytes()) == CONTENT
    assert stored_path(path) == packed
    assert read_stored(packed) == CONTENT
    expand_file(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == CONTENT
    expand_file(path)  # there is nothing to do
    assert path.read_bytes() == CONTENT


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    other = tmp_path / "other" / "name"
    other.parent.mkdir()
    other.write_bytes(CONTENT)
    os.utime(other, (0, 0))
    one, two = (compress_file(file).read_bytes() for file in (path, other))
    assert one == two


def test_a_missing_file_is_stored_nowhere(tmp_path):
    assert stored_path(tmp_path / "records.jsonl") is None
    expand_file(tmp_path / "records.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_both_forms_with_one_content_are_what_a_killed_process_left(path):
    packed = path.with_name("records.jsonl.xz")
    packed.write_bytes(lzma.compress(CONTENT))
    assert stored_path(path) == packed
    expand_file(path)
    assert not packed.exists()
    assert path.read_bytes() == CONTENT
    packed.write_bytes(lzma.compress(CONTENT))
    assert compress_file(path) == packed
    assert not path.exists()


def test_two_forms_that_differ_are_refused(path):
    packed = path.with_name("records.jsonl.xz")
    packed.write_bytes(lzma.compress(CONTENT + b"more\n"))
    for call in (stored_path, expand_file):
        with pytest.raises(DataError, match=r"records\.jsonl and records\.jsonl\.xz differ"):
            call(path)
    assert path.exists()
    assert packed.exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:-1], "it is cut short"),
        (lambda data: data[:20], "it is cut short"),
        (lambda data: b"", "it is cut short"),
        (lambda data: data[:15] + bytes([data[15] ^ 255]) + data[16:], "it is damaged"),
        (lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], "it is damaged"),
        (lambda data: CONTENT, "it is damaged, or no xz file"),
        (lambda data: data + b"more", "something follows"),
        (lambda data: data + data, "something follows"),
    ],
)
def test_a_damaged_file_gives_one_clear_line(path, spoil, message):
    packed = compress_file(path)
    packed.write_bytes(spoil(packed.read_bytes()))
    for call in (read_stored, lambda given: expand_file(path)):
        with pytest.raises(DataError, match=rf"records\.jsonl\.xz cannot be read: {message}"):
            call(packed)
    assert not path.exists()


def test_no_more_than_the_limit_is_ever_held(path, monkeypatch):
    monkeypatch.setattr(compressed, "LARGEST_CONTENT", 2**20)
    packed = path.with_name("records.jsonl.xz")
    packed.write_bytes(lzma.compress(bytes(2**26)))  # 64 MiB in 10 kB
    held = []
    real = lzma.LZMADecompressor

    class Watched:
        def __init__(self, *given, **named):
            self.reader = real(*given, **named)

        def decompress(self, data, most):
            held.append(self.reader.decompress(data, most))
            return held[-1]

    monkeypatch.setattr(lzma, "LZMADecompressor", Watched)
    with pytest.raises(DataError, match="it holds more than 1 MiB"):
        read_stored(packed)
    assert [len(chunk) for chunk in held] == [2**20 + 1]


def test_a_file_that_asks_for_much_memory_is_refused(path):
    packed = path.with_name("records.jsonl.xz")
    for size, allowed in ((2**26, True), (2**28, False)):  # the largest preset, and beyond
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": size}]
        packed.write_bytes(lzma.compress(CONTENT, filters=filters))
        if allowed:
            assert read_stored(packed) == CONTENT
        else:
            with pytest.raises(DataError, match="it is damaged, or no xz file"):
                read_stored(packed)


def test_a_python_without_lzma_is_named(path, monkeypatch):
    packed = compress_file(path)
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(UsageError, match="this Python was built without lzma"):
        read_stored(packed)


def test_a_file_that_could_not_be_read_back_is_not_compressed(path, monkeypatch):
    monkeypatch.setattr(compressed, "LARGEST_CONTENT", len(CONTENT) - 1)
    with pytest.raises(DataError, match="is too large to compress"):
        compress_file(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_stays_where_its_compressed_form_is_not_the_same(path, monkeypatch):
    other = lzma.compress(CONTENT[:-1])
    monkeypatch.setattr(compressed, "_compressed", lambda content: other)
    with pytest.raises(DataError, match=r"records\.jsonl was kept"):
        compress_file(path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("put", ["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(tmp_path, put):
    packed = tmp_path / "records.jsonl.xz"
    packed.mkdir() if put == "folder" else os.mkfifo(packed)
    with pytest.raises(DataError, match=r"records\.jsonl\.xz cannot be read"):
        read_stored(stored_path(tmp_path / "records.jsonl"))
