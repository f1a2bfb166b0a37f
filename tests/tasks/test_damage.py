"""Files that are damaged, foreign, or unpack to far more than they should: one line each."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path
from zlib import crc32

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from sparing.core.errors import DataError
from sparing.tasks import _archive, _pictures, load_task
from sparing.tasks._archive import files_in
from sparing.tasks._pictures import decoded
from sparing.tasks.shared.files import unpacked_limit

REVIEW = "aclImdb/train/pos/1_7.txt"


def _saved(picture, form="PNG", **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def _exif(*entries, after=b""):
    """EXIF notes of (tag, type, count, value)."""
    packed = b"".join(struct.pack("<HHLL", *entry) for entry in entries)
    head = b"II*\0" + struct.pack("<LH", 8, len(entries))
    return b"Exif\0\0" + head + packed + struct.pack("<L", 0) + after


TURNED = (0x0112, 3, 1, 6)
BROKEN_NOTES = {
    "a negative fraction": _exif(TURNED, (282, 10, 1, 38), after=struct.pack("<ll", -1, 0)),
    "a value outside": _exif(TURNED, (282, 5, 1, 2**31)),
    "an unknown type": _exif(TURNED, (282, 99, 1, 0)),
}


@pytest.mark.parametrize("notes", BROKEN_NOTES.values(), ids=BROKEN_NOTES)
def test_a_picture_with_broken_notes_is_read_and_upright(tmp_path, notes):
    path = tmp_path / "x.jpg"
    path.write_bytes(_saved(Image.new("RGB", (40, 20)), "JPEG", exif=notes))
    assert decoded(path, "x").shape == (3, 40, 20)


@pytest.mark.parametrize("notes", [b"Exif\0\0II*\0", b"Exif\0\0junk", _exif((0x0112, 2, 4, 9))])
def test_notes_that_say_nothing_are_left_out(notes):
    picture = _saved(Image.new("RGB", (40, 20)), "JPEG", exif=notes)
    assert decoded(picture, "x").shape == (3, 20, 40)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_pillow_does(orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    colours = np.random.default_rng(0).integers(0, 256, (5, 3, 3), np.uint8)
    stored = _saved(Image.fromarray(colours), "PNG", exif=exif)
    with Image.open(io.BytesIO(stored)) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture))
    assert torch.equal(decoded(stored, "x"), torch.tensor(expected).permute(2, 0, 1))


@pytest.mark.parametrize("size", [(8193, 8192), (13_000, 13_000), (20_000, 20_000)])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch, size):
    headers = _header_of_png(size), _header_of_gif(size)
    monkeypatch.setattr(Image.Image, "load", lambda picture: pytest.fail("decoded"))
    for stored in headers:
        with pytest.raises(DataError, match=r"many has .*67,108,864"):
            decoded(stored, "many")


def _header_of_png(size):
    chunks = (b"IHDR", struct.pack(">LLBBBBB", *size, 1, 0, 0, 0, 0)), (b"IDAT", b"x")
    packed = (
        struct.pack(">L", len(content)) + kind + content + struct.pack(">L", crc32(kind + content))
        for kind, content in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _header_of_gif(size):
    stored = bytearray(_saved(Image.new("P", (1, 1)), "GIF"))
    stored[6:10] = struct.pack("<HH", *size)
    return bytes(stored)


def test_of_several_frames_the_first_is_read():
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    for form in ("GIF", "TIFF", "WEBP", "PNG"):
        stored = _saved(frames[0], form, save_all=True, append_images=frames[1:])
        red, green, blue = decoded(stored, "x")[:, 1, 1].tolist()
        assert red > 240
        assert green + blue < 30


@pytest.mark.parametrize("form", ["EPS", "ICO", "PCX", "SGI", "TGA", "PDF", "JPEG2000", "DDS"])
def test_pictures_of_other_formats_are_not_opened(form):
    with pytest.raises(DataError, match=r"x is not a picture in a known format \(JPEG, PNG"):
        decoded(_saved(Image.new("RGB", (16, 16)), form), "x")


@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF"])
def test_pictures_of_the_named_formats_are(form):
    if form not in Image.SAVE and form == "AVIF":
        pytest.skip("this Pillow has no AVIF")
    assert decoded(_saved(Image.new("RGB", (16, 8)), form), "x").shape == (3, 8, 16)


def test_only_one_function_opens_pictures():
    source = Path(_pictures.__file__).parents[1]
    opening = [path.name for path in source.rglob("*.py") if "Image.open(" in path.read_text()]
    assert opening == ["_pictures.py"]


def test_a_pipe_is_no_picture_and_no_table(tmp_path):
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match="is not a readable file"):
        decoded(tmp_path / "x.png", "x")


def test_a_flat_folder_of_classes_is_cut(tmp_path):
    for number, name in enumerate(("cats", "dogs")):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for index in range(10):
            ending, form = ((".jfif", "JPEG"), (".PNG", "PNG"))[index % 2]
            picture = Image.new("RGB", (8, 8), (100 * number + index, 0, 0))
            (tmp_path / "pets" / name / f"{index}{ending}").write_bytes(_saved(picture, form))
    task = load_task(str(tmp_path / "pets"), image_size=8, patch_size=4)
    assert [len(split) for split in task.splits.values()] == [15, 1, 4]
    assert (task.labels, task.test.labels.sort().values.tolist()) == (
        ("cats", "dogs"),
        [0, 0, 1, 1],
    )
    assert task.source_note == "classes: cats, dogs; test: a fifth, 4 of 20 pictures"
    again = load_task(str(tmp_path / "pets"), image_size=8, patch_size=4)
    assert torch.equal(again.test.inputs, task.test.inputs)


def _cifar(path, **changes):
    content = {
        "x_train": np.zeros((20, 32, 32, 3), np.uint8),
        "y_train": np.arange(20) % 10,
        "x_test": np.zeros((10, 32, 32, 3), np.uint8),
        "y_test": np.arange(10),
        "class_names": np.array(list("abcdefghij")),
    }
    np.savez(path / "cifar10_x.npz", **{**content, **changes})


TEN = np.arange(10)
DATES = TEN.astype("datetime64[D]")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": TEN + 0.7}, r"y_test holds the label 0\.7"),
        ({"y_test": TEN > 4}, r"y_test is bool \(10,\); labels are a list of integers"),
        ({"y_test": TEN * np.nan}, "y_test holds the label nan"),
        ({"y_test": TEN.astype(str)}, "y_test is <U21"),
        ({"y_test": TEN * 1j}, "y_test is complex128"),
        ({"y_test": DATES}, "y_test is datetime64"),
        ({"y_test": TEN - 1}, "y_test holds the label -1"),
        ({"y_test": TEN.astype(np.uint64) + 2**63}, "y_test holds the label 92233720"),
        ({"y_test": TEN.astype(object)}, "y_test holds Python objects"),
        ({"y_test": TEN[:, None]}, r"y_test is int64 \(10, 1\)"),
        ({"class_names": np.array("a")}, r"class_names is <U1 \(\)"),
        ({"class_names": TEN}, "class_names is int64"),
        (
            {"x_test": np.zeros((10, 0, 32, 3), np.uint8)},
            r"x_test is uint8 \(10, 0, 32, 3\): there are no pixels",
        ),
        ({"x_test": np.full((10, 32, 32, 3), np.nan)}, "x_test is float64"),
        ({"x_test": np.zeros((10, 32, 32), np.uint8)}, r"x_test is uint8 \(10, 32, 32\)"),
        ({"x_test": np.zeros((10, 32, 32, 4), np.uint8)}, "x_test is uint8"),
    ],
)
def test_odd_arrays_are_named(tmp_path, changes, message):
    _cifar(tmp_path, **changes)
    with pytest.raises(DataError, match=r"cifar10_x\.npz: " + message):
        load_task("cifar10", data=tmp_path)


def test_whole_numbers_may_be_stored_as_fractions(tmp_path):
    _cifar(tmp_path, y_test=TEN.astype(np.float32))
    assert load_task("cifar10", data=tmp_path).test.labels.tolist() == list(range(10))


def _with_header(path, header, content=b""):
    _cifar(path)
    file = path / "cifar10_x.npz"
    with zipfile.ZipFile(file) as old:
        members = {name: old.read(name) for name in old.namelist()}
    packed = header.encode().ljust(117) + b"\n"
    members["x_train.npy"] = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + packed + content
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name, member in members.items():
            new.writestr(name, member)


@pytest.mark.parametrize(
    ("header", "content", "message"),
    [
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (10**13, 3)}", b"", "damaged"),
        (
            "{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000,)}",
            b"",
            "x_train should have 10,000,000,000,000 bytes but has 0",
        ),
        ("(" * 100, b"", "is damaged or cut short"),
        (
            "{'descr': '|u1', 'fortran_order': False, 'shape': (67108865,)}",
            bytes(2**26 + 1),
            "x_train has 67,108,993 bytes; 67,108,864 at most",
        ),
    ],
)
def test_headers_are_held_against_what_is_there(tmp_path, header, content, message):
    _with_header(tmp_path, header, content)
    with pytest.raises(DataError, match=message):
        load_task("cifar10", data=tmp_path)


def _tar(path, name, size, written=None, kind=tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    with gzip.open(path, "wb", 1) as file:
        file.write(entry.tobuf(tarfile.GNU_FORMAT) + bytes(size if written is None else written))
    return path


@pytest.mark.parametrize(
    ("name", "size", "kind", "message"),
    [
        (REVIEW, 2**30, tarfile.REGTYPE, "has 1,073,741,824 bytes; at most 16,777,216"),
        ("other", 2**30, tarfile.REGTYPE, "unpacks to more than 67,108,864 bytes"),
        ("header", 2**30, tarfile.XHDTYPE, "a part of 1,073,741,824 bytes"),
        ("header", 2**30, tarfile.GNUTYPE_LONGNAME, "a part of 1,073,741,824 bytes"),
    ],
)
def test_a_packed_archive_of_zeros_is_refused_by_its_headers(tmp_path, name, size, kind, message):
    path = _tar(tmp_path / "aclImdb_v1.tar.gz", name, size, written=2**20, kind=kind)
    with pytest.raises(DataError, match=message):
        load_task("imdb", data=tmp_path)
    assert path.stat().st_size < 10_000


def test_a_zip_of_zeros_is_refused_by_its_table(tmp_path):
    path = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tiny-imagenet-200/wnids.txt", bytes(2**26 + 1))
    with pytest.raises(DataError, match="unpacks to more than 67,108,864 bytes"):
        load_task("tiny-imagenet", data=tmp_path)


def test_an_archive_of_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(_archive, "MOST_MEMBERS", 3)
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(b"")
    with pytest.raises(DataError, match="holds more than 3 files"):
        list(files_in(tmp_path, "9", 1))


@pytest.mark.parametrize(
    "content", [b"no archive" * 100, b"", b"\x1f\x8b" + bytes(40), b"BZh9" * 9]
)
def test_a_damaged_archive_is_one_short_line(tmp_path, content):
    (tmp_path / "aclImdb_v1.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"aclImdb_v1\.tar\.gz") as error:
        load_task("imdb", data=tmp_path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200 + len(str(tmp_path))


def _idx(folder, shape, content, name="train-images-idx3-ubyte.gz"):
    head = bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    (folder / name).write_bytes(gzip.compress(head + content, 1))


@pytest.mark.parametrize(
    ("shape", "content", "message"),
    [
        ((1, 28, 28), bytes(2**26), "should hold 784 elements but holds more"),
        ((2**32 - 1, 28, 28), b"", "should hold .* elements; at most 1,073,741,824"),
        ((10**6, 28, 28), bytes(99), "should hold 784000000 elements but holds 99"),
    ],
)
def test_an_idx_file_is_read_up_to_its_headers_size(tmp_path, shape, content, message):
    _idx(tmp_path, shape, content)
    with pytest.raises(DataError, match=message):
        load_task("mnist", data=tmp_path)


def test_what_a_packed_file_may_unpack_to():
    assert [unpacked_limit(size) for size in (0, 10**7, 10**12)] == [2**26, 5 * 10**8, 2**33]


def _hub(pictures, labels):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"img": pictures, "label": labels}
    return datasets.DatasetDict(
        {split: datasets.Dataset.from_dict(rows, features=features) for split in ("train", "test")}
    )


@pytest.mark.parametrize(
    ("picture", "label", "message"),
    [
        ({"bytes": None, "path": "/etc/hostname"}, 0, "picture 1 .* is missing"),
        ({"bytes": b"no picture", "path": None}, 0, "picture 1 .* is not a picture"),
        ({"bytes": _header_of_png((9000, 9000)), "path": None}, 0, "picture 1 .* 9,000 x 9,000"),
        ({"bytes": _saved(Image.new("RGB", (4, 4))), "path": None}, 0, "not 32 x 32"),
        (None, 10, "has the label 10; labels are 0 to 9"),
        (None, -1, "has the label -1"),
    ],
)
def test_pictures_and_labels_of_a_data_set(monkeypatch, picture, label, message):
    good = {"bytes": _saved(Image.new("RGB", (32, 32))), "path": None}
    hub = _hub([good, picture or good], [0, label])
    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", lambda path: hub)
    with pytest.raises(DataError, match=message):
        load_task("cifar10")
