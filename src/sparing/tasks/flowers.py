"""Flowers: colour photos of daisies, dandelions, roses, sunflowers and tulips, of any size.

Source: The TensorFlow team, 2019, Flowers: 3,670 photos from Flickr, the archive flower_photos.tgz
of TensorFlow's tutorials.
"""

from __future__ import annotations

from pathlib import Path

from sparing.core.errors import DataError, nearest, quoted
from sparing.tasks._archive import ENDINGS, PICTURE_BYTES, files_in, find_archive
from sparing.tasks._arrays import read_arrays
from sparing.tasks._endings import files_with
from sparing.tasks._facts import Facts
from sparing.tasks._images import Part, Sizes, cut_test, image_task
from sparing.tasks.shared.files import data_folder
from sparing.tasks.shared.task import Task

FACTS = Facts(
    metrics=("accuracy",),
    licence="CC BY 2.0, each photo by its own author (LICENSE.txt of the archive)",
    source="TensorFlow's flower_photos (2019), "
    "storage.googleapis.com/download.tensorflow.org/example_images/flower_photos.tgz",
    splits="val where the layout has one, else a fifth of the photos, 734 of 3,670",
    chance=179 / 734,
)
SIZE = 64
LABELS = ("daisy", "dandelion", "roses", "sunflowers", "tulips")
PUBLISHED = 3670
NAME = "flower_photos"
WANTED = f"the folder {NAME}, or {NAME}.tgz as published,"
HELD_OUT = ("val", "test")
PHOTO = r"[^/]+/[^/.][^/]*\.(?i:jpg|jpeg|jfif)"


def load(
    *,
    data: Path | None = None,
    image_size: int = SIZE,
    patch_size: int = 8,
    examples: int | None = None,
    seed: int = 0,
) -> Task:
    """Five classes. A fifth of the photos is the test split; validation is cut from the rest.

    Photos are in flower_photos/CLASS/*.jpg as published, or in train/CLASS and val/CLASS, where val
    is the test split; in a folder or an archive. Or they are in an npz file flower_photos*.npz with
    x_train, y_train, x_val, y_val and class_names. All are looked for in flowers/ below the data
    folder or in it. The whole set is preferred to the npz file, and that to other archives. The
    shorter side is scaled to ``image_size`` and the middle kept; ``patch_size`` 8 gives 64 tokens
    and the class token. Raises ``DataError`` for classes without photos, and for files that are not
    pictures.
    """
    folder = data_folder("flowers", data, ("flowers",), WANTED)
    arrays = files_with(folder, NAME, (".npz",))
    whole = (folder / f"{NAME}{ending}" for ending in ("", *ENDINGS))
    labels: tuple[str, ...] = LABELS
    if arrays and not any(path.exists() for path in whole):
        train, test, labels = read_arrays(arrays[0], ("x_train", "y_train", "x_val", "y_val"))
    else:
        train, test = _from_layout(find_archive("flowers", folder, (NAME,), WANTED), seed)
    count = len(train.labels) + len(test.labels)
    notes = (f"subset: {count} of {PUBLISHED} published photos",) if count < PUBLISHED else ()
    sizes = Sizes(image_size, patch_size, examples, seed)
    return image_task("flowers", FACTS, labels, train, test, sizes, notes=notes)


def _from_layout(path: Path, seed: int) -> tuple[Part, Part]:
    """Training and test photos; a test part is cut where the layout has none."""
    photos: dict[bool, list[tuple[str, bytes]]] = {False: [], True: []}
    for match, content in files_in(path, PHOTO, PICTURE_BYTES):
        above, kind, file = match.group().split("/")[-3:]
        photos[above in HELD_OUT].append((f"{kind}/{file}", content))
    train = _part(path, photos[False])
    bare = [label for number, label in enumerate(LABELS) if number not in train.labels]
    if bare:
        raise DataError(f"task flowers: {path} holds no photo of {', '.join(bare)}")
    if photos[True]:
        return train, _part(path, photos[True])
    return cut_test(train, seed)


def _part(path: Path, photos: list[tuple[str, bytes]]) -> Part:
    """Photos by class and file name: archives and file systems have other orders."""
    photos = sorted(photos)
    kinds = [name.partition("/")[0] for name, _ in photos]
    for kind in kinds:
        if kind not in LABELS:
            raise DataError(
                f"{path}: {quoted(kind)} is not one of the five flowers{nearest(kind, LABELS)}"
            )
    return Part(
        [content for _, content in photos],
        [LABELS.index(kind) for kind in kinds],
        [name for name, _ in photos],
    )
