"""``sparing predict``: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agree.models import rows, save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def texts(tmp_path) -> Path:
    path = tmp_path / "texts.csv"
    lines = [f"{n},{row}" for n, row in enumerate(rows(50))]
    path.write_text("\n".join(["id,body", *lines, "50,"]))
    return path


def lines_of(folder: Path) -> list[dict[str, object]]:
    paths = sorted(folder.glob("part-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_it_writes_a_row_for_each_row(command, model, texts, tmp_path):
    more = ("--processes", 1, "--rows-a-shard", 20, "--format", "jsonl", "--keep", "id")
    ended = command("predict", model, "--texts", texts, "--output-dir", tmp_path / "out", *more)
    assert ended.code == 0, ended.err
    assert "texts: body; copied: id" in ended.err
    assert "51 rows in 3 files of" in ended.out
    assert "1 with an error" in ended.out
    assert f"First error: {texts}: row 50: body is empty" in ended.out
    listed = lines_of(tmp_path / "out")
    assert [row["id"] for row in listed] == [str(n) for n in range(51)]
    assert {*listed[0]} == {"file", "row", "id", "label", "probability", "error"}


def test_json_is_one_object_and_the_same_command_resumes(command, model, texts, tmp_path):
    given = ("predict", model, "--texts", texts, "--output-dir", tmp_path / "out", "--json")
    first = command(*given, "--processes", 1).json
    assert first["rows"] == 51
    assert first["errors"] == 1
    assert first["rows_per_s"] > 0
    assert {"rows", "errors", "rows_per_s", "shards", "folder"} <= {*first}
    assert command(*given).json["answered"] == 0


def test_several_files_and_globs(command, model, texts, tmp_path):
    (tmp_path / "more.csv").write_text("body\none\n")
    given = ("--texts", tmp_path / "te*.csv", "--texts", tmp_path / "more.csv", "--json")
    ended = command("predict", model, *given, "--output-dir", tmp_path / "out", "--processes", 1)
    assert ended.json["rows"] == 52


def test_strict_ends_at_a_bad_row(command, model, texts, tmp_path):
    more = ("--output-dir", tmp_path / "out", "--processes", 1, "--strict")
    ended = command("predict", model, "--texts", texts, *more)
    assert ended.code == 1
    assert f"{texts}: row 50: body is empty" in ended.error
    assert not [*(tmp_path / "out").glob("part-*")]


def test_a_run_without_any_answer_fails(command, model, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": 1}\n{"text": 2}\n')
    more = ("--columns", "text", "--output-dir", tmp_path / "out", "--processes", 1)
    ended = command("predict", model, "--texts", tmp_path / "texts.jsonl", *more)
    assert ended.code == 1
    assert "no row has an answer: " in ended.error


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--columns", "boby"), 1, "did you mean 'body'"),
        (("--keep", "ids"), 1, "did you mean 'id'"),
        (("--shard", "4/3"), 2, "shard is one of several, such as 3/16; got '4/3'"),
        (("--format", "csv"), 2, "not one of parquet, jsonl"),
        (("--threshold", 0.7), 2, "threshold is for models that give several labels"),
        (("--overwrite", "--shard", "1/2"), 2, "overwrite begins the whole folder anew"),
    ],
)
def test_mistakes_are_one_line(command, model, texts, tmp_path, more, code, said):
    given = ("--texts", texts, "--output-dir", tmp_path / "out", "--processes", 1)
    ended = command("predict", model, *given, *more)
    assert ended.code == code
    assert said in ended.error
    assert not (tmp_path / "out").exists()


def test_other_settings_are_refused(command, model, texts, tmp_path):
    given = ("predict", model, "--texts", texts, "--output-dir", tmp_path / "out")
    assert command(*given, "--processes", 1).code == 0
    ended = command(*given, "--batch", 1)
    assert ended.code == 2
    assert "holds another run: batch was 8, is 1; choose another folder" in ended.error


def test_the_error_names_the_option_for_columns(command, model, tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("one,two,three\na b,c d,e f\ng,h i,j k\n")
    ended = command("predict", model, "--texts", path, "--output-dir", tmp_path / "out")
    assert "--columns=NAME,NAME" in ended.error
