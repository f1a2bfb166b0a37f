"""Data files with any content load as a task or are refused in a line that names what is wrong."""

from __future__ import annotations

import functools
import gzip
import io
import shutil
import struct
import tarfile
import warnings
import zipfile

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from sparing.tasks import load_task
from sparing.tasks.texts import Sizes, parts_of, read_texts
from tests.fuzz.harness import CUTS, LEAVES, TEXTS, fuzzed, spoilt_bytes, survives

ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".CSV", ".jsonl", ".parquet", "")
DAMAGE = st.lists(CUTS, max_size=3)


def table(separator=","):
    """Rows that load as they are."""
    rows = [f"w{i} and more{separator}{'pos' if i % 2 else 'neg'}" for i in range(40)]
    return "\n".join([f"text{separator}label", *rows, ""]).encode()


def lines():
    """The same as JSON, one object a line."""
    rows = [f'{{"text": "w{i} and more", "label": "{i % 2}"}}' for i in range(40)]
    return "\n".join([*rows, ""]).encode()


@functools.cache
def archive(kind, count=12):
    """Reviews as they are published, packed."""
    files = {
        f"aclImdb/{split}/{side}/{n}_{7 if side == 'pos' else 2}.txt": f"{side} {n}".encode()
        for split in ("train", "test")
        for side in ("pos", "neg")
        for n in range(count)
    }
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as whole:
            for name, content in files.items():
                whole.writestr(name, content)
        return packed.getvalue()
    with tarfile.open(fileobj=packed, mode="w:gz" if kind == "tar.gz" else "w") as whole:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            whole.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@functools.cache
def picture(form="PNG"):
    """A small picture."""
    packed = io.BytesIO()
    pixels = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    Image.fromarray(pixels).save(packed, form)
    return packed.getvalue()


def fresh(folder, name):
    """An empty folder for this input."""
    directory = folder / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


@fuzzed(
    8,
    0.06,
    ending=st.sampled_from(ENDINGS),
    content=st.sampled_from([table(), table("\t"), table(";"), lines()]) | st.binary(max_size=200),
    cuts=DAMAGE,
    options=st.fixed_dictionaries(
        {},
        optional={
            "header": st.booleans(),
            "answer": st.sampled_from(["class", "number"]),
            "skip_broken": st.booleans(),
            "label": TEXTS,
            "text": TEXTS,
            "max_tokens": LEAVES,
            "examples": LEAVES,
        },
    ),
)
def test_tables(folder, ending, content, cuts, options):
    """Rows of texts in any file."""
    file = fresh(folder, "tables") / f"rows{ending}"
    spoilt = spoilt_bytes(content, cuts)
    file.write_bytes(gzip.compress(spoilt) if ending.endswith(".gz") else spoilt)
    survives(lambda: load_task(str(file), **options), file=file.name, spoilt=spoilt, o=options)


@fuzzed(
    8,
    0.06,
    ending=st.sampled_from(ENDINGS),
    content=st.sampled_from([table(), table("\t"), table(";"), lines()]) | st.binary(max_size=200),
    cuts=DAMAGE,
    options=st.fixed_dictionaries(
        {},
        optional={
            "columns": TEXTS | st.lists(st.sampled_from(["text", "label", "1", "2"]), max_size=3),
            "label": TEXTS,
            "encoding": st.sampled_from(["utf-8", "latin-1", "utf-16", "utf-7", "idna", "x"]),
            "header": st.booleans(),
            "split": TEXTS,
        },
    ),
)
def test_texts(folder, ending, content, cuts, options):
    """Texts with or without labels in any file, read and divided."""
    file = fresh(folder, "texts") / f"rows{ending}"
    spoilt = spoilt_bytes(content, cuts)
    file.write_bytes(gzip.compress(spoilt) if ending.endswith(".gz") else spoilt)

    def divided():
        return parts_of(read_texts(str(file), **options), seed=0, sizes=Sizes(5, 5, 5), needed=1)

    survives(divided, file=file.name, spoilt=spoilt, o=options)


@fuzzed(
    8, 0.06, value=LEAVES | st.lists(LEAVES) | st.dictionaries(TEXTS, LEAVES | st.lists(LEAVES))
)
def test_objects_of_texts(folder, value):
    """Objects of any kind as texts."""
    survives(lambda: read_texts(value), value=value)


@fuzzed(4, 0.02, ending=st.sampled_from([".csv.gz", ".tsv.gz"]), cuts=st.lists(CUTS, min_size=1))
def test_packed_tables(folder, ending, cuts):
    """Damage to what packs the rows."""
    file = fresh(folder, "packed") / f"rows{ending}"
    file.write_bytes(spoilt_bytes(gzip.compress(table(), mtime=0), cuts))
    survives(lambda: load_task(str(file)), content=file.read_bytes())


TYPES = st.sampled_from(["u1", "i8", "f4", "f8", "?", "c8", "U3", "S3", "M8[D]", "i1", "u8", "O"])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 4, 32, 40]), max_size=4)


@fuzzed(
    8,
    0.05,
    arrays=st.dictionaries(
        st.sampled_from(["x_train", "y_train", "x_test", "y_test", "class_names", "other"]),
        st.tuples(TYPES, SHAPES, st.sampled_from([0, 1, 9, -1, 200, np.nan, np.inf, 0.5])),
        max_size=2,
    ),
    cuts=st.just([]) | DAMAGE,
)
def test_arrays(folder, arrays, cuts):
    """An npz file with arrays of any type and shape."""
    count = 40
    made = {
        "x_train": np.zeros((count, 32, 32, 3), "u1"),
        "y_train": np.arange(count) % 10,
        "x_test": np.zeros((count, 32, 32, 3), "u1"),
        "y_test": np.arange(count) % 10,
        "class_names": np.array(list("abcdefghij")),
    }
    for name, (kind, shape, value) in arrays.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[name] = np.full(shape, value).astype(kind if kind != "M8[D]" else "i8")
        if kind == "M8[D]":
            made[name] = made[name].astype(kind)
    packed = io.BytesIO()
    np.savez(packed, **made)
    directory = fresh(folder, "arrays")
    (directory / "cifar10_x.npz").write_bytes(spoilt_bytes(packed.getvalue(), cuts))
    survives(lambda: load_task("cifar10", data=directory), arrays=arrays, cuts=cuts)


@fuzzed(
    6,
    0.03,
    name=st.sampled_from(["train-images-idx3", "train-labels-idx1", "t10k-labels-idx1"]),
    header=st.tuples(
        st.sampled_from([0, 0, 1, 255]),
        st.sampled_from([8, 8, 13, 0]),
        st.sampled_from([1, 3, 3, 0, 200]),
        st.lists(st.sampled_from([0, 1, 28, 28, 100, 2**31, 2**32 - 1]), max_size=4),
    ),
    packed=st.booleans(),
    cuts=DAMAGE,
)
def test_grey_pictures(folder, name, header, packed, cuts):
    """idx files with any header."""
    directory = fresh(folder, "idx")
    for stem, count in (("train", 40), ("t10k", 20)):
        images = struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + bytes(count * 784)
        labels = struct.pack(">HBBI", 0, 8, 1, count) + bytes(n % 10 for n in range(count))
        (directory / f"{stem}-images-idx3-ubyte").write_bytes(images)
        (directory / f"{stem}-labels-idx1-ubyte").write_bytes(labels)
    file = directory / f"{name}-ubyte"
    zero, kind, axes, sizes = header
    start = struct.pack(f">HBB{len(sizes)}I", zero, kind, axes, *sizes)
    content = spoilt_bytes(start + file.read_bytes()[len(start) :], cuts)
    if packed:
        file.unlink()
        (directory / f"{file.name}.gz").write_bytes(gzip.compress(content))
    else:
        file.write_bytes(content)
    survives(lambda: load_task("mnist", data=directory), name=name, header=header, cuts=cuts)


@fuzzed(
    6,
    0.03,
    form=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]),
    ending=st.sampled_from([".png", ".jpg", ".gif", ".bmp", ".tif", ".webp", ".ppm", ".txt", ""]),
    cuts=DAMAGE,
    size=st.sampled_from([8, 16, 1, 0, -8, 10**9]),
)
def test_pictures(folder, form, ending, cuts, size):
    """A folder of pictures, one of them damaged."""
    directory = fresh(folder, "pictures")
    for split in ("train", "val"):
        for label in "ab":
            (directory / split / label).mkdir(parents=True)
            for number in range(6):
                (directory / split / label / f"{number}.png").write_bytes(picture())
    spoilt = spoilt_bytes(picture(form), cuts)
    (directory / "train" / "a" / f"0{ending or '.png'}").write_bytes(spoilt)
    survives(
        lambda: load_task(str(directory), image_size=size, patch_size=4),
        form=form,
        ending=ending,
        spoilt=spoilt,
        size=size,
    )


@fuzzed(6, 0.03, kind=st.sampled_from(["tar.gz", "tar", "zip"]), cuts=st.lists(CUTS, max_size=2))
def test_archives(folder, kind, cuts):
    """Reviews in an archive that is damaged."""
    directory = fresh(folder, "archives") / "imdb"
    directory.mkdir()
    content = spoilt_bytes(archive(kind), cuts)
    (directory / f"aclImdb_v1.{kind}").write_bytes(content)
    survives(lambda: load_task("imdb", data=directory.parent), kind=kind, cuts=cuts)
