"""``sparing patches PICTURE...``: what each score would keep of your own pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._shared import Json, emit, verb, words

if TYPE_CHECKING:
    from torch import Tensor

    from sparing.report.figures.patch_sheet import Picture

MOST = 12


@verb
def run(
    pictures: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    scores: Annotated[
        str, typer.Option(help="Scores, separated by commas.")
    ] = "contrast,rms,variance,entropy,random",
    keep: Annotated[float, typer.Option(help="The share of patches to keep.")] = 0.7,
    way: Annotated[str, typer.Option(help="top, or sampled in proportion to the score.")] = "top",
    image_size: Annotated[int, typer.Option(min=2, help="Pixels a side, as the model sees.")] = 224,
    patch_size: Annotated[int, typer.Option(min=1, help="Pixels a side of a patch.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    output: Annotated[Path, typer.Option(help="The sheet, a PNG.")] = Path("patches.png"),
    as_json: Json = False,
) -> None:
    """Draw what each score keeps of some pictures, and its map; no model is needed.

    At most 12 pictures, the first by name. With --json the kept patches of each, counted row by
    row from 0.
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
        raise UsageError(f"--output is a .png, got {output}")
    wanted = [Selection(name, keep=keep, way=way, seed=seed) for name in words(scores)]
    if not wanted:
        raise UsageError("--scores names no score")
    found = [_picture(path, wanted, image_size, patch_size) for path in _files(pictures)]
    replace_file(output, to_png(patch_sheet(found), LIGHT))
    if as_json:
        emit(_described(found, output))
        return
    print(f"pictures: {len(found)}; each score keeps {keep:.0%} of their patches; {output}")


def _files(given: list[Path]) -> list[Path]:
    """The pictures named, and those in the folders named."""
    from sparing.core.errors import UsageError
    from sparing.tasks import PICTURES, ends_with

    found: list[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if ends_with(p.name, PICTURES))
            if not inside:
                raise UsageError(f"{path} holds no pictures ({', '.join(PICTURES)})")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"there is no picture {path}")
    return found[:MOST]


def _picture(path: Path, wanted: list[Any], image_size: int, patch_size: int) -> Picture:
    """One picture with all its scores, as a model of that size would see it."""
    from sparing.report.figures.patch_sheet import Picture
    from sparing.tasks import decoded, fitted

    pixels = fitted(decoded(path, path.name), image_size)[None]
    side = image_size // patch_size
    scored = {one.score: _scored(one, pixels, patch_size, side) for one in wanted}
    shown = ((pixels[0] + 1) / 2).clamp(0, 1).permute(1, 2, 0)
    return Picture(path.name, shown.double().numpy(), scored)


def _scored(selection: Any, pixels: Tensor, patch_size: int, side: int) -> Any:
    import torch

    from sparing.report.figures.patch_sheet import Scored
    from sparing.transfer.patching import PatchSelector

    selector = PatchSelector(selection, (patch_size, patch_size)).eval()
    scores = selector.scores(pixels)[0].view(side, side)
    kept = torch.zeros(side * side, dtype=torch.bool)
    kept[selector.choose(pixels)[0]] = True
    return Scored(scores.double().numpy(), kept.view(side, side).numpy())


def _described(found: list[Picture], output: Path) -> dict[str, Any]:
    return {
        "sheet": str(output),
        "pictures": [
            {
                "name": picture.name,
                "kept": {
                    name: scored.kept.ravel().nonzero()[0].tolist()
                    for name, scored in picture.scored.items()
                },
            }
            for picture in found
        ],
    }
