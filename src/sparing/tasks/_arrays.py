"""Pictures and labels of an npz file; headers are checked before arrays are read."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparing.core.errors import DataError, listed, quoted
from sparing.tasks._archive import damage_named
from sparing.tasks._images import Part, from_pixels
from sparing.tasks.shared.files import unpacked_limit

NAMES = "class_names"


def read_arrays(path: Path, names: tuple[str, str, str, str]) -> tuple[Part, Part, tuple[str, ...]]:
    """Training and test parts and class names of an npz file, by the names of its arrays.

    Pixels are (count, height, width, 3) of one byte, labels whole numbers, class names a list of
    texts. Nothing is unpickled. Raises ``DataError``, naming the array, for anything else.
    """
    with damage_named(path), zipfile.ZipFile(path) as file:
        arrays = [_array(path, file, name) for name in (*names, NAMES)]
    classes = _class_names(path, arrays.pop())
    parts = []
    for (pixels_name, pixels), (labels_name, labels) in (
        zip(names[:2], arrays[:2], strict=True),
        zip(names[2:], arrays[2:], strict=True),
    ):
        _require_pixels(path, pixels_name, pixels)
        numbers = _class_numbers(path, labels_name, labels, len(classes))
        if len(numbers) != len(pixels):
            raise DataError(
                f"{path}: {len(pixels)} pictures in {pixels_name} and {len(numbers)} labels in "
                f"{labels_name} do not fit"
            )
        parts.append(from_pixels(torch.from_numpy(pixels).permute(0, 3, 1, 2), numbers))
    return parts[0], parts[1], classes


def _array(path: Path, file: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """One array; its header must agree with the number of bytes."""
    member = f"{name}.npy"
    if member not in file.namelist():
        there = listed(entry.removesuffix(".npy") for entry in file.namelist())
        raise DataError(f"{path} has no array {name}; it has {there or 'none'}")
    size = file.getinfo(member).file_size
    limit = unpacked_limit(path.stat().st_size)
    if size > limit:
        raise DataError(f"{path}: {name} has {size:,} bytes; {limit:,} at most")
    with file.open(member) as content:
        version = np.lib.format.read_magic(content)
        if version not in ((1, 0), (2, 0)):
            raise DataError(f"{path}: {name} is not a plain array")
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(content)
        if dtype.hasobject:
            raise DataError(f"{path}: {name} holds Python objects, which are never unpickled")
        expected = math.prod(shape) * dtype.itemsize
        if expected != size - content.tell():
            raise DataError(
                f"{path}: {name} should have {expected:,} bytes but has {size - content.tell():,}"
            )
    with file.open(member) as content:
        array: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
    return array


def _require_pixels(path: Path, name: str, pixels: NDArray[Any]) -> None:
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3:
        raise DataError(
            f"{path}: {name} is {_described(pixels)}; pictures are uint8 (count, height, width, 3)"
        )
    if 0 in pixels.shape:
        raise DataError(f"{path}: {name} is {_described(pixels)}: there are no pixels")


def _class_names(path: Path, names: NDArray[Any]) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind != "U" or not len(names):
        raise DataError(f"{path}: {NAMES} is {_described(names)}; a list of texts is expected")
    return tuple(str(name) for name in names)


def _class_numbers(path: Path, name: str, labels: NDArray[Any], classes: int) -> list[int]:
    """The labels as class numbers; fractions and values that are not numbers are refused."""
    if labels.ndim != 1 or labels.dtype.kind not in "iuf":
        raise DataError(f"{path}: {name} is {_described(labels)}; labels are a list of integers")
    bad = labels[~((labels >= 0) & (labels < classes) & (labels == np.floor(labels)))]
    if len(bad):
        raise DataError(
            f"{path}: {name} holds the label {quoted(bad[0].item())}; labels are 0 to "
            f"{classes - 1}, as there are {classes} class names"
        )
    numbers: list[int] = labels.astype(np.int64).tolist()
    return numbers


def _described(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
