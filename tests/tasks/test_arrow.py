"""Saved data sets whose arrow files would unpack to anything, or lie elsewhere, are not opened."""

from __future__ import annotations

import json

import datasets
import pyarrow as pa
import pytest

from sparing.core.errors import DataError
from sparing.tasks._arrow import require_plain_files
from sparing.tasks._frame import saved_data_set


@pytest.fixture(params=["one", "splits"])
def saved(request, tmp_path):
    """A saved data set, and the folder of its file."""
    one = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    one = one.cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    if request.param == "one":
        one.save_to_disk(str(tmp_path / "saved"))
        return tmp_path / "saved", tmp_path / "saved"
    datasets.DatasetDict(train=one).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved", tmp_path / "saved" / "train"


def rewrite(folder, table, codec):
    (file,) = folder.glob("*.arrow")
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with (
        pa.OSFile(str(file), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=options) as s,
    ):
        s.write_table(table)
    return file


def test_what_save_to_disk_writes_is_read(saved):
    folder, _ = saved
    assert saved_data_set(folder)["train"]["text"][:] == ["a", "b"]


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("words", [False, True], ids=["plain", "dictionary"])
def test_compressed_batches_are_refused_before_they_are_unpacked(saved, codec, words):
    folder, dataset_dir = saved
    texts = pa.array(["x" * 1000] * 5000)
    table = pa.table({"text": texts.dictionary_encode() if words else texts})
    file = rewrite(dataset_dir, table, codec)
    with pytest.raises(DataError, match=f"{file} is compressed"):
        saved_data_set(folder)
    rewrite(dataset_dir, table, None)
    require_plain_files(folder)


@pytest.mark.parametrize("name", ["../other.arrow", "/etc/passwd", 3, None])
def test_files_elsewhere_are_not_read(saved, name):
    folder, dataset_dir = saved
    state = json.loads((dataset_dir / "state.json").read_text())
    state["_data_files"] = [{"filename": name}]
    (dataset_dir / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match="not one beside it"):
        saved_data_set(folder)


@pytest.mark.parametrize(
    "damage", [b"", b"\xff\xff\xff\xff\x10\x00\x00\x00" + 16 * b"\xff", b"junk" * 50]
)
def test_damaged_files_are_named(saved, damage):
    folder, dataset_dir = saved
    (file,) = dataset_dir.glob("*.arrow")
    file.write_bytes(damage)
    with pytest.raises(DataError, match=r"is damaged|cannot be read"):
        saved_data_set(folder)
