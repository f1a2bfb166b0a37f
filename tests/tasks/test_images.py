from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

from sparing.core.errors import DataError, UsageError
from sparing.tasks import load_task
from sparing.tasks._pictures import Pictures, decoded, fitted

CLASSES = tuple("abcdefg")


def _picture(red=255, size=(8, 8), mode="RGB", form="PNG"):
    file = io.BytesIO()
    colour = red if mode == "L" else (red, 0, 0)
    Image.new(mode, size, colour).save(file, form)
    return file.getvalue()


def _torn():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()[:2000]


def _folder(root, splits=("train", "val"), count=10):
    for split in splits:
        for number, name in enumerate(CLASSES):
            class_dir = root / split / name
            class_dir.mkdir(parents=True)
            for index in range(count):
                (class_dir / f"{index}.png").write_bytes(_picture(number * 20 + index))
    return root


def test_a_folder_of_pictures_is_a_task_by_its_path(tmp_path):
    task = load_task(str(_folder(tmp_path / "pets")), image_size=16, patch_size=4)
    assert task.name == "pets"
    assert [len(split) for split in task.splits.values()] == [63, 7, 70]
    assert (task.labels, task.metrics) == (CLASSES, ("accuracy", "top5"))
    assert task.validation.labels.sort().values.tolist() == list(range(7))
    assert (task.tokens, task.channels, task.image_size) == (17, 3, 16)
    assert task.test.inputs.shape == (70, 3, 16, 16)
    expected = torch.tensor([61 / 127.5 - 1, -1.0, -1.0])
    torch.testing.assert_close(task.test.inputs[31, :, 5, 5], expected)


def test_val_is_validation_where_there_is_a_test(tmp_path):
    root = _folder(tmp_path, ("train", "val", "test"), count=2)
    task = load_task("image-folder", source=str(root))
    assert [len(split) for split in task.splits.values()] == [14, 14, 14]


def test_many_pictures_are_read_one_by_one(tmp_path, monkeypatch):
    root = _folder(tmp_path)
    whole = load_task(str(root), image_size=8)
    monkeypatch.setattr("sparing.tasks._pictures.IN_MEMORY_BYTES", 100)
    task = load_task(str(root), image_size=8)
    assert isinstance(task.train.inputs, Pictures)
    batches = [loaded.collate([loaded.train[3], loaded.train[9]]) for loaded in (whole, task)]
    assert torch.equal(batches[0]["pixel_values"], batches[1]["pixel_values"])
    part = task.train.subset([9, 3])
    assert isinstance(part.inputs, Pictures)
    assert torch.equal(part[1]["pixel_values"], task.train[3]["pixel_values"])
    assert part.lengths == [1, 1]
    (root / "train" / "a" / "0.png").write_bytes(b"no picture")
    # the task that is loaded already: the types of a new one are checked on a picture at random
    with pytest.raises(DataError, match="is not a picture in a known format"):
        list(task.splits["train"].inputs) + list(task.splits["validation"].inputs)


@pytest.mark.parametrize(
    ("mode", "form"),
    [("L", "JPEG"), ("P", "PNG"), ("RGBA", "PNG"), ("LA", "PNG"), ("CMYK", "JPEG")],
)
def test_pictures_of_all_modes_become_colour(mode, form):
    file = io.BytesIO()
    Image.new("RGB", (5, 4), (204, 204, 204)).convert(mode).save(file, form)
    pixels = decoded(file.getvalue(), "it")
    assert pixels.shape == (3, 4, 5)
    assert (pixels.int() - 204).abs().max() <= 1


def test_the_middle_is_kept_and_the_shorter_side_fitted():
    pixels = torch.zeros(3, 10, 30, dtype=torch.uint8)
    pixels[:, :, 10:20] = 255
    picture = fitted(pixels, 5)
    assert picture.shape == (3, 5, 5)
    assert picture[:, :, 1:4].min() > 0.99
    same = torch.randint(0, 256, (3, 6, 6), dtype=torch.uint8)
    assert torch.equal(fitted(same, 6), same.float() / 127.5 - 1)
    assert fitted(pixels[:, :, :10], 20).shape == (3, 20, 20)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "train/a/x.txt").write_text("x"), "is not a picture by its name"),
        (lambda root: (root / "train/b/3.png").write_bytes(_torn()), r"3.png cannot be read: "),
        (lambda root: (root / "train/y").mkdir(), "y holds no picture"),
        (lambda root: (root / "val/z").mkdir(), "z is not a class of train"),
        (lambda root: (root / "val").rename(root / "vals"), "has no folder val or test"),
        (lambda root: (root / "train").rename(root / "trains"), "has no folder train"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(tmp_path, spoil, message):
    spoil(_folder(tmp_path))
    with pytest.raises(DataError, match=message):
        load_task("image-folder", source=str(tmp_path), image_size=8)


def test_patches_must_tile(tmp_path):
    with pytest.raises(UsageError, match="patch_size must divide image_size; got 5 and 64"):
        load_task(str(_folder(tmp_path)), patch_size=5)
    with pytest.raises(UsageError, match="give source"):
        load_task("image-folder")


def _rows(count):
    rows = bytearray()
    for number in range(count):
        rows += bytes([number % 10]) + bytes([number]) * 1024 + bytes(2048)
    return bytes(rows)


def test_cifar_10s_binary_version(tmp_path):
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(_rows(20))
    (folder / "test_batch.bin").write_bytes(_rows(10))
    task = load_task("cifar10", data=tmp_path)
    assert [len(split) for split in task.splits.values()] == [90, 10, 10]
    assert task.test.labels.tolist() == list(range(10))
    torch.testing.assert_close(task.test.inputs[7, 0, 3, 3], torch.tensor(7 / 127.5 - 1))
    assert (task.test.inputs[7, 1:] == -1).all()
    assert task.subset
    assert (task.chance, task.tokens, task.labels[3]) == (0.1, 65, "cat")
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
        tar.add(folder, "cifar-10-batches-bin")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.parent.rmdir()
    packed = load_task("cifar10", data=tmp_path)
    assert torch.equal(packed.train.inputs, task.train.inputs)
    assert load_task("cifar10", data=tmp_path, image_size=64).train.inputs.shape[-1] == 64


def test_cifar_10_damaged(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "data_batch_1.bin").write_bytes(_rows(20)[:-1])
    with pytest.raises(DataError, match="are not rows of 3073 bytes"):
        load_task("cifar10", data=tmp_path)
    (folder / "data_batch_1.bin").write_bytes(b"\x0b" + bytes(3072))
    with pytest.raises(DataError, match="holds the label 11"):
        load_task("cifar10", data=tmp_path)


def _cifar_100(folder, *, names=100, train=b"", test=b""):
    folder.mkdir(parents=True)
    rows = b"".join(bytes([n // 5, n]) + bytes([n]) * 1024 + bytes(2048) for n in range(100))
    (folder / "train.bin").write_bytes(train or rows * 2)
    (folder / "test.bin").write_bytes(test or rows)
    listed = "\n".join(f"kind_{number}" for number in range(names))
    (folder / "fine_label_names.txt").write_text(f"{listed}\n")


def test_cifar_100s_binary_version_gives_the_fine_labels(tmp_path):
    _cifar_100(tmp_path / "cifar100" / "cifar-100-binary")
    task = load_task("cifar100", data=tmp_path)
    assert [len(split) for split in task.splits.values()] == [180, 20, 100]
    assert task.test.labels.tolist() == list(range(100))
    assert (task.labels[42], task.chance, task.classes) == ("kind_42", 0.01, 100)
    torch.testing.assert_close(task.test.inputs[7, 0, 3, 3], torch.tensor(7 / 127.5 - 1))
    assert task.subset


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"names": 99}, "names 99 classes, not 100"),
        ({"train": bytes(3073)}, "3073 bytes are not rows of 3074 bytes"),
        ({"test": bytes([0, 100]) + bytes(3072)}, "holds the label 100: it is not CIFAR-100"),
    ],
)
def test_cifar_100_damaged(tmp_path, spoil, message):
    _cifar_100(tmp_path / "cifar-100-binary", **spoil)
    with pytest.raises(DataError, match=message):
        load_task("cifar100", data=tmp_path)


@pytest.mark.parametrize(
    ("name", "column", "classes"), [("cifar10", "label", 10), ("cifar100", "fine_label", 100)]
)
def test_cifar_of_the_hub(monkeypatch, name, column, classes):
    kinds = datasets.ClassLabel(names=[f"kind_{number}" for number in range(classes)])
    features = datasets.Features({"img": datasets.Image(), column: kinds})
    pictures = [Image.new("RGB", (32, 32), (n, 0, 0)) for n in range(classes)]

    def part(times):
        rows = {"img": pictures * times, column: [*range(classes)] * times}
        return datasets.Dataset.from_dict(rows, features=features)

    hub = datasets.DatasetDict({"train": part(2), "test": part(1)})
    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", lambda path: hub)
    task = load_task(name)
    assert task.test.labels.tolist() == list(range(classes))
    torch.testing.assert_close(task.test.inputs[7, 0, 3, 3], torch.tensor(7 / 127.5 - 1))
    assert task.labels[7] == ("kind_7" if name == "cifar100" else "horse")


def _arrays(path, **changes):
    content = {
        "x_train": np.zeros((20, 32, 32, 3), np.uint8),
        "y_train": np.arange(20) % 10,
        "x_test": np.full((10, 32, 32, 3), 255, np.uint8),
        "y_test": np.arange(10),
        "class_names": np.array(list("abcdefghij")),
    }
    np.savez(path, **{**content, **changes})


def test_arrays_are_read_but_nothing_is_unpickled(tmp_path):
    path = tmp_path / "cifar10_part.npz"
    _arrays(path)
    task = load_task("cifar10", data=tmp_path)
    assert task.labels == tuple("abcdefghij")
    assert (task.test.inputs == 1).all()
    _arrays(path, class_names=np.array(list("abcdefghij"), dtype=object))
    with pytest.raises(DataError, match="class_names holds Python objects, which are never"):
        load_task("cifar10", data=tmp_path)
    _arrays(path, y_test=np.arange(9))
    with pytest.raises(DataError, match="do not fit"):
        load_task("cifar10", data=tmp_path)
    _arrays(path, y_test=np.arange(10) + 5)
    with pytest.raises(DataError, match="y_test holds the label 10; labels are 0 to 9"):
        load_task("cifar10", data=tmp_path)
    path.write_bytes(b"PK no")
    with pytest.raises(DataError, match="damaged or cut short"):
        load_task("cifar10", data=tmp_path)


def _tiny():
    wnids = ["n02", "n01", "n03"]
    yield "wnids.txt", "\n".join(wnids).encode()
    yield "words.txt", b"n01\tcrane, bird\nn02\tfish\nn03\tcrane\nn04\tother\n"
    owners = [f"val_{i}.JPEG\t{wnids[i % 3]}\t0\t0\t9\t9" for i in range(6)]
    yield "val/val_annotations.txt", "\n".join(owners).encode()
    for i in range(6):
        yield f"val/images/val_{i}.JPEG", _picture(i, form="JPEG")
    for wnid in wnids:
        lines = [f"{wnid}_{i}.JPEG\t{i}\t0\t{i + 31}\t63" for i in range(10)]
        yield f"train/{wnid}/{wnid}_boxes.txt", "\n".join(lines).encode()
        for i in range(10):
            mode = "L" if i == 0 else "RGB"
            yield f"train/{wnid}/images/{wnid}_{i}.JPEG", _picture(i, mode=mode, form="JPEG")


def test_tiny_imagenet_in_its_own_layout(tmp_path):
    folder = tmp_path / "tiny-imagenet"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in _tiny():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
    task = load_task("tiny-imagenet", data=tmp_path, image_size=8, patch_size=4)
    assert task.labels == ("fish", "crane n01", "crane n03")
    assert [len(split) for split in task.splits.values()] == [27, 3, 6]
    assert task.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert task.metrics == ("accuracy",)
    assert "subset: 3 of 200 classes" in task.notes
    for name, content in _tiny():
        path = tmp_path / "again" / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    again = load_task("tiny-imagenet", data=tmp_path / "again", image_size=8, patch_size=4)
    assert torch.equal(again.train.inputs, task.train.inputs)
    (tmp_path / "again/tiny-imagenet-200/wnids.txt").unlink()
    with pytest.raises(DataError, match=r"holds no wnids.txt"):
        load_task("tiny-imagenet", data=tmp_path / "again")


def _write_tiny(root, **changes):
    for name, content in _tiny():
        path = root / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(changes.get(path.name, content))


def test_tiny_imagenets_boxes(tmp_path):
    _write_tiny(tmp_path)
    task = load_task("tiny-imagenet", data=tmp_path, image_size=8, patch_size=4, boxes=True)
    assert task.test.boxes[0].tolist() == [5 / 64, 5 / 64, 10 / 64, 10 / 64]
    boxes = torch.cat([task.train.boxes, task.validation.boxes]) * 64
    assert sorted({x for x, *_ in boxes.tolist()}) == [16.0 + i for i in range(10)]
    assert boxes[:, 1:].unique(dim=0).tolist() == [[32.0, 32.0, 64.0]]
    plain = load_task("tiny-imagenet", data=tmp_path, image_size=8, patch_size=4)
    assert plain.train.boxes is None
    assert torch.equal(plain.train.inputs, task.train.inputs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"n01_0.JPEG\t0\t0\t9", "n01_boxes.txt, line 1 is not a box of four numbers"),
        (b"n01_0.JPEG\t0\t0\t9\tx", "line 1 is not a box of four numbers"),
        (b"\n\nn01_0.JPEG\t9\t0\t8\t5", "the box is not in the picture"),
        (b"n01_0.JPEG\t0\t0\t64\t5", "the box is not in the picture"),
        (b"n01_0.JPEG\t0\t0\t9\t9", "no box for 9 pictures, n01_1.JPEG for one"),
    ],
)
def test_tiny_imagenets_damaged_boxes(tmp_path, content, message):
    _write_tiny(tmp_path, **{"n01_boxes.txt": content})
    with pytest.raises(DataError, match=message):
        load_task("tiny-imagenet", data=tmp_path, boxes=True)
    load_task("tiny-imagenet", data=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes", "classes"),
    [("cifar10", [9000, 1000, 2000], 10), ("tiny-imagenet", [1800, 200, 500], 20)],
)
def test_the_real_files(name, sizes, classes):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with cifar10/ and tiny-imagenet/")
    task = load_task(name, data=Path(os.environ["SPARING_DATA"]))
    assert [len(split) for split in task.splits.values()] == sizes
    assert (task.classes, task.metrics, task.subset) == (classes, ("accuracy", "top5"), True)


@pytest.mark.slow
def test_the_flowers_in_imagenets_layout(tmp_path):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with flowers/")
    path = Path(os.environ["SPARING_DATA"]) / "flowers" / "flower_photos_originals_40.tar"
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    task = load_task(str(tmp_path / "flower_photos"), image_size=96, patch_size=16)
    assert [len(split) for split in task.splits.values()] == [27, 3, 10]
    assert task.labels == ("daisy", "dandelion", "roses", "sunflowers", "tulips")


def _saved(picture, form="PNG", **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def test_sixteen_bits_become_eight():
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    pixels = decoded(_saved(Image.fromarray(values)), "x")
    expected = torch.tensor(values.astype(np.float64) / 257).round()
    assert (pixels[0] - expected).abs().max() <= 1
    with pytest.raises(DataError, match="x has fractional pixels"):
        decoded(_saved(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF"), "x")
    wide = Image.fromarray(np.full((4, 4), 2**20, np.int32))
    with pytest.raises(DataError, match="x has pixels of more than 16 bits"):
        decoded(_saved(wide, "TIFF"), "x")


def test_what_is_transparent_lies_on_white():
    drawing = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    drawing.putpixel((1, 2), (0, 0, 0, 255))
    pixels = decoded(_saved(drawing), "x")
    assert pixels[:, 2, 1].tolist() == [0, 0, 0]
    assert int((pixels == 255).sum()) == 3 * 15


def test_a_picture_taken_upright_is_read_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    assert decoded(_saved(Image.new("RGB", (40, 20)), "JPEG", exif=exif), "x").shape == (3, 40, 20)


def test_a_broken_picture_is_named_by_its_own_name(tmp_path):
    _write_tiny(tmp_path, **{"n02_5.JPEG": _torn()})
    with pytest.raises(DataError, match=r"train/n02/images/n02_5\.JPEG cannot be read"):
        load_task("tiny-imagenet", data=tmp_path, image_size=8, patch_size=4)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.txt", b"n01\tcrane\nn02", "words.txt, line 2: 'n02' has one column"),
        ("val_annotations.txt", b"val_0.JPEG", "line 1: 'val_0.JPEG' has one column"),
        ("wnids.txt", b"n01\nn01\nn02", "names a class twice"),
        ("wnids.txt", b"n01\nn02\nn03\nn09", "no training pictures of n09"),
    ],
)
def test_tiny_imagenets_damaged_lists(tmp_path, name, content, message):
    _write_tiny(tmp_path, **{name: content})
    with pytest.raises(DataError, match=message):
        load_task("tiny-imagenet", data=tmp_path)


def test_one_class_teaches_nothing(tmp_path):
    for split in ("train", "val"):
        class_dir = tmp_path / split / "cats"
        class_dir.mkdir(parents=True)
        (class_dir / "1.png").write_bytes(_picture())
    with pytest.raises(DataError, match="holds only cats; it needs two classes or more"):
        load_task("image-folder", source=str(tmp_path))


def test_a_picture_in_no_class_is_named(tmp_path):
    root = _folder(tmp_path, count=2)
    (root / "train" / "loose.png").write_bytes(_picture())
    with pytest.raises(DataError, match=r"loose\.png is in no class"):
        load_task("image-folder", source=str(root))


def test_a_test_split_without_labels_is_left_out(tmp_path):
    root = _folder(tmp_path, ("train", "val"), count=2)
    (root / "test").mkdir()
    (root / "test" / "1.png").write_bytes(_picture())
    task = load_task("image-folder", source=str(root), image_size=16, patch_size=4)
    assert len(task.test) == 14
    assert any("are in no class's folder" in note for note in task.notes)


def test_a_strip_is_cut_before_it_is_scaled():
    strip = torch.randint(0, 256, (3, 2, 4001), dtype=torch.uint8)
    middle = strip[:, :, 1992:2009]
    torch.testing.assert_close(fitted(strip, 32), fitted(middle, 32), atol=0.2, rtol=0)
    sizes = []
    resized = torch.nn.functional.interpolate

    def watched(values, size, **more):
        sizes.append(size)
        return resized(values, size, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparing.tasks._pictures.F.interpolate", watched)
        fitted(strip, 224)
    assert max(sizes[0]) <= 5 * 224
