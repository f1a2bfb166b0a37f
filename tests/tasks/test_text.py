from __future__ import annotations

import gzip

import pytest
import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task, options_of
from tests.tasks.tokenizers import save_tokenizer

KINDS = ("ham", "spam", "urgent")


def _rows(count, word="mail"):
    return [(f"{word} number {number}", KINDS[number % 3]) for number in range(count)]


def _tsv(rows, first="text\tlabel"):
    return "\n".join([first, *("\t".join(row) for row in rows)]) + "\n"


@pytest.fixture
def folder(tmp_path):
    mail_dir = tmp_path / "mails"
    mail_dir.mkdir()
    (mail_dir / "train.tsv.gz").write_bytes(gzip.compress(_tsv(_rows(60)).encode()))
    (mail_dir / "test.tsv").write_text(_tsv(_rows(9, "test")))
    return mail_dir


def test_a_folder_is_a_task_by_its_path(folder):
    task = load_task(str(folder))
    assert task.name == "mails"
    assert [len(split) for split in (task.train, task.validation, task.test)] == [54, 6, 9]
    assert task.labels == KINDS
    assert task.test.labels.tolist() == [0, 1, 2] * 3
    assert task.metrics == ("accuracy", "matthews")
    assert task.source == str(folder)
    named = load_task("text", source=str(folder))
    assert all(map(torch.equal, task.train.inputs, named.train.inputs))
    assert "tokenizer" in options_of(str(folder))


def test_its_own_validation_and_a_tokenizer_are_taken(folder, tmp_path):
    (folder / "valid.tsv").write_text(_tsv(_rows(5, "valid")))
    tokenizer_dir = save_tokenizer(tmp_path / "tokenizer")
    task = load_task(str(folder), tokenizer=str(tokenizer_dir))
    assert [len(split) for split in (task.train, task.validation, task.test)] == [60, 5, 9]
    assert len(load_task(str(folder), examples=12).train) == 12


def test_one_file_is_cut_into_all_splits(tmp_path):
    (tmp_path / "mails.tsv").write_text(_tsv(_rows(100)))
    task = load_task(str(tmp_path / "mails.tsv"))
    assert [len(split) for split in (task.train, task.validation, task.test)] == [72, 8, 20]
    assert task.notes == ("test: 20 rows cut from the training file",)
    rows = [tuple(ids.tolist()) for split in task.splits.values() for ids in split.inputs]
    assert len(set(rows)) == 100


def test_csv_quotes_and_pairs(tmp_path):
    rows = [f'"a, ""quoted"" text {i}","two\nlines {i}",{i % 2}' for i in range(40)]
    path = tmp_path / "pairs.csv"
    path.write_text("question,answer,same\n" + "\n".join(rows) + "\n")
    task = load_task("text", train=str(path), label="same")
    assert task.labels == ("0", "1")
    assert all(int((ids == 1).sum()) == 2 for ids in task.test.inputs)
    alone = load_task("text", train=str(path), label="same", text="answer")
    assert all(int((ids == 1).sum()) == 1 for ids in alone.test.inputs)


def test_files_without_a_first_line(tmp_path):
    path = tmp_path / "bare.tsv"
    path.write_text(_tsv(_rows(30)[1:], "\t".join(_rows(1)[0])))
    with pytest.raises(DataError, match=r"names no column 'label'.*header=False"):
        load_task(str(path))
    task = load_task(str(path), header=False)
    assert sum(len(split) for split in task.splits.values()) == 30


def test_numbers(tmp_path):
    path = tmp_path / "prices.tsv"
    path.write_text(_tsv([(f"thing {number}", f"{number / 4}") for number in range(50)]))
    with pytest.raises(DataError, match=r"50 different labels.*answer='number'"):
        load_task(str(path))
    task = load_task(str(path), answer="number")
    assert (task.answer, task.metrics, task.chance) == ("number", ("pearson", "spearman"), 0.0)
    assert task.train.labels.dtype == torch.float32


def test_whole_numbers_are_sorted_as_numbers(tmp_path):
    path = tmp_path / "stars.tsv"
    path.write_text(_tsv([(f"film {number}", str(number % 11)) for number in range(55)]))
    assert load_task(str(path)).labels == tuple(str(number) for number in range(11))


def test_broken_rows_and_labels_that_train_does_not_have(folder):
    (folder / "test.tsv").write_text(_tsv([*_rows(3), ("what is this", "eggs"), ("", "ham")]))
    with pytest.raises(DataError, match=r"test.tsv: 2 rows are broken: line 5 \(label is 'eggs'\)"):
        load_task(str(folder))
    task = load_task(str(folder), skip_broken=True)
    assert len(task.test) == 3
    assert "2 broken rows left out: line 5" in task.notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give source"),
        ({"train": "nowhere.tsv"}, "there is no file nowhere.tsv"),
        ({"source": "./nowhere"}, "there is no file or folder nowhere"),
        ({"source": "mails", "train": "a.tsv"}, "not both"),
        ({"source": "mails", "text": "words"}, "has no column 'words'; known: label, text"),
        ({"source": "mails", "label": "labels"}, "no column 'labels'; did you mean 'label'"),
    ],
)
def test_what_is_asked_wrongly(folder, monkeypatch, options, message):
    monkeypatch.chdir(folder.parent)
    with pytest.raises((DataError, UsageError), match=message):
        load_task("text", **options)


def test_other_shapes_of_files(tmp_path):
    path = tmp_path / "wide.tsv"
    path.write_text("a\tb\tc\tlabel\n1\t2\t3\tx\n")
    with pytest.raises(DataError, match=r"has 4 columns: say which hold the texts with text=NAME"):
        load_task(str(path))
    path.write_text("text\tlabel\n")
    with pytest.raises(DataError, match="holds no rows"):
        load_task(str(path))
    path.write_text(_tsv([("one", "a"), ("two", "a")] * 5))
    with pytest.raises(DataError, match="1 different labels"):
        load_task(str(path))
    path = tmp_path / "open.csv"
    path.write_text('text,label\n"never closed,1\n')
    with pytest.raises(DataError, match="line 2 is not csv"):
        load_task(str(path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no train.tsv or train.csv"):
        load_task(str(tmp_path / "empty"))


class _Split(dict):
    column_names = ("text", "label")


def test_a_data_set_of_the_hub(monkeypatch):
    import datasets

    requests = []

    def hub(*name):
        requests.append(name)
        texts, labels = [f"film {number}" for number in range(30)], [0, 1] * 15
        return {"train": _Split(text=texts, label=labels), "test": _Split(text=["a"], label=[1])}

    monkeypatch.setattr(datasets, "load_dataset", hub)
    task = load_task("someone/films:small")
    assert requests == [("someone/films", "small")]
    assert (task.labels, task.test.labels.tolist(), len(task.train)) == (("0", "1"), [1], 27)
    assert task.source == "someone/films:small"
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *name: {"train": _Split(text=["a", ""], label=[0, 1])}
    )
    with pytest.raises(DataError, match=r"split train: 1 row is broken: row 2"):
        load_task("someone/films")


def test_neither_here_nor_on_the_hub(monkeypatch):
    import datasets

    def unreachable(*name):
        raise ConnectionError

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match=r"hub could not be reached .*no file or folder a/b here"):
        load_task("a/b")


def test_a_column_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "twice.tsv"
    path.write_text(_tsv([("a", *row) for row in _rows(20)], "text\ttext\tlabel"))
    with pytest.raises(DataError, match="names the column 'text' twice"):
        load_task(str(path))


def test_other_files_may_have_their_columns_in_another_order(tmp_path):
    pairs = [(f"first {i}", f"second {i}", KINDS[i % 3]) for i in range(40)]
    (tmp_path / "train.tsv").write_text(_tsv(pairs, "sentence1\tsentence2\tlabel"))
    turned = [(two, one, label) for one, two, label in pairs[:9]]
    (tmp_path / "test.tsv").write_text(_tsv(turned, "sentence2\tsentence1\tlabel"))
    task = load_task(str(tmp_path), examples=30)
    assert task.texts(task.test.inputs[0].tolist())[1] == "first"
    with_ids = [(str(i), *row) for i, row in enumerate(_rows(9, "test"))]
    (tmp_path / "train.tsv").write_text(_tsv(_rows(40)))
    (tmp_path / "test.tsv").write_text(_tsv(with_ids, "id\ttext\tlabel"))
    assert all(int((ids == 1).sum()) == 1 for ids in load_task(str(tmp_path)).test.inputs)


def test_without_a_first_line_columns_are_numbers(tmp_path):
    path = tmp_path / "bare.tsv"
    path.write_text("\n".join(f"{label}\t{text}" for text, label in _rows(30)))
    assert load_task(str(path), header=False, label="1").labels == KINDS
    with pytest.raises(DataError, match="columns are numbers from 1 to 2, and '3' is none"):
        load_task(str(path), header=False, label="3")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"header": "no"}, "header must be true or false; got 'no'"),
        ({"max_tokens": "abc"}, "max_tokens must be a whole number; got 'abc'"),
        ({"examples": 1.5}, r"examples must be a whole number or none; got 1\.5"),
        ({"examples": -5}, "a split cannot have -5 examples"),
    ],
)
def test_options_of_another_type_are_refused(folder, options, message):
    with pytest.raises(UsageError, match=message):
        load_task(str(folder), **options)


def test_a_file_below_the_data_folder_is_found_by_its_name(tmp_path):
    (tmp_path / "mails.tsv").write_text(_tsv(_rows(60)))
    assert load_task("mails.tsv", data=tmp_path).labels == KINDS
    with pytest.raises(DataError, match=r"there is no file or folder reviews\.csv"):
        load_task("reviews.csv", data=tmp_path)


def test_a_tokenizer_must_know_words(folder, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(UsageError, match=r"no tokenizer at .*: there is no tokenizer\.json"):
        load_task(str(folder), tokenizer=str(bare))
    (bare / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="no tokenizer at"):
        load_task(str(folder), tokenizer=str(bare))


def test_data_is_told_apart(folder):
    first = load_task(str(folder))
    assert load_task(str(folder)).digest == first.digest
    rows = _rows(60)
    rows[3] = (rows[3][0], "urgent")
    (folder / "train.tsv.gz").write_bytes(gzip.compress(_tsv(rows).encode()))
    assert load_task(str(folder)).digest != first.digest


def test_a_column_may_be_called_by_a_number(tmp_path):
    path = tmp_path / "bare.tsv"
    path.write_text("\n".join(f"{label}\t{text}" for text, label in _rows(30)))
    assert load_task(str(path), header=False, label=1).labels == KINDS
