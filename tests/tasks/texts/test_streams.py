"""Rows as a stream, against the reader of whole files; broken rows; bounded memory."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import threading

import pyarrow as pa
import pytest
from pyarrow import parquet

from sparing.core.errors import DataError, UsageError
from sparing.tasks.shared.table import fields_of_any_size
from sparing.tasks.texts import read_texts
from sparing.tasks.texts.naming import named_columns
from sparing.tasks.texts.streams import Chosen, open_rows, text

BODIES = [f'text {n} of, "some" {"words " * (n % 5)}end' for n in range(600)]


def opened(path, columns=None, encoding="utf-8", header=None):
    return open_rows(path, named_columns(columns, None), encoding=encoding, header=header)


def all_rows(path, columns=None, more=(), **how):
    file = opened(path, columns, **how)
    return file.cursor(file.choose(named_columns(columns, None), more)).take(10_000)


def quoted(field):
    return '"' + field.replace('"', '""') + '"'


def write_csv(path, separator=","):
    lines = [separator.join(("id", "body"))]
    lines += [separator.join((str(n), quoted(body))) for n, body in enumerate(BODIES)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.tsv", "a.jsonl", "a.parquet", "a.jsonl.gz"])
def test_rows_are_those_of_the_reader_of_whole_files(tmp_path, name):
    path = tmp_path / name
    if name == "a.csv":
        write_csv(path)
    elif name == "a.txt":
        path.write_text("\r\n".join(BODIES))
    elif name == "a.tsv":
        path.write_text(
            "id\tbody\tlabel\n" + "".join(f"{n}\t{b}\tx\n" for n, b in enumerate(BODIES))
        )
    elif name == "a.parquet":
        table = pa.table({"id": range(600), "body": BODIES})
        parquet.write_table(table, path, row_group_size=100)
    else:
        lines = "\n".join(json.dumps({"body": body, "label": 1}) for body in BODIES)
        path.write_bytes(gzip.compress(lines.encode()) if name.endswith("gz") else lines.encode())
    listed = all_rows(path)
    assert tuple(row.texts for row in listed) == read_texts(path).rows
    assert not any(row.fault for row in listed)
    assert opened(path).choose(named_columns(None, None), ()).texts in (("body",), ("1",))


def test_pairs_and_separators_are_detected_as_by_the_other_reader(tmp_path):
    (tmp_path / "a.txt").write_text("one\ttwo\nthree\tfour\n")
    write_csv(tmp_path / "b.csv", ";")
    (tmp_path / "c.csv").write_text('"one, two",three four.\n"five",six.\n')
    for name in ("a.txt", "b.csv", "c.csv"):
        listed = all_rows(tmp_path / name)
        assert tuple(row.texts for row in listed) == read_texts(tmp_path / name).rows
    assert all_rows(tmp_path / "a.txt")[1].texts == ("three", "four")
    assert [row.more for row in all_rows(tmp_path / "b.csv", "body", ("id",))[:2]] == [
        ("0",),
        ("1",),
    ]


def test_a_row_for_every_record_also_where_it_is_broken(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,body\n1,"a\nb"\n2,"c"d\n3\n\n4,\xff\n5,e')
    assert [(row.texts, row.fault) for row in all_rows(path)] == [
        (("a\nb",), ""),
        ((), "the line is not csv: ',' expected after '\"'"),
        ((), "1 column, not 2"),
        ((), "the line is empty"),
        ((), "the line is no UTF-8 text"),
        (("e",), ""),
    ]
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n[1]\n{"text": null}\n{"text": "\\ud800"}\n{"no": 1}\n')
    assert [row.fault for row in all_rows(path)] == [
        "",
        "the line is empty",
        "the line is not a JSON object of columns",
        "text is empty",
        "text is no valid Unicode",
        "text is empty",
    ]


def test_broken_strings_of_parquet_cost_only_their_row(tmp_path):
    stored = pa.array([b"good", b"\xff\xfe", b"fine"])
    values = pa.Array.from_buffers(pa.string(), 3, stored.buffers())
    parquet.write_table(pa.table({"text": values}), tmp_path / "a.parquet")
    assert [row.fault for row in all_rows(tmp_path / "a.parquet")] == [
        "",
        "text is no valid Unicode",
        "",
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.jsonl", "a.csv", "a.parquet"])
def test_skipping_is_taking_and_dropping(tmp_path, name):
    path, chosen = tmp_path / name, Chosen(("body",))
    if name == "a.txt":
        path.write_text("\n".join(BODIES))
        chosen = Chosen(("1",))
    elif name == "a.jsonl":
        path.write_text("\n".join(json.dumps({"body": body}) for body in BODIES))
    elif name == "a.parquet":
        parquet.write_table(pa.table({"body": BODIES}), path, row_group_size=64)
    else:
        write_csv(path, "," if name == "a.csv" else "\t")
    whole = opened(path, None if name == "a.txt" else "body").cursor(chosen).take(1000)
    assert len(whole) == 600
    for steps in ((5, 0, 7), (63, 1, 64), (599, 1, 3), (600, 2, 0), (100, 300, 250)):
        cursor, at = opened(path).cursor(chosen), 0
        for number, step in enumerate(steps):
            if number % 2:
                assert cursor.skip(step) == min(step, 600 - at)
            else:
                assert cursor.take(step) == whole[at : at + step]
            at = min(600, at + step)


def test_a_line_without_end_is_one_fault_and_not_in_memory(tmp_path, monkeypatch):
    for module in ("text", "table", "base"):
        loaded = __import__(f"sparing.tasks.texts.streams.{module}", fromlist=["LONGEST"])
        monkeypatch.setattr(loaded, "LONGEST", 1000)
    longest, read = [0], text.io.TextIOWrapper.readline
    path = tmp_path / "a.txt"
    path.write_text("one\n" + "x" * 5000 + "\ntwo\n" + "y" * 1000 + "\n" + "z" * 999 + "\n")

    class Noted(text.io.TextIOWrapper):
        def readline(self, size=-1):
            line = read(self, size)
            longest[0] = max(longest[0], len(line))
            return line

    monkeypatch.setattr(text.io, "TextIOWrapper", Noted)
    faults = [row.fault for row in all_rows(path)]
    assert [bool(fault) for fault in faults] == [False, True, False, True, False]
    assert longest == [1000]
    path = tmp_path / "a.csv"
    path.write_text('body\n"one"\n"' + "two\n" * 500)
    with pytest.raises(DataError, match=r"a row near line .*: is a quote left open"):
        all_rows(path)


def test_the_size_of_fields_is_not_lifted_while_rows_are_used(tmp_path):
    """Another thread may read a table while a stream is between two rows."""
    (tmp_path / "a.csv").write_text("body\n" + ("x" * 200_000 + "\n") * 3)
    cursor = opened(tmp_path / "a.csv").cursor(Chosen(("body",)))
    assert len(cursor.take(1)[0].texts[0]) == 200_000
    done = []

    def lift():
        with fields_of_any_size():
            done.append(True)

    thread = threading.Thread(target=lift, daemon=True)
    thread.start()
    thread.join(20)
    assert done
    assert len(cursor.take(5)) == 2


def test_a_stream_is_read_as_far_as_it_is_taken(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        for n in itertools.islice(itertools.count(), 50_000):
            file.write(json.dumps({"text": f"text {n}"}) + "\n")
    cursor = opened(path).cursor(Chosen(("text",)))
    cursor.take(500)
    assert 0 < cursor.share < 0.1


@pytest.mark.parametrize(
    ("name", "content", "columns", "error", "said"),
    [
        ("a.json", '[{"text": "a"}]', None, DataError, "one list of objects"),
        ("a.txt", "one\n", "text", UsageError, "one text a line and no columns"),
        ("a.jsonl.gz", "no gzip", None, DataError, "not a sound gzip file"),
        ("a.parquet", "no parquet", None, DataError, "is damaged or cut short"),
        ("a.csv", "a,b,c,d\n1,2,3,4\n", None, DataError, "say which hold the texts"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, columns, error, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(error, match=said):
        all_rows(tmp_path / name, columns)


def test_a_folder_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(DataError, match="is not a file"):
            opened(tmp_path / name)
    with pytest.raises(DataError, match="there is no file"):
        opened(tmp_path / "none")
