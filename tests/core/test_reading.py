"""JSON and files of others are read within bounds."""

from __future__ import annotations

import json
import os

import pytest

from sparing.core.errors import CheckpointError, DataError
from sparing.core.reading import DEEPEST, parse_json, read_json, read_object, read_plain


@pytest.mark.parametrize(
    "value", [{}, [], 0, -1.5, None, True, "é\u2028", {"a": [1, {"b": 1e300}]}, 10**299]
)
def test_what_json_writes_comes_back(tmp_path, value):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    assert read_json(path) == value
    assert parse_json(path.read_bytes()) == value


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000,
        "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
        "NaN",
        "[-Infinity]",
        "1e999",
        "-1e301",
        "9" * 5000,
        "9" * 301,
        "",
        "{",
        "\x00",
        '{"a": 1} 2',
    ],
)
def test_what_is_no_json_or_out_of_bounds_is_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError) as raised:
        read_json(path)
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 400
    assert str(path) in line


def test_as_deep_as_allowed_is_read_and_one_deeper_is_not():
    assert parse_json("[" * DEEPEST + "]" * DEEPEST)
    with pytest.raises(ValueError, match="deeper than 100"):
        parse_json("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))
    wide = json.dumps([[]] * 1000)
    assert len(parse_json(wide)) == 1000


def test_files_of_transformers_may_hold_infinities():
    assert parse_json('{"time_step_limit": [0.0, Infinity]}', finite=False)


def test_the_error_is_of_the_kind_that_the_caller_names(tmp_path):
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="does not hold a JSON object"):
        read_object(tmp_path / "a.json", CheckpointError)
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        read_object(tmp_path / "b.json", CheckpointError)


def test_latin_1_is_named(tmp_path):
    (tmp_path / "a.json").write_bytes('"é"'.encode("latin-1"))
    with pytest.raises(DataError, match="it is not UTF-8 text"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_not_a_plain_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "a.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"plain file|directory"):
        read_plain(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_json(path)
