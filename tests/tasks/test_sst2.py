from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task
from sparing.tasks.shared.table import classes, read_table
from sparing.tasks.shared.words import (
    CLASS,
    FIRST_BYTE,
    FIRST_WORD,
    shortened,
    spaced,
    words_from,
)
from sparing.tasks.sst2 import SET


def read_rows(path):
    rows, broken = read_table(path, SET.table, classes(("0", "1")))
    assert broken == []
    return [(*row.texts, row.label) for row in rows]


WORDS = ("good", "bad", "film", "plot", "the", "a", "dull", "fine")


def _rows(count):
    return [
        (f"{WORDS[index % 8]} {WORDS[(index // 8) % 8]} film {index}", index % 2)
        for index in range(count)
    ]


def _text(rows):
    return "".join(["sentence\tlabel\n", *(f"{text}\t{label}\n" for text, label in rows)])


@pytest.fixture(params=["glue/SST-2", "SST-2", "."])
def data(tmp_path, request):
    folder = tmp_path / request.param
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.tsv.gz").write_bytes(gzip.compress(_text(_rows(100)).encode()))
    (folder / "dev.tsv").write_text(_text(_rows(12)))
    return tmp_path


def test_dev_is_the_test_split_and_validation_is_cut_from_train(data):
    task = load_task("sst2", data=data)
    assert [len(split) for split in (task.train, task.validation, task.test)] == [90, 10, 12]
    assert task.validation.labels.sum() == 5
    assert task.test.labels.tolist() == [0, 1] * 6
    assert (task.classes, task.chance) == (2, 0.5)
    longest = max(max(split.lengths) for split in (task.train, task.validation, task.test))
    assert task.tokens == longest
    assert all(ids[0] == CLASS and ids.max() < task.vocabulary for ids in task.test.inputs)


def test_the_split_does_not_depend_on_the_rows_order(tmp_path):
    tasks = []
    for name, rows in (("one", _rows(100)), ("two", _rows(100)[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.tsv").write_text(_text(rows))
        (tmp_path / name / "dev.tsv").write_text(_text(_rows(3)))
        tasks.append(load_task("sst2", data=tmp_path / name))
    assert all(map(torch.equal, tasks[0].validation.inputs, tasks[1].validation.inputs))


def test_texts_are_cut_and_the_training_split_too(data):
    task = load_task("sst2", data=data, max_tokens=3, examples=30)
    assert max(task.train.lengths) == task.tokens == 3
    assert len(task.train) == 30


def test_words_are_counted_and_unknown_ones_spelled():
    words = words_from(["b a b once", "a b c c"], FIRST_WORD + 2)
    assert words.numbers == {"b": FIRST_WORD, "a": FIRST_WORD + 1}
    spelled = [FIRST_BYTE + byte for byte in "né".encode()]
    assert words.encode("a né b", 99) == [CLASS, FIRST_WORD + 1, *spelled, FIRST_WORD]
    assert words.encode("a a a a", 3) == [CLASS, FIRST_WORD + 1, FIRST_WORD + 1]
    assert words.size == FIRST_WORD + 2
    with pytest.raises(UsageError, match="at least 258"):
        words_from(["a"], 100)


@pytest.mark.parametrize(
    ("lengths", "room", "sizes"),
    [
        ((3, 4), 7, (3, 4)),
        ((9, 2), 6, (4, 2)),
        ((2, 9), 6, (2, 4)),
        ((9, 9), 6, (3, 3)),
        ((9, 9), 7, (4, 3)),
        ((4, 9), 7, (4, 3)),
        ((9, 3), 7, (4, 3)),
    ],
)
def test_the_longer_of_two_is_cut_first(lengths, room, sizes):
    first, second = (list(range(length)) for length in lengths)
    assert shortened(first, second, room) == (first[: sizes[0]], second[: sizes[1]])


def test_printed_texts_are_spaced():
    assert spaced('He said: "Don\'t!" é_1') == 'he said : " don \' t ! " é_1'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\tgood film\n", "the first line must name the columns"),
        (
            "sentence\tlabel\ngood film\t1\nbad film\t7\n",
            r"1 row is broken: line 3 \(label is '7'\)",
        ),
        ("sentence\tlabel\ngood film 1\n", r"line 2 \(1 column, not 2\)"),
        ("sentence\tlabel\n", "holds no rows"),
        ("", "the first line must name the columns"),
    ],
)
def test_other_formats_give_one_line(tmp_path, content, message):
    path = tmp_path / "train.tsv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_rows(path)


def test_marks_quotes_and_line_ends_of_all_kinds(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_bytes('\ufeffsentence\tlabel\r\nit \'s "fine"\x85\t1\r\n'.encode())
    assert read_rows(path) == [('it \'s "fine"\x85', 1)]
    path.write_bytes(b"sentence\tlabel\n\xff\xfe\t1\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_rows(path)


def test_without_folder_and_hub_the_error_says_what_to_put_where(monkeypatch):
    import datasets

    def unreachable(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match=r"hub could not be reached.*train.tsv and dev.tsv"):
        load_task("sst2")


def test_the_hubs_rows_serve_as_the_files_do(monkeypatch, tmp_path):
    import datasets

    rows = {"train": _rows(100), "validation": _rows(12)}
    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr(
        datasets,
        "load_dataset",
        lambda path, name: {
            part: {
                "sentence": [text for text, _ in part_rows],
                "label": [label for _, label in part_rows],
            }
            for part, part_rows in rows.items()
        },
    )
    hub = load_task("sst2")
    (tmp_path / "train.tsv").write_text(_text(rows["train"]))
    (tmp_path / "dev.tsv").write_text(_text(rows["validation"]))
    files = load_task("sst2", data=tmp_path)
    assert all(map(torch.equal, hub.train.inputs, files.train.inputs))


def test_a_tokenizer_that_is_not_there(data, tmp_path):
    with pytest.raises(UsageError, match="no tokenizer at"):
        load_task("sst2", data=data, tokenizer=str(tmp_path / "nowhere"))


@pytest.mark.slow
def test_the_real_files():
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with glue/SST-2/")
    task = load_task("sst2", data=Path(os.environ["SPARING_DATA"]))
    assert [len(split) for split in (task.train, task.validation, task.test)] == [65349, 2000, 872]
    assert task.chance == pytest.approx(444 / 872) == SET.facts.chance
    assert not task.subset
    assert task.vocabulary == 8192
