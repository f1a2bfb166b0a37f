"""The same call goes on where an earlier one ended; another run, or another user, is refused."""

from __future__ import annotations

import errno
import json
import shutil

import pytest

import sparing
from sparing.core.errors import DataError, UsageError
from sparing.core.locking import held_alone
from sparing.predict import folder as folders
from sparing.predict import study
from tests.agree.models import save_model
from tests.predict.files import contents, output, texts, times, write_parquet

SMALL = {"processes": 1, "rows_a_shard": 16}


@pytest.fixture
def file(tmp_path):
    return write_parquet(tmp_path / "texts.parquet", text=texts(100), other=texts(101)[1:])


@pytest.fixture
def begun(models, file, tmp_path):
    """A finished run."""
    sparing.predict(models["class"], file, output_dir=tmp_path / "out", columns="text", **SMALL)
    return tmp_path / "out"


def again(models, file, folder, **settings):
    settings = {"columns": "text", **SMALL, **settings}
    return sparing.predict(models["class"], file, output_dir=folder, **settings)


def test_only_what_is_missing_is_answered_again(models, file, begun, monkeypatch):
    before = contents(begun)
    (begun / "part-00002.parquet").unlink()
    (begun / "part-00006.parquet").unlink()
    answered = []
    answer = study.answer

    def counted(plan, number, rows):
        answered.append((number, len(rows)))
        return answer(plan, number, rows)

    monkeypatch.setattr(study, "answer", counted)
    result = again(models, file, begun)
    assert answered == [(2, 16), (6, 4)]
    assert contents(begun) == before
    assert (result.rows, result.answered, result.shards) == (100, 20, 7)
    assert again(models, file, begun).answered == 0


def test_a_run_that_is_interrupted_goes_on(models, file, begun, tmp_path, monkeypatch):
    calls = []
    answer = study.answer

    def interrupted(plan, number, rows):
        calls.append(number)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return answer(plan, number, rows)

    monkeypatch.setattr(study, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        again(models, file, tmp_path / "other")
    assert 1 <= len(contents(tmp_path / "other")) <= 3
    again(models, file, tmp_path / "other")
    assert contents(tmp_path / "other") == contents(begun)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"columns": "other"}, r"columns was \['text'\], is \['other'\]"),
        ({"batch": 4}, "batch was 8, is 4"),
        ({"rows_a_shard": 10}, "rows_a_shard was 16, is 10"),
        ({"format": "jsonl"}, "format was 'parquet', is 'jsonl'"),
        ({"keep": "other"}, r"keep was \[\], is \['other'\]"),
        ({"probabilities": True}, "probabilities was False, is True"),
    ],
)
def test_other_settings_are_refused(models, file, begun, settings, said):
    before, written = contents(begun), times(begun)
    with pytest.raises(UsageError, match=f"holds another run: {said}.*--overwrite"):
        again(models, file, begun, **settings)
    assert (contents(begun), times(begun)) == (before, written)
    again(models, file, begun, overwrite=True, **settings)
    assert len(output(begun)) == 100
    # not the bytes: another batch size may give the same answers
    assert not times(begun) & written


def test_settings_that_change_no_file_may_differ(models, file, begun):
    assert again(models, file, begun, strict=True, processes=1, shard="2/3").shards == 2


def test_another_model_or_other_texts_are_refused(models, file, begun, tmp_path):
    other = {"class": save_model(tmp_path / "other", noise=0.5)}
    with pytest.raises(UsageError, match=r"the model was '.*', is '"):
        again(other, file, begun)
    copied = {"class": shutil.copytree(models["class"], tmp_path / "copied")}
    again(copied, file, begun)
    more = write_parquet(tmp_path / "more.parquet", text=["a"])
    with pytest.raises(UsageError, match="the number of inputs was 1, is 2"):
        again(models, [file, more], begun)
    with pytest.raises(UsageError, match=r"an input was '.*texts.parquet', is '.*more.parquet'"):
        again(models, more, begun)
    write_parquet(file, text=["b"] * 100, other=["b"] * 100)
    with pytest.raises(UsageError, match=r"the input .*texts.parquet was '\d+ bytes, digest"):
        again(models, file, begun)


def test_a_folder_that_holds_something_else_is_refused(models, file, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"holds no predictions \(found thesis.tex\)"):
            again(models, file, folder, overwrite=overwrite)
    with pytest.raises(UsageError, match="is a file: give a folder"):
        again(models, file, folder / "thesis.tex")
    (folder / "predict.json").write_text('{"version": 1}')
    with pytest.raises(DataError, match="does not describe predictions"):
        again(models, file, folder, overwrite=True)
    assert (folder / "thesis.tex").exists()


def test_overwriting_leaves_files_of_others(models, file, begun):
    (begun / "notes.txt").write_text("mine")
    again(models, file, begun, overwrite=True, rows_a_shard=50)
    assert sorted(path.name for path in begun.iterdir() if path.name[0] != ".") == [
        *("notes.txt", "part-00000.parquet", "part-00001.parquet", "predict.json")
    ]
    with pytest.raises(UsageError, match="overwrite begins the whole folder anew"):
        again(models, file, begun, overwrite=True, shard="1/2")


def test_a_folder_in_use_is_refused(models, file, begun, monkeypatch):
    monkeypatch.setattr(folders, "PATIENCE_S", 0.0)
    with held_alone(begun, "test"):
        for shard in ("1/1", "1/2"):
            with pytest.raises(UsageError, match="is in use by another prediction"):
                again(models, file, begun, shard=shard)


def test_a_share_in_use_is_refused_and_others_are_free(models, file, begun):
    with held_alone(begun / ".shares" / "1-of-2", "test"):
        for shard in ("1/2", "1/1"):
            with pytest.raises(UsageError, match="share 1/2 is in use by another prediction"):
                again(models, file, begun, shard=shard)
        assert again(models, file, begun, shard="2/2").shards == 3
    assert again(models, file, begun).shards == 7


def test_a_damaged_file_of_the_output_is_named(models, file, begun):
    path = begun / "part-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"part-00001.parquet is damaged: remove it"):
        again(models, file, begun)
    path.unlink()
    assert again(models, file, begun).answered == 16
    shutil.copy(begun / "part-00006.parquet", path)
    with pytest.raises(DataError, match="has 4 rows, and the texts 16"):
        again(models, file, begun)


def test_a_full_disk_leaves_nothing_half_written(models, file, begun, tmp_path, monkeypatch):
    write, calls = study.write_atomically, []

    def full(path, content):
        calls.append(path)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(study, "write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        again(models, file, tmp_path / "full")
    assert [*contents(tmp_path / "full")] == ["part-00000.parquet", "part-00001.parquet"]
    assert again(models, file, tmp_path / "full").rows == 100
    assert contents(tmp_path / "full") == contents(begun)


def test_files_with_known_rows_are_passed_over_unread(models, tmp_path, monkeypatch):
    paths = []
    for name in ("a.txt", "b.txt", "c.txt"):
        paths.append(tmp_path / name)
        paths[-1].write_text("\n".join(texts(40)))
    out = tmp_path / "out"
    sparing.predict(models["class"], paths, output_dir=out, **SMALL)
    described = json.loads((out / "predict.json").read_text())
    assert [one["first_row"] for one in described["inputs"]] == [0, 40, 80]
    (out / "part-00007.parquet").unlink()
    before = contents(out)
    opened = []
    cursor = study.Reader._opened

    def noted(reader):
        opened.append(reader._number)
        return cursor(reader)

    monkeypatch.setattr(study.Reader, "_opened", noted)
    result = sparing.predict(models["class"], paths, output_dir=out, **SMALL)
    assert result.answered == 8
    assert contents(out).items() >= before.items()
    assert 2 in opened
