"""The files of a run, and its rows as a stream: mistakes are named before a model is opened."""

from __future__ import annotations

import pytest

import sparing
from sparing.core.errors import DataError, UsageError
from sparing.predict import pools
from sparing.predict.inputs import Reader, open_inputs
from sparing.predict.options import Options
from tests.predict.files import output, texts, write_parquet


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "in" / "a.parquet", text=texts(40), id=range(40))
    write_parquet(tmp_path / "in" / "b.parquet", text=texts(30), id=range(30))
    return tmp_path / "in"


def refused(texts_given, **settings):
    with pytest.raises((DataError, UsageError)) as caught:
        sparing.predict("none", texts_given, output_dir="none", **settings)
    return str(caught.value)


def test_files_that_are_not_there(folder, tmp_path):
    assert "no file matches" in refused(folder / "*.jsonl")
    assert "did you mean 'a.parquet'" in refused(folder / "aa.parquet")
    (tmp_path / "empty").mkdir()
    assert "holds no files of texts (parquet, jsonl" in refused(tmp_path / "empty")
    assert "only the folder" in refused(tmp_path / "emp*")
    assert "is given twice" in refused([folder, folder / "a.parquet"])
    assert "no texts are given" in refused([])


def test_columns_that_are_not_there(folder):
    assert "has no column 'txt'; did you mean 'text'?" in refused(folder, columns="txt")
    assert "has no column 'ids'; did you mean 'id'?" in refused(folder, keep="ids")
    assert "columns are one name or two" in refused(folder, columns=("a", "b", "c"))
    assert "keep names a column twice" in refused(folder, keep=("id", "id"))


def test_every_file_is_looked_at_before_the_first_is_answered(folder):
    write_parquet(folder / "c.parquet", body=["a"])
    assert "c.parquet has no column 'text'" in refused(folder)
    write_parquet(folder / "c.parquet", text=["a"], id=["b"])
    assert "the column id is string, in files before it int64" in refused(folder, keep="id")
    (folder / "c.parquet").write_bytes(b"PAR1 and not the rest")
    assert "c.parquet is damaged or cut short" in refused(folder)


def test_a_file_that_is_damaged_inside_ends_the_run(models, tmp_path):
    path = write_parquet(tmp_path / "texts.parquet", text=texts(4000), group=1000)
    content = bytearray(path.read_bytes())
    middle = len(content) * 6 // 10
    content[middle : middle + 3000] = bytes(3000)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"texts.parquet (is damaged|cannot be read)"):
        sparing.predict(
            models["class"], path, output_dir=tmp_path / "out", processes=1, rows_a_shard=500
        )
    done = output(tmp_path / "out")
    assert [row["row"] for row in done] == list(range(len(done)))
    assert len(done) % 500 == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch": 0}, "batch must be at least 1; got 0"),
        ({"processes": 0}, "processes must be at least 1; got 0"),
        ({"rows_a_shard": -1}, "rows_a_shard must be at least 1; got -1"),
        ({"format": "csv"}, "format is 'csv', not one of parquet, jsonl"),
        ({"engine": "rays"}, "engine is 'rays', not one of local, ray; did you mean 'ray'"),
        ({"encoding": "utf8000"}, "unknown encoding 'utf8000'"),
        ({"columns": "text", "threshold": 2.0}, "threshold must be between 0 and 1"),
    ],
)
def test_impossible_settings(folder, settings, said):
    assert said in refused(folder, **settings)


def test_files_without_rows_are_passed_over(models, tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("text\n")
    (tmp_path / "c.csv").write_text("text\none\n")
    (tmp_path / "d.jsonl").write_text("")
    given = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv", "d.jsonl")]
    sparing.predict(models["class"], given, output_dir=tmp_path / "out", processes=1)
    assert [(row["file"][-5:], row["row"]) for row in output(tmp_path / "out")] == [("c.csv", 0)]
    assert "holds no texts, nor do the others" in refused([given[0], given[3]])


def test_no_more_is_read_than_the_workers_may_hold(models, tmp_path, monkeypatch):
    """The stream is at most two shards for each worker ahead of what is written."""
    (tmp_path / "texts.txt").write_text("\n".join(texts(400)))
    held, most = [0], [0]
    take, perform = Reader.take, pools.InProcess.submit

    def taking(reader, count):
        rows = take(reader, count)
        held[0] += len(rows)
        most[0] = max(most[0], held[0])
        return rows

    def performing(pool, work, *given):
        future = perform(pool, work, *given)
        held[0] -= len(given[2]) if len(given) > 2 else 0
        return future

    monkeypatch.setattr(Reader, "take", taking)
    monkeypatch.setattr(pools.InProcess, "submit", performing)
    result = sparing.predict(
        models["class"],
        tmp_path / "texts.txt",
        output_dir=tmp_path / "out",
        processes=1,
        rows_a_shard=20,
    )
    assert result.rows == 400
    assert most == [20]


def test_a_reader_takes_and_skips_the_same_rows(folder, tmp_path):
    (tmp_path / "in" / "c.csv").write_text("id,text\n" + "".join(f"{n},t {n}\n" for n in range(25)))
    inputs = open_inputs(folder, Options(keep=()))
    whole = Reader(inputs).take(1000)
    assert len(whole) == 95
    for known in (
        {},
        inputs.counts(),
        {str(file.path): c for file, c in zip(inputs.files, (40, 30, 25), strict=True)},
    ):
        for start in (0, 1, 39, 40, 41, 70, 71, 95, 96):
            reader = Reader(inputs, known)
            assert reader.skip(start) == min(start, 95)
            assert reader.take(3) == whole[start : start + 3]
            assert reader.skip(4) == max(0, min(4, 95 - start - 3))
            assert reader.take(100) == whole[start + 7 :]
            assert reader.share == 1.0
