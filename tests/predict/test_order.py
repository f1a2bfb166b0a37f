"""One row out for each row in, in order: over files, shards, shares and processes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import sparing
from sparing.core.errors import UsageError
from tests.predict.files import contents, output, texts, write_parquet

SMALL = {"processes": 1, "rows_a_shard": 16}


@pytest.fixture
def folder(tmp_path):
    """Files of all formats, with duplicates and rows that are empty or broken."""
    listed, path = texts(100), tmp_path / "texts"
    write_parquet(path / "a.parquet", text=[None, *listed[:29]], label=["x"] * 30)
    (path / "b.csv").write_text("id,text\n" + "".join(f'1,"{t}"\n' for t in listed[30:50]) + "2\n")
    (path / "c.jsonl").write_text(
        "".join(json.dumps({"text": t}) + "\n" for t in listed[50:70]) + "[\n"
    )
    (path / "d.tsv").write_text("id\ttext\n" + "".join(f"1\t{t}\n" for t in listed[70:80]))
    with gzip.open(path / "e.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps({"text": t}) for t in (*listed[80:], " ")))
    (path / "notes.md").write_text("no texts")
    return path


COUNTS = {"a.parquet": 30, "b.csv": 21, "c.jsonl": 21, "d.tsv": 10, "e.jsonl.gz": 21}


def test_every_row_of_every_file_is_once_in_the_output(models, folder, tmp_path):
    result = sparing.predict(models["class"], folder, output_dir=tmp_path / "out", **SMALL)
    listed = output(tmp_path / "out")
    expected = [(str(folder / name), row) for name, count in COUNTS.items() for row in range(count)]
    assert [(row["file"], row["row"]) for row in listed] == expected
    assert (result.rows, result.errors, result.shards) == (103, 4, 7)
    faults = {(Path(row["file"]).name, row["row"]): row["error"] for row in listed if row["error"]}
    assert faults == {
        ("a.parquet", 0): "text is empty",
        ("b.csv", 20): "1 column, not 2",
        ("c.jsonl", 20): "the line is no JSON (Expecting value: line 2 column 1 (char 2))",
        ("e.jsonl.gz", 20): "text is empty",
    }
    assert all((row["label"] is None) == (row["error"] is not None) for row in listed)


def test_equal_texts_have_equal_answers(models, folder, tmp_path):
    sparing.predict(models["class"], folder, output_dir=tmp_path / "out", **SMALL, keep="text")
    by_text: dict[str, set[str]] = {}
    for row in output(tmp_path / "out"):
        if not row["error"]:
            by_text.setdefault(row["text"], set()).add(row["label"])
    assert all(len(labels) == 1 for labels in by_text.values())
    assert len(by_text) < 95


def test_all_shares_together_give_the_files_of_one_run(models, folder, tmp_path):
    sparing.predict(models["class"], folder, output_dir=tmp_path / "one", **SMALL)
    for shard in ("2/3", "3/3", "1/3"):
        sparing.predict(models["class"], folder, output_dir=tmp_path / "all", **SMALL, shard=shard)
    assert contents(tmp_path / "all") == contents(tmp_path / "one")
    assert len(contents(tmp_path / "one")) == 7
    described = [json.loads((tmp_path / n / "predict.json").read_text()) for n in ("one", "all")]
    assert described[0] == described[1]
    assert [one["rows"] for one in described[0]["inputs"]] == list(COUNTS.values())
    assert [one["first_row"] for one in described[0]["inputs"]] == [0, 30, 51, 72, 82]


def test_any_number_of_processes_gives_the_same_bytes(models, folder, tmp_path):
    for processes in (1, 2):
        sparing.predict(
            models["class"],
            folder,
            output_dir=tmp_path / str(processes),
            rows_a_shard=16,
            processes=processes,
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_the_rows_of_a_shard_divide_the_files_anew(models, folder, tmp_path):
    rows = {}
    for size in (1, 103, 1000):
        settings = {"processes": 1, "rows_a_shard": size, "batch": 1}
        sparing.predict(models["class"], folder, output_dir=tmp_path / str(size), **settings)
        rows[size] = output(tmp_path / str(size))
        assert len(contents(tmp_path / str(size))) == -(-103 // size)
    assert rows[1] == rows[103] == rows[1000]


def test_a_shard_is_one_of_several():
    for shard in ("0/3", "4/3", "3", "a/b", "1/0"):
        with pytest.raises(UsageError, match="shard is one of several, such as 3/16"):
            sparing.predict("m", "t", output_dir="o", shard=shard)
