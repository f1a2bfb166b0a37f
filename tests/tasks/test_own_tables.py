from __future__ import annotations

import csv
import gzip
import json
import logging
from pathlib import Path

import datasets
import pytest
import torch

from sparing.core.errors import CheckpointError, DataError, UsageError
from sparing.tasks import Examples, Task, load_task
from sparing.tasks.shared.words import Words

KINDS = ("neg", "pos")


def _columns(count=40):
    return {
        "text": [f"film number {number}" for number in range(count)],
        "label": [KINDS[number % 2] for number in range(count)],
    }


def _table(columns, separator=","):
    lines = [separator.join(columns)]
    lines += [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def _load(path, content, **options):
    if isinstance(content, dict):
        content = _table(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_task(str(path), **options)


def _texts_per_row(task):
    return {int((ids == 1).sum()) for ids in task.test.inputs}  # a class token opens each


SHUFFLED = [(7 * number) % 40 for number in range(40)]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({"id": range(40)}, "left out: id"),
        ({"": range(40)}, "left out: (no name)"),
        ({"Unnamed: 0": range(40)}, "left out: Unnamed: 0"),
        ({"user_id": [f"u{n}x" for n in range(40)]}, "left out: user_id"),
        ({"line": range(5, 45)}, "left out: line"),
        ({"where": SHUFFLED}, "left out: where"),
        ({"stars": [n % 5 for n in range(40)]}, "left out: stars"),
        ({"author": ["somebody"] * 40, "id": range(40)}, "left out: author, id"),
    ],
)
def test_an_index_is_no_text_and_what_is_taken_is_said(tmp_path, more, note):
    task = _load(tmp_path / "t.csv", {**{name: list(v) for name, v in more.items()}, **_columns()})
    assert _texts_per_row(task) == {1}
    assert task.texts(task.test.inputs[0].tolist())[1:3] == ["film", "number"]
    assert task.source_note == f"texts: text; label: label; {note}; test: a fifth, 8 of 40 rows"


def test_pairs_are_known_by_their_names_or_by_being_two(tmp_path):
    rows = _columns()
    both = {"id": SHUFFLED, "premise": rows["text"], "hypothesis": rows["text"], "more": ["x"] * 40}
    task = _load(tmp_path / "t.csv", {**both, "label": rows["label"]})
    assert task.source_note.startswith("texts: premise, hypothesis; label: label; left out: id,")
    task = _load(tmp_path / "t.csv", {"one": rows["text"], "two": rows["text"], **rows}, text="two")
    assert task.source_note.startswith("texts: two;")
    two = {"head": rows["text"], "tail": rows["text"], "label": rows["label"]}
    assert _texts_per_row(_load(tmp_path / "t.csv", two)) == {2}
    with pytest.raises(DataError, match=r"say which hold the texts with text=NAME.*there are id"):
        _load(tmp_path / "t.csv", {"id": rows["text"], "label": rows["label"]})


def test_what_is_taken_is_logged_and_never_printed(tmp_path, caplog, capsys):
    with caplog.at_level(logging.INFO, logger="sparing.tasks"):
        _load(tmp_path / "t.csv", _columns())
        load_task("digits")
    assert [record.getMessage().partition("t.csv: ")[2] for record in caplog.records] == [
        "texts: text; label: label; test: a fifth, 8 of 40 rows"
    ]
    assert capsys.readouterr() == ("", "")


def _json_lines():
    rows = zip(*_columns().values(), strict=True)
    return [{"text": text, "label": label, "id": n} for n, (text, label) in enumerate(rows)]


def _written(path, file_type):
    rows = _columns()
    if file_type == "parquet":
        datasets.Dataset.from_dict({"n": list(range(40)), **rows}).to_parquet(str(path))
    elif file_type == "json":
        path.write_text(json.dumps(_json_lines()))
    elif file_type == "jsonl.gz":
        content = "\n".join(map(json.dumps, _json_lines())) + "\n"
        path.write_bytes(gzip.compress(content.encode()))
    elif file_type in ("saved", "saved.dict"):
        one = datasets.Dataset.from_dict({"n": list(range(40)), **rows})
        (one if file_type == "saved" else datasets.DatasetDict(train=one)).save_to_disk(str(path))
    else:
        path.write_text(
            _table({"id": list(range(40)), **rows}, {"ssv.csv": ";"}.get(file_type, "|"))
        )


@pytest.mark.parametrize(
    ("file_type", "note"),
    [
        ("jsonl.gz", "left out: id; "),
        ("json", "left out: id; "),
        ("parquet", "left out: n; "),
        ("saved", "left out: n; "),
        ("saved.dict", "left out: n; "),
        ("ssv.csv", "left out: id; separator: ';'; "),
        ("txt", "left out: id; separator: '|'; "),
    ],
)
def test_every_form_of_rows_gives_the_same_task(tmp_path, file_type, note):
    known = _load(tmp_path / "t.csv", _columns())
    _written(tmp_path / f"t.{file_type}", file_type)
    task = load_task(str(tmp_path / f"t.{file_type}"))
    assert task.digest == known.digest
    assert task.source_note == f"texts: text; label: label; {note}test: a fifth, 8 of 40 rows"


def test_endings_are_compared_without_case(tmp_path):
    assert _load(tmp_path / "T.CSV", _columns()).labels == KINDS
    (tmp_path / "T.CSV").rename(tmp_path / "Train.Csv")
    assert load_task(str(tmp_path)).labels == KINDS


def test_another_encoding_is_named(tmp_path):
    rows = _columns()
    rows["text"][3] = "caf\xe9"
    content, path = _table(rows).encode("latin-1"), tmp_path / "t.csv"
    with pytest.raises(DataError, match=r"is not UTF-8 text \(byte \d+\).*encoding='latin-1'"):
        _load(path, content)
    task = _load(path, content, encoding="latin-1")
    assert "; encoding: latin-1; " in task.source_note
    assert task.digest == _load(path, _table(rows)).digest
    for unknown in ("latin-99", "base64", "a\0b"):
        with pytest.raises(UsageError, match="unknown encoding"):
            _load(path, content, encoding=unknown)


def test_a_long_field_is_read_and_the_process_keeps_its_limit(tmp_path):
    before = csv.field_size_limit()
    rows = _columns()
    rows["text"][0] = "word " * 40_000
    assert len(_load(tmp_path / "t.csv", rows).train) == 29
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    "labels",
    [["a|b", "a"], ["a|b", "b|c"], ["a,b", "a", "b"], ["a;b", "a", "b"], ["['a', 'b']", "['a']"]],
)
def test_several_labels_in_one_are_named(tmp_path, labels):
    rows = {"text": _columns()["text"], "label": (labels * 40)[:40]}
    with pytest.raises(DataError, match=r"names several classes.*answer='labels'"):
        _load(tmp_path / "t.tsv", _table(rows, "\t"))


def test_marks_in_names_of_classes_are_no_several_labels(tmp_path):
    rows = {"text": _columns()["text"], "label": ["red, round", "red, flat", "A|1", "B|2"] * 10}
    assert len(_load(tmp_path / "t.tsv", _table(rows, "\t")).labels) == 4


def test_several_columns_of_flags_and_lists_are_named(tmp_path):
    rows = {"text": _columns()["text"], "rude": [0, 1] * 20, "odd": [1, 1] * 20}
    with pytest.raises(DataError, match=r"rude, odd hold 0 and 1.*answer='labels'.*label=NAME"):
        _load(tmp_path / "t.csv", rows)
    lines = [json.dumps({"text": "a film", "label": ["x", "y"]})] * 10
    with pytest.raises(DataError, match=r"'label' holds lists of labels.*answer='labels'"):
        _load(tmp_path / "t.jsonl", "\n".join(lines))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", "[" * 100_000, "line 1 is no JSON .*deep"),
        ("t.jsonl", '{"text": "a", "label"', "line 1 is no JSON"),
        ("t.jsonl", '"text"\n3', "line 1 is not a JSON object"),
        ("t.jsonl", "", "holds no rows"),
        ("t.jsonl", '{"text": "a"}', "there is no column 'label'"),
        ("t.jsonl", '{"text": "\\ud800", "label": 1}', "text is no valid Unicode"),
        ("t.jsonl", '{"text": "a", "label": ' + "9" * 5000 + "}", "is no JSON"),
        ("t.parquet", "PAR1 no", "damaged or cut short"),
        ("t.csv", "text,label\na," + "x" * 5000 + "\nb", r"2 columns?|1 column, not 2"),
        ("t.csv", "text," + "x" * 5000 + "\na,b", "names no column 'label'; known: text, xxx"),
    ],
)
def test_broken_rows_are_one_short_line(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as error:
        _load(tmp_path / name, content)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", b"", "holds no rows"),
        ("rows.tsv", b"\n \n", "holds no rows"),
        ("rows.csv.gz", gzip.compress(b"\xef\xbb\xbf\n", mtime=0), "holds no rows"),
        ("rows.csv", b"\na,b\n", "its first line has no columns"),
        ("rows.jsonl", b"{}\n{}", "it has no columns"),
    ],
)
def test_a_file_without_columns_is_refused(tmp_path, name, content, message, header):
    with pytest.raises(DataError, match=message):
        _load(tmp_path / name, content, header=header)


def test_a_label_of_thousands_of_digits_is_a_text(tmp_path):
    rows = {"text": _columns()["text"], "label": ["9" * 5000, "1"] * 20}
    assert _load(tmp_path / "t.csv", rows).labels == ("1", "9" * 5000)
    rows["label"] = ["9" * 5000 + str(number) for number in range(40)]
    with pytest.raises(DataError, match="different labels") as error:
        _load(tmp_path / "t.csv", rows)
    assert len(str(error.value)) < 300


def test_a_saved_data_set_that_is_damaged(tmp_path):
    datasets.Dataset.from_dict(_columns()).save_to_disk(str(tmp_path / "saved"))
    for arrow in (tmp_path / "saved").glob("*.arrow"):
        arrow.write_bytes(b"no arrow")
    with pytest.raises(DataError, match="saved is damaged"):
        load_task(str(tmp_path / "saved"))


def test_a_packed_text_that_unpacks_to_too_much(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(bytes(2**26 + 1), 1))
    with pytest.raises(DataError, match=r"t\.csv\.gz holds more than 67,108,864 bytes"):
        load_task(str(path))


def test_a_data_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"the data folder .*nowhere does not exist"):
        load_task("digits", data=tmp_path / "nowhere")


def test_words_that_are_no_json(tmp_path):
    for content in (b"[", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "words.json").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"words\.json cannot be read"):
            Words({"a": 258}).require_same(tmp_path)


@pytest.mark.parametrize(
    ("answer", "label"), [("class", 2), ("class", -1), ("class", -100), ("number", float("nan"))]
)
def test_no_task_has_labels_outside_their_range(answer, label):
    good = Examples("values", torch.zeros(1, 1), torch.tensor([0.0 if answer == "number" else 0]))
    bad = Examples("values", torch.zeros(1, 1), torch.tensor([label]))
    facts = {"labels": ("value",) if answer == "number" else KINDS, "tokens": 1, "answer": answer}
    metric = {"metric": "pearson"} if answer == "number" else {}
    with pytest.raises(DataError, match=f"task own: test holds the label {label}"):
        Task("own", "values", good, good, bad, licence="", source="", **facts, **metric)


def test_a_folder_of_texts_with_pictures_beside_is_of_texts(tmp_path):
    (tmp_path / "plots").mkdir()
    Path(tmp_path / "plots" / "a.png").write_bytes(b"")
    (tmp_path / "train.csv").write_text(_table(_columns()))
    assert load_task(str(tmp_path)).kind == "tokens"


LABELS = [["red"], ["red", "big"], [], ["big"], ["odd", "red"]]


def _several(form):
    """Forty rows with several labels, in a form that people write them in."""
    texts, labels = _columns()["text"], LABELS * 8
    if form == "flags":
        flags = {name: [int(name in row) for row in labels] for name in ("red", "big", "odd")}
        return "t.csv", _table({"text": texts, **flags})
    if form == "lists":
        rows = [{"text": text, "label": row} for text, row in zip(texts, labels, strict=True)]
        return "t.jsonl", "\n".join(map(json.dumps, rows))
    if form == "json":
        return "t.tsv", _table({"text": texts, "label": [json.dumps(row) for row in labels]}, "\t")
    return "t.tsv", _table({"text": texts, "label": [form.join(row) for row in labels]}, "\t")


@pytest.mark.parametrize("form", ["flags", "lists", "json", "|", ";", ", "])
def test_several_labels_are_read_in_every_form(tmp_path, form):
    name, content = _several(form)
    task = _load(tmp_path / name, content, answer="labels")
    assert (task.answer, task.labels) == ("labels", ("big", "odd", "red"))
    assert (task.metric, len(task.test)) == ("micro_f1", 8)
    by_number = {}
    for split in (task.train, task.validation, task.test):
        for ids, labels in zip(split.inputs, split.labels, strict=True):
            number = int("".join(filter(str.isdigit, "".join(task.texts(ids.tolist())))))
            by_number[number] = labels.tolist()
    expected = [[int(name in row) for name in task.labels] for row in LABELS * 8]
    assert [by_number[number] for number in range(40)] == expected


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ({"red": [0, 1, 2] * 6, "big": [1, 0, 1] * 6}, {"label": "red,big"}, "red=2"),
        ({"red": [0, 1, 0] * 6}, {"label": "red,big"}, "no column 'big'"),
        ({}, {}, "no column 'label'"),
        ({"label": ["", ""] * 9}, {}, "have 0 different labels"),
        ({"label": ["x", "x"] * 9}, {}, "have 1 different labels, such as 'x'"),
    ],
)
def test_labels_that_cannot_be_read_are_named(tmp_path, content, options, message):
    rows = {"text": ["a b", "c d"] * 9, **content}
    with pytest.raises(DataError, match=message):
        _load(tmp_path / "t.csv", rows, answer="labels", **options)


def test_labels_of_held_out_rows_must_be_known(tmp_path):
    rows = {"text": _columns()["text"], "label": ["x|y", "x"] * 20}
    (tmp_path / "train.csv").write_text(_table(rows))
    (tmp_path / "test.csv").write_text("text,label\nok,x\nno,x|z\n")
    with pytest.raises(DataError, match=r"line 3 \(label is \['x', 'z'\]\)"):
        load_task(str(tmp_path), answer="labels")
    (tmp_path / "test.csv").write_text("text,label\nok,\nyes,y|x\n")
    assert load_task(str(tmp_path), answer="labels").test.labels.tolist() == [[0, 0], [1, 1]]
