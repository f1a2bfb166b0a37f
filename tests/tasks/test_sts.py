"""STS 2012 to 2015: tested on all years, trained on what STS-B has besides."""

from __future__ import annotations

import gzip

import pytest

from sparing.core.errors import DataError
from sparing.tasks import load_task

HEAD = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"


def write(folder, *, shared=True):
    """A few pairs of each year; STS-B with some of them, spelled otherwise, and others."""
    (folder / "sts").mkdir(parents=True)
    (folder / "glue" / "STS-B").mkdir(parents=True)
    for year in range(2012, 2016):
        lines = [f"{n}.5\tA man of {year}, number {n}.\tA woman number {n}" for n in range(4)]
        text = "\n".join(lines) + "\n"
        if year == 2014:  # two data sets, one of them packed
            (folder / "sts" / "2014-b.tsv").write_text("5\tthe last\tone\n")
            (folder / "sts" / "2014-a.tsv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / "sts" / f"{year}-a.tsv").write_text(text)
    for part, count in (("train", 30), ("dev", 6)):
        rows = [(f"{part} first {n}", f"second {n}", str(n % 6)) for n in range(count)]
        if shared:
            rows += [
                ("A woman number 2", "a man of 2013 number 2", "1"),
                ("The LAST", "“one”", "2"),
            ]
        lines = [
            f"{n}\tg\tf\ty\to\ta\tb\t{a}\t{b}\t{score}" for n, (a, b, score) in enumerate(rows)
        ]
        (folder / "glue" / "STS-B" / f"{part}.tsv").write_text("\n".join([HEAD, *lines]) + "\n")
    return folder


def test_test_pairs_are_not_trained_on_in_either_order_or_spelling(tmp_path):
    task = load_task("sts", data=write(tmp_path))
    sizes = {"train": 30, "validation": 6, "test": 17, "2012": 4, "2013": 4, "2014": 5, "2015": 4}
    assert {name: len(split) for name, split in task.splits.items()} == sizes
    assert task.test.labels[:5].tolist() == [0.5, 1.5, 2.5, 3.5, 0.5]
    assert task.split("2014").labels.tolist() == [5.0, 0.5, 1.5, 2.5, 3.5]
    assert "train: 2 of 32 rows of STS-B hold a test pair: left out" in task.notes
    assert "subset: test holds 17 of 10608 published pairs" in task.notes
    assert (task.answer, task.metric, task.subset) == ("number", "spearman", True)


def test_files_that_are_missing_or_broken_are_named(tmp_path):
    folder = write(tmp_path)
    (folder / "sts" / "2013-a.tsv").rename(folder / "2013-a.tsv")
    with pytest.raises(DataError, match=r"put 2013-NAME\.tsv"):
        load_task("sts", data=folder)
    (folder / "sts" / "2013-a.tsv").write_text("5\tone\ttwo\n6\tone\ttwo\n\tone\n")
    with pytest.raises(DataError, match=r"2013-a.tsv: 2 rows are broken: line 2 .*line 3"):
        load_task("sts", data=folder)
    (folder / "sts" / "2013-a.tsv").write_text("5\tone\ttwo\n")
    train = folder / "glue" / "STS-B" / "train.tsv"
    train.write_text(f"{HEAD}\n0\tg\tf\ty\to\ta\tb\tTwo\tone\t1\n")
    with pytest.raises(DataError, match=r"all rows of train\.tsv"):
        load_task("sts", data=folder)
    train.unlink()
    with pytest.raises(DataError, match=r"train\.tsv"):
        load_task("sts", data=folder)
