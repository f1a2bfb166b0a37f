"""Pictures of any size and format as tensors of one size, read when they are asked for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from sparing.core.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

IN_MEMORY_BYTES = 2**30
LONGEST_SIDE = 4  # times the shorter one: what is left after the cut does not see further
WHITE_OF_16_BITS = 2**16 - 1


@dataclass(frozen=True, eq=False)
class Pictures(Sequence[Tensor]):
    """Colour pictures (3, size, size) from -1 to 1, each read and scaled when asked for.

    A source is a file, a file's bytes, or pixels (3, height, width) of one byte. The shorter side
    is scaled to ``size``, bilinear with antialiasing, and the middle is kept. Grey and palette
    pictures become colour, 16 bits become 8, what is transparent lies on white, and a camera's
    note of how it was held is heeded. -1 to 1 is the range of transformers' vision transformers.
    Raises ``DataError`` naming the picture that is none, by ``names`` where it is no file.
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
        """All pictures as one tensor where it takes at most 1 GiB, else themselves."""
        if len(self) * 3 * self.size**2 * 4 > IN_MEMORY_BYTES or not len(self):
            return self
        return torch.stack([self[index] for index in range(len(self))])


def decoded(source: Path | bytes, name: str) -> UInt8[Tensor, "3 height width"]:
    """A picture's pixels; raises ``DataError`` for what is no picture or is cut short."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    place = str(source) if isinstance(source, Path) else name
    try:
        with Image.open(source if isinstance(source, Path) else io.BytesIO(source)) as picture:
            pixels = np.asarray(_in_colour(ImageOps.exif_transpose(picture), place))
    except UnidentifiedImageError as error:
        raise DataError(f"{place} is no picture that can be read") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{place} cannot be read: {str(error).partition(chr(10))[0]}") from error
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def _in_colour(picture: Image.Image, place: str) -> Image.Image:
    """The picture in red, green and blue of one byte each; Pillow alone would cut 16 bits off."""
    from PIL import Image

    if picture.mode == "F":
        raise DataError(f"{place} has fractions for pixels, whose range nothing tells")
    if picture.mode.startswith("I"):
        values = np.asarray(picture).astype(np.int64)
        if values.min() < 0 or values.max() > WHITE_OF_16_BITS:
            raise DataError(f"{place} has pixels of more than 16 bits")
        eight = (values * 255 + WHITE_OF_16_BITS // 2) // WHITE_OF_16_BITS
        return Image.fromarray(eight.astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        ground = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(ground, picture).convert("RGB")
    return picture.convert("RGB")


def _near_square(pixels: UInt8[Tensor, "3 height width"]) -> UInt8[Tensor, "3 rows columns"]:
    """The middle of a strip, whose ends would be scaled at great cost and cut off all the same."""
    height, width = pixels.shape[-2:]
    longest = LONGEST_SIDE * min(height, width)
    top, left = max(0, height - longest) // 2, max(0, width - longest) // 2
    return pixels[:, top : height - top, left : width - left]


def fitted(pixels: UInt8[Tensor, "3 height width"], size: int) -> Float[Tensor, "3 size size"]:
    """Scaled so that the shorter side is ``size``, cut to the middle square, from -1 to 1."""
    values = _near_square(pixels).float() / 127.5 - 1
    height, width = values.shape[-2:]
    if (height, width) == (size, size):
        return values
    shorter = min(height, width)
    wanted = (round(height * size / shorter), round(width * size / shorter))
    scaled = F.interpolate(values[None], wanted, mode="bilinear", antialias=True)[0].clamp(-1, 1)
    top, left = (wanted[0] - size) // 2, (wanted[1] - size) // 2
    return scaled[:, top : top + size, left : left + size].contiguous()
