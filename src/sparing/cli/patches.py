"""``sparing patches PICTURE...``: which patches of your pictures a score keeps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import Json, emit, verb, words

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.report.figures.patch_sheet import Picture

MOST_PICTURES = 12

EXAMPLE = "sparing patches photos --keep 0.5 --output patches.png"


@verb
def run(
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    scores: Annotated[
        str, typer.Option(help="Scores, separated by commas.")
    ] = "contrast,rms,variance,entropy,random",
    keep: Annotated[float, typer.Option(help="The share of patches to keep.")] = 0.7,
    way: Annotated[str, typer.Option(help="top, or sampled (by the score).")] = "top",
    image_size: Annotated[int, typer.Option(min=2, help="Pixels a side of the input.")] = 224,
    patch_size: Annotated[int, typer.Option(min=1, help="Pixels a side of a patch.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="The seed of sampled patches.")] = 0,
    output: Annotated[Path, typer.Option(help="The PNG to write.")] = Path("patches.png"),
    as_json: Json = False,
) -> None:
    """Draw which patches of your pictures a score keeps.

    No model is needed. The first 12 pictures by name are shown. --json lists the kept patches of
    every picture, numbered row by row from 0.
    """
    from sparing.core.errors import UsageError
    from sparing.report.figures.drawing import to_png
    from sparing.report.figures.palette import LIGHT
    from sparing.report.figures.patch_sheet import patch_sheet
    from sparing.report.rendering import replace_file
    from sparing.transfer.patching import Selection

    if image_size % patch_size:
        raise UsageError(f"patches of {patch_size} do not tile images of {image_size}")
    if output.suffix.lower() != ".png":
        raise UsageError(f"--output must end in .png; got {output}")
    selections = [Selection(name, keep=keep, way=way, seed=seed) for name in words(scores)]
    if not selections:
        raise UsageError("--scores names no score")
    sheet = [_picture(path, selections, image_size, patch_size) for path in _files(pictures)]
    replace_file(output, to_png(patch_sheet(sheet), LIGHT))
    if as_json:
        emit(_described(sheet, output))
        return
    print(f"pictures: {len(sheet)}; each score keeps {keep:.0%} of their patches; {output}")


def _files(paths: list[Path]) -> list[Path]:
    """The named pictures, and all pictures of the named folders."""
    from sparing.core.errors import UsageError
    from sparing.tasks import PICTURES, ends_with

    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if ends_with(p.name, PICTURES))
            if not inside:
                raise UsageError(f"{path} holds no pictures ({', '.join(PICTURES)})")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise UsageError(f"there is no picture {path}")
    return files[:MOST_PICTURES]


def _picture(path: Path, selections: list[Any], image_size: int, patch_size: int) -> Picture:
    """One picture with all its scores, resized to the model's input."""
    from sparing.report.figures.patch_sheet import Picture
    from sparing.tasks import decoded, fitted

    pixels = fitted(decoded(path, path.name), image_size)[None]
    side = image_size // patch_size
    scored = {s.score: _scored(s, pixels, patch_size, side) for s in selections}
    image = ((pixels[0] + 1) / 2).clamp(0, 1).permute(1, 2, 0)
    return Picture(path.name, image.double().numpy(), scored)


def _scored(selection: Any, pixels: Tensor, patch_size: int, side: int) -> Any:
    import torch

    from sparing.report.figures.patch_sheet import Scored
    from sparing.transfer.patching import PatchSelector

    selector = PatchSelector(selection, (patch_size, patch_size)).eval()
    scores = selector.scores(pixels)[0].view(side, side)
    mask = torch.zeros(side * side, dtype=torch.bool)
    mask[selector.choose(pixels)[0]] = True
    return Scored(scores.double().numpy(), mask.view(side, side).numpy())


def _described(pictures: list[Picture], output: Path) -> dict[str, Any]:
    return {
        "sheet": str(output),
        "pictures": [
            {
                "name": picture.name,
                "kept": {
                    name: scored.keep_mask.ravel().nonzero()[0].tolist()
                    for name, scored in picture.scored.items()
                },
            }
            for picture in pictures
        ],
    }
