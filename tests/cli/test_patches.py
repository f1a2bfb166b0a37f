"""``sparing patches``: a sheet of what is kept, of pictures of every kind."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from sparing.layers.patches import patch_scores

SMALL = ("--image-size", "32", "--patch-size", "8")


def picture(path, mode="RGB", size=(40, 33), seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    pixels[:16] = 128  # nothing to see above
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def test_the_sheet_shows_every_picture_and_score(command, tmp_path):
    for number in range(2):
        picture(tmp_path / f"{number}.png", seed=number)
    output = tmp_path / "new" / "sheet.png"
    ended = command("patches", tmp_path, *SMALL, "--keep", "0.5", "--output", output, "--json")
    assert ended.code == 0, ended.err
    assert [shown["name"] for shown in ended.json["pictures"]] == ["0.png", "1.png"]
    by_score = ended.json["pictures"][0]["kept"]
    assert list(by_score) == ["contrast", "rms", "variance", "entropy", "random"]
    assert all(len(places) == 8 for places in by_score.values())
    assert all(min(by_score[name]) >= 4 for name in ("contrast", "rms", "variance", "entropy"))
    with Image.open(output) as sheet:
        assert sheet.width > sheet.height > 600


def test_what_is_kept_are_the_highest_scores(command, tmp_path):
    path = tmp_path / "a.png"
    pixels = np.random.default_rng(3).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    output = tmp_path / "sheet.png"
    given = ("--scores", "variance", "--keep", "0.25", "--output", output, "--json")
    ended = command("patches", path, *SMALL, *given)
    raw = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    scores = patch_scores(raw, (8, 8), "variance")[0]
    highest = sorted(scores.topk(4).indices.tolist())
    assert ended.json["pictures"][0]["kept"] == {"variance": highest}


@pytest.mark.parametrize(
    ("name", "mode"),
    [("grey.png", "L"), ("alpha.png", "RGBA"), ("cmyk.jpg", "CMYK"), ("palette.gif", "P")],
)
def test_pictures_of_every_colour_are_read(command, tmp_path, name, mode):
    picture(tmp_path / name, mode)
    ended = command("patches", tmp_path / name, *SMALL, "--output", tmp_path / "s.png")
    assert ended.code == 0, ended.err
    assert "pictures: 1" in ended.out


def test_a_picture_that_is_cut_short_is_named(command, tmp_path):
    whole = io.BytesIO()
    Image.new("RGB", (64, 64)).save(whole, "PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:60])
    ended = command("patches", tmp_path / "cut.png", *SMALL, "--output", tmp_path / "s.png")
    assert ended.code == 1
    assert "cut.png" in ended.error
    assert not (tmp_path / "s.png").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--keep", "0"), "keep"),
        (("--keep", "nan"), "keep"),
        (("--keep", "inf"), "keep"),
        (("--keep", "1.5"), "keep"),
        (("--patch-size", "7"), "patches of 7"),
        (("--scores", "contrst"), "contrast"),
        (("--scores", ","), "no score"),
        (("--output", "sheet.pdf"), ".png"),
    ],
)
def test_impossible_wishes_are_named(command, tmp_path, given, words):
    path = picture(tmp_path / "a.png")
    output = () if "--output" in given else ("--output", tmp_path / "s.png")
    ended = command("patches", path, *SMALL, *output, *given)
    assert ended.code == 2
    assert words in ended.error


def test_a_folder_without_pictures_and_a_missing_one(command, tmp_path):
    assert "holds no pictures" in command("patches", tmp_path).error
    assert "no picture" in command("patches", tmp_path / "nowhere.png").error
