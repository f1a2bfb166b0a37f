"""Pictures of any size and format as tensors of one size, read on access."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from sparing.core.errors import DataError, SparingError, quoted

if TYPE_CHECKING:
    from PIL import Image

IN_MEMORY_BYTES = 2**30
LONGEST_SIDE = 4  # times the shorter one: pixels beyond do not reach the result
WHITE_OF_16_BITS = 2**16 - 1
# Other formats, such as PostScript, are programs or have readers that are little tested.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "AVIF")
MOST_PIXELS = 2**26  # 8,192 x 8,192; Pillow warns from 89 million on
MOST_FILE_BYTES = 2**30
NAME_CHARACTERS = 80  # of a picture in an archive; the end of a name says most
ORIENTATION = 0x0112  # the EXIF tag
# Pillow logs what it then raises; without a handler Python would print it too.
logging.getLogger("PIL").addHandler(logging.NullHandler())


@dataclass(frozen=True, eq=False)
class Pictures(Sequence[Tensor]):
    """Colour pictures (3, size, size) from -1 to 1, each read and scaled on access.

    A source is a file, a file's bytes, or pixels (3, height, width) of one byte. The shorter side
    is scaled to ``size``, bilinear with antialiasing, and the middle is kept. Grey and palette
    pictures become colour, 16 bits become 8, transparent pixels become white, and EXIF orientation
    is applied. -1 to 1 is the range of transformers' vision transformers. Raises ``DataError``
    naming a broken picture, by ``names`` where it is not a file.
    """

    sources: Sequence[Path | bytes | Tensor]
    size: int
    names: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | Sequence[Tensor]:
        if isinstance(index, slice):
            return Pictures(self.sources[index], self.size, self.names[index])
        source = self.sources[index]
        if isinstance(source, Tensor):
            return fitted(source, self.size)
        name = self.names[index] if self.names else f"picture {index}"
        return fitted(decoded(source, name), self.size)

    def subset(self, indices: Sequence[int]) -> Pictures:
        """The pictures with these indices, in this order."""
        names = [self.names[index] for index in indices] if self.names else ()
        return Pictures([self.sources[index] for index in indices], self.size, names)

    def read(self) -> Tensor | Pictures:
        """All pictures as one tensor if it takes at most 1 GiB, else themselves."""
        if len(self) * 3 * self.size**2 * 4 > IN_MEMORY_BYTES or not len(self):
            return self
        return torch.stack([self[index] for index in range(len(self))])


def decoded(source: Path | bytes, name: str) -> UInt8[Tensor, "3 height width"]:
    """A picture's pixels, of the first frame where there are several.

    This is the only function that opens pictures. Raises ``DataError``, before anything is
    unpacked, for a picture of more than ``MOST_PIXELS`` pixels or of a format that is not in
    ``FORMATS``. It also raises it for files that are not pictures or are cut short.
    """
    label = str(source) if isinstance(source, Path) else quoted(name, NAME_CHARACTERS)[1:-1]
    if isinstance(source, Path):
        _require_file(source)
    try:
        # of sizes above Pillow's limit, which is above the one here, and of broken EXIF data
        with warnings.catch_warnings(action="ignore"), _opened(source, label) as picture:
            pixels = np.asarray(_in_colour(_upright(picture), label))
    except (SparingError, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise errors of a dozen kinds
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(
            f"{label} cannot be read: {quoted(reason, NAME_CHARACTERS)[1:-1]}"
        ) from error
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def _require_file(path: Path) -> None:
    """Raise ``DataError`` for anything but a plain file: reading a pipe would block."""
    if not path.is_file():
        raise DataError(f"{path} is not a readable file")
    if path.stat().st_size > MOST_FILE_BYTES:
        raise DataError(f"{path} has more than {MOST_FILE_BYTES:,} bytes: too many for a picture")


def _opened(source: Path | bytes, label: str) -> Image.Image:
    """The picture, not decoded yet; ``DataError`` for other formats and for too many pixels."""
    from PIL import Image, UnidentifiedImageError

    Image.init()  # without it only some formats are known
    formats = [form for form in FORMATS if form in Image.OPEN]
    file = source if isinstance(source, Path) else io.BytesIO(source)
    try:
        picture = Image.open(file, formats=formats)
    except UnidentifiedImageError as error:
        raise DataError(
            f"{label} is not a picture in a known format ({', '.join(formats)})"
        ) from error
    except Image.DecompressionBombError as error:
        raise DataError(f"{label} has more than {MOST_PIXELS:,} pixels") from error
    width, height = picture.size
    if width * height > MOST_PIXELS or min(picture.size) < 1:
        picture.close()
        raise DataError(
            f"{label} has {width:,} x {height:,} pixels; 1 to {MOST_PIXELS:,} can be read"
        )
    return picture


def _upright(picture: Image.Image) -> Image.Image:
    """The picture turned as its EXIF data says; as stored where that cannot be read.

    Pillow's own ``exif_transpose`` rewrites all EXIF data, which fails where some of it is broken.
    """
    from PIL.Image import Transpose

    picture.load()  # a PNG's EXIF data may follow its pixels, and TIFF pictures are turned here
    try:
        orientation = picture.getexif().get(ORIENTATION)
    except Exception:  # struct.error, and any other error of broken EXIF data
        return picture
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(orientation) if isinstance(orientation, int) else None
    return picture if turn is None else picture.transpose(turn)


def _in_colour(picture: Image.Image, label: str) -> Image.Image:
    """The picture in red, green and blue of one byte each; Pillow alone would clip 16 bits."""
    from PIL import Image

    if picture.mode == "F":
        raise DataError(f"{label} has fractional pixels of unknown range")
    if picture.mode.startswith("I"):
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > WHITE_OF_16_BITS:
            raise DataError(f"{label} has pixels of more than 16 bits")
        eight = (values.astype(np.uint32) * 255 + WHITE_OF_16_BITS // 2) // WHITE_OF_16_BITS
        return Image.fromarray(eight.astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        ground = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(ground, picture).convert("RGB")
    return picture.convert("RGB")


def _near_square(pixels: UInt8[Tensor, "3 height width"]) -> UInt8[Tensor, "3 rows columns"]:
    """The middle of a strip: its ends would be scaled at great cost and then cut off."""
    height, width = pixels.shape[-2:]
    longest = LONGEST_SIDE * min(height, width)
    top, left = max(0, height - longest) // 2, max(0, width - longest) // 2
    return pixels[:, top : height - top, left : width - left]


def fitted(pixels: UInt8[Tensor, "3 height width"], size: int) -> Float[Tensor, "3 size size"]:
    """Scaled so that the shorter side is ``size``, cut to the middle square, from -1 to 1."""
    values = _near_square(pixels).float().div_(127.5).sub_(1)
    height, width = values.shape[-2:]
    if (height, width) == (size, size):
        return values
    shorter = min(height, width)
    target = (round(height * size / shorter), round(width * size / shorter))
    scaled = F.interpolate(values[None], target, mode="bilinear", antialias=True)[0].clamp(-1, 1)
    top, left = (target[0] - size) // 2, (target[1] - size) // 2
    return scaled[:, top : top + size, left : left + size].contiguous()
