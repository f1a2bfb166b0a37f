"""One reader of texts: what each kind of source gives, what is assumed, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path

import datasets
import pandas
import pytest

from sparing.core.errors import DataError, UsageError
from sparing.tasks.texts import Texts, read_texts

TWO = (("a good film",), ("a bad film, sadly",))


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("a.txt", "a good film\n\na bad film, sadly\n", None),
        ("a.log", "a good film\r\na bad film, sadly", None),
        ("a.txt.gz", "\ufeffa good film\na bad film, sadly\n", None),
        ("a.csv", 'text\na good film\n"a bad film, sadly"\n', None),
        ("a.csv", 'id,label,text\n1,pos,a good film\n2,neg,"a bad film, sadly"\n', ("pos", "neg")),
        ("a.csv", "text;target\na good film;1\na bad film, sadly;0\n", ("1", "0")),
        ("a.csv.gz", 'text\r\n"a good film"\r\n"a bad film, sadly"\r\n', None),
        ("a.csv", 'utterance\na good film\n"a bad film, sadly"\n', None),
        ("a.tsv", "a good film\na bad film, sadly\n", None),
        ("a.tsv", "sentence\tlabels\na good film\t1\na bad film, sadly\t\n", ("1", None)),
        ("a.jsonl", '{"text": "a good film"}\n{"text": "a bad film, sadly"}\n', None),
        ("a.json", '[{"body": "a good film", "n": 1}, {"body": "a bad film, sadly"}]', None),
    ],
)
def test_files_give_their_texts_and_labels(tmp_path, name, content, labels):
    texts = read_texts(write(tmp_path / name, content))
    assert texts.rows == TWO
    assert texts.labels == labels
    assert texts.source == str(tmp_path / name)
    assert not texts.are_pairs


def test_a_parquet_file_and_a_data_set(tmp_path):
    rows = datasets.Dataset.from_dict({"text": [row[0] for row in TWO], "label": [1.0, 0.0]})
    rows.to_parquet(tmp_path / "a.parquet")
    datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(tmp_path / "saved")
    for texts in (read_texts(tmp_path / "a.parquet"), read_texts(rows)):
        assert (texts.rows, texts.labels) == (TWO, ("1", "0"))
    saved = str(tmp_path / "saved")
    assert read_texts(saved).rows == TWO
    assert read_texts(saved, split="test").rows == TWO[:1]
    with pytest.raises(UsageError, match="no split 'tset'; did you mean 'test'"):
        read_texts(saved, split="tset")


def test_objects_give_their_texts():
    plain = [row[0] for row in TWO]
    assert read_texts(plain).rows == TWO
    assert read_texts(tuple(plain)).rows == TWO
    mapping = {"text": plain, "label": ["x", None]}
    assert read_texts(mapping).labels == ("x", None)
    frame = read_texts(pandas.DataFrame({"text": [*plain, None], "target": [1, 0, 1]}))
    assert (frame.rows, frame.labels) == (TWO, ("1", "0"))
    assert "1 rows without a text were left out" in " ".join(frame.notes)
    pairs = read_texts([("a", "b"), ["c", "d"]])
    assert pairs.are_pairs
    assert pairs.rows == (("a", "b"), ("c", "d"))
    assert read_texts(pairs) is pairs
    assert read_texts({"question1": ["a"], "question2": ["b"], "text": ["c"]}).rows == (("a", "b"),)


def test_columns_are_chosen_by_name_and_the_choice_is_stated(tmp_path):
    path = write(tmp_path / "a.csv", "id,title,body,stars\n1,hello,a text,5\n2,there,another,4\n")
    texts = read_texts(path)
    assert texts.rows == (("a text",), ("another",))
    assert "texts: body; label: none; left out: id, title, stars; the first line" in texts.notes[0]
    named = read_texts(path, columns=["title", "body"], label="stars")
    assert named.rows == (("hello", "a text"), ("there", "another"))
    assert named.labels == ("5", "4")
    assert read_texts(path, columns="title", label="").labels is None
    with pytest.raises(DataError, match="no column 'titel'; did you mean 'title'"):
        read_texts(path, columns="titel")
    with pytest.raises(DataError, match="no column 'star'"):
        read_texts(path, label="star")
    with pytest.raises(UsageError, match="columns are one name or two"):
        read_texts(path, columns=["a", "b", "c"])
    with pytest.raises(UsageError, match=r"no columns: give a \.csv"):
        read_texts(write(tmp_path / "a.txt", "a text"), columns="text")


def test_a_first_line_is_a_header_by_a_stated_rule(tmp_path):
    long = "this is a text of many words\nand this is the second one\n"
    texts = read_texts(write(tmp_path / "a.csv", long))
    assert len(texts) == 2
    assert "the first line is a row" in texts.notes[0]
    named = read_texts(write(tmp_path / "b.csv", "utterance\na text\n"))
    assert named.rows == (("a text",),)
    assert "the first line names the columns" in named.notes[0]
    assert len(read_texts(tmp_path / "b.csv", header=False)) == 2
    wide = "Quality\t#1 ID\t#1 String\t#2 String\n1\t7\tone text\tanother text\n"
    assert read_texts(write(tmp_path / "a.tsv", wide)).rows == (("one text", "another text"),)
    headless = "gj04\t1\t\tour friends will not buy this\ngj04\t0\t*\tthey it bought\n"
    path = write(tmp_path / "b.tsv", headless)
    assert read_texts(path, columns="4", label="2").labels == ("1", "0")


def test_a_tab_on_every_line_makes_pairs(tmp_path):
    pairs = read_texts(write(tmp_path / "a.txt", "one\ttwo\nthree\tfour\n"))
    assert pairs.rows == (("one", "two"), ("three", "four"))
    assert "texts: 1, 2; label: none; a tab on every line" in pairs.notes[0]
    numbers = write(tmp_path / "c.txt", "a good film\t1\n\na bad film, sadly\t0\n")
    assert read_texts(numbers).rows == TWO
    assert "left out: 2" in read_texts(numbers).notes[0]
    assert read_texts(numbers, label="2").labels == ("1", "0")
    texts = read_texts(write(tmp_path / "b.txt", "one\ttwo\nthree\n"))
    assert texts.rows == (("one\ttwo",), ("three",))


def test_duplicates_are_counted():
    texts = read_texts(["a  b", "a b ", "c"])
    assert texts.duplicates == 1
    assert texts.distinct == (0, 2)
    assert "1 of 3 rows repeat an earlier one" in texts.notes[-1]
    with pytest.raises(DataError, match="2 distinct texts in 3 rows: a test needs at least 9"):
        texts.require_distinct(9, "a test")
    with pytest.raises(DataError, match="holds 1 distinct text: a test"):
        read_texts(["a"]).require_distinct(2, "a test")
    texts.require_distinct(2, "a test")


def test_labels_in_lists_are_left_out(tmp_path):
    rows = [{"text": "a", "labels": [1, 0]}, {"text": "b", "labels": [0, 0]}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    texts = read_texts(path)
    assert texts.labels is None
    assert "holds lists, so labels are left out" in texts.notes[-1]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "holds no texts"),
        ("a.txt", b"\n \n", "holds no texts"),
        ("a.csv", b"", "holds no rows"),
        ("a.csv", b"text\n", "holds no texts"),
        ("a.jsonl", b"\n", "holds no rows"),
        (
            "a.txt",
            "ein sch\xf6ner Film".encode("latin-1"),
            r"not UTF-8 text \(byte 7\); name its enc",
        ),
        ("a.csv", b"text\nab\xff", r"not UTF-8 text \(byte 7\)"),
        ("a.txt", b"a\nb\0c\n", "line 2 holds a null character.*utf-16"),
        ("a.csv", b"text\na\0b\n", "null character"),
        ("a.jsonl", b'{"text": "a\\u0000b"}\n', "line 1 holds a null character"),
        ("a.csv", b"text,label\na,1\nb\n", r"1 row is broken: line 3 \(1 column, not 2\); quote"),
        ("a.csv", b'text\n"never closed\n', "is not csv"),
        ("a.csv", b"text\n" + b"x" * 1_000_001, "line 2 has 1,000,001 characters"),
        ("a.txt", b"x" * 1_000_001, "line 1 has 1,000,001 characters"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 is no JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": 3}\n', r"line 2 \(text is no text but 3\)"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "no valid Unicode"),
        ("a.parquet", b"PAR1 no", "damaged or cut short"),
        ("a.bin", pickle.dumps([1.5, "a" * 300]), "not UTF-8 text"),
        ("a.txt.gz", None, "not a sound gzip"),
        ("a.csv", b"a,b,c\nx y z,x y,z x\n", "has 3 columns: say which hold the texts"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path, name, content, said):
    path = tmp_path / name
    if content is None:
        path.write_bytes(b"plain")
    else:
        write(path, content)
    with pytest.raises(DataError, match=said) as caught:
        read_texts(path)
    assert str(path) in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no file .*none\.txt"):
        read_texts(tmp_path / "none.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_texts(tmp_path)
    os.mkfifo(tmp_path / "pipe.parquet")
    os.mkfifo(tmp_path / "pipe.txt")
    for name in ("pipe.parquet", "pipe.txt"):
        with pytest.raises(DataError, match="is not a file"):
            read_texts(tmp_path / name)
    with pytest.raises(UsageError, match="unknown encoding 'utf-99'"):
        read_texts(write(tmp_path / "a.txt", "a"), encoding="utf-99")
    latin = write(tmp_path / "b.txt", "sch\xf6n".encode("latin-1"))
    assert read_texts(latin, encoding="latin-1").rows == (("sch\xf6n",),)


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (3, UsageError, "got a int"),
        (b"bytes", UsageError, "got a bytes"),
        (["a", 3], DataError, "row 1|row 2"),
        ([("a", "b", "c")], DataError, "row 1 is no text or pair"),
        ([], DataError, "holds no texts"),
        ({}, DataError, "has no columns"),
        ({"text": ["a"], "label": []}, DataError, "different lengths"),
        ({"text": "abc"}, UsageError, "the column 'text' is no list, but 'abc'"),
        ({"text": 3}, UsageError, "the column 'text' is no list, but 3"),
        ({"text": [3, 4], "n": [1, 2]}, DataError, "say which hold the texts"),
    ],
)
def test_an_object_of_another_kind_is_refused(value, error, said):
    with pytest.raises(error, match=said):
        read_texts(value)


def test_texts_are_immutable_rows():
    texts = Texts("x", (("a",), ("b",)), ("1", None))
    assert texts.subset([1]).rows == (("b",),)
    assert texts.subset([1]).labels == (None,)
