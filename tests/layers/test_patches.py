"""Scores of patches against slow formulas, and choices against the probabilities they promise."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.layers.patches import (
    LUMA,
    SCORES,
    choose_patches,
    keep_count,
    luminance,
    patch_scores,
    patches_of,
)

SIZE = (4, 2)


def pixels(batch=2, channels=3, height=8, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, channels, height, width)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def slow(image, size, name):
    """One image's scores, patch by patch and pixel by pixel."""
    scores = []
    for top in range(0, image.shape[1] - size[0] + 1, size[0]):
        for left in range(0, image.shape[2] - size[1] + 1, size[1]):
            part = image[:, top : top + size[0], left : left + size[1]]
            channels = [[float(x) for x in channel.flatten()] for channel in part]
            levels = [
                sum(w * c for w, c in zip(LUMA, colours, strict=True))
                for colours in zip(*channels, strict=True)
            ]
            scores.append(FORMULAS[name](channels, levels))
    return torch.tensor(scores, dtype=torch.float64)


def variance(values, less):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - less)


def entropy(levels, bins=16):
    shares = [
        sum(min(int(x * bins), bins - 1) == number for x in levels) / len(levels)
        for number in range(bins)
    ]
    return -sum(p * math.log2(p) for p in shares if p)


FORMULAS = {
    "contrast": lambda _, levels: (max(levels) - min(levels)) / (max(levels) + min(levels) + 1e-6),
    "rms": lambda _, levels: math.sqrt(variance(levels, 0)),
    "variance": lambda channels, _: sum(variance(c, 1) for c in channels) / len(channels),
    "entropy": lambda _, levels: entropy(levels),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_scores_are_those_of_the_formulas(name):
    given = pixels()
    batch_scores = patch_scores(given, SIZE, name)
    for image, scores in zip(given, batch_scores, strict=True):
        torch.testing.assert_close(scores, slow(image, SIZE, name), rtol=1e-10, atol=1e-12)


def test_patches_stand_in_the_order_in_which_a_vit_embeds_them():
    given = pixels(channels=1)
    kernel = torch.ones(1, 1, *SIZE, dtype=torch.float64)
    embedded = torch.nn.functional.conv2d(given, kernel, stride=SIZE).flatten(2).squeeze(1)
    torch.testing.assert_close(patches_of(given, SIZE).sum((2, 3)), embedded)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, 7.0, -3.0, math.nan, math.inf])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_without_differences_have_finite_scores(name, value, channels):
    given = torch.full((2, channels, 8, 8), value)
    scores = patch_scores(given, (4, 4), name)
    assert scores.shape == (2, 4)
    assert bool(scores.isfinite().all())
    if name != "random":
        assert float(scores.abs().max()) == pytest.approx(0, abs=1e-6)


def test_a_patch_of_one_pixel_and_one_of_the_whole_image():
    given = pixels()
    for name in ("contrast", "rms", "variance", "entropy"):
        assert float(patch_scores(given, (1, 1), name).abs().max()) == 0
    assert patch_scores(given, (8, 6), "rms").shape == (2, 1)


def test_a_full_histogram_has_the_bits_of_its_bins():
    ramp = (torch.arange(16, dtype=torch.float64) + 0.5) / 16
    assert float(patch_scores(ramp.view(1, 1, 4, 4), (4, 4), "entropy")) == pytest.approx(4)
    assert float(patch_scores(ramp.view(1, 1, 4, 4), (4, 4), "entropy", bins=4)) == pytest.approx(2)


def test_brightness_weighs_three_channels_and_averages_others():
    given = pixels(batch=1)
    expected = sum(w * given[:, n] for n, w in enumerate(LUMA))
    torch.testing.assert_close(luminance(given), expected)
    four = pixels(batch=1, channels=4)
    torch.testing.assert_close(luminance(four), four.mean(1))


def test_the_highest_are_taken_in_the_order_of_the_image():
    scores = torch.tensor([[0.1, 0.9, 0.3, 0.8], [0.5, 0.5, 0.5, 0.5]])
    assert choose_patches(scores, 2).tolist() == [[1, 3], [0, 1]]
    assert choose_patches(scores, 4).tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_draws_are_without_replacement_in_proportion_to_the_weights(temperature):
    scores = torch.tensor([0.2, 0.5, 0.9, 0.9], dtype=torch.float64)
    weights = ((scores - 0.2) / 0.7 + 0.05) ** (1 / temperature)
    many, generator = 40_000, torch.Generator().manual_seed(1)
    noise = torch.rand(many, 4, generator=generator, dtype=torch.float64)
    drawn = choose_patches(
        scores.expand(many, 4), 2, "sampled", temperature=temperature, noise=noise
    )
    total = float(weights.sum())
    for pair in ((0, 1), (0, 2), (1, 3), (2, 3)):
        expected = sum(
            float(weights[a] / total * weights[b] / (total - weights[a]))
            for a, b in permutations(pair)
        )
        share = float((drawn == torch.tensor(pair)).all(1).double().mean())
        error = math.sqrt(expected * (1 - expected) / many)
        assert abs(share - expected) < 5 * error + 1e-4


def test_images_without_differences_are_drawn_evenly():
    noise = torch.rand(20_000, 5, generator=torch.Generator().manual_seed(2))
    drawn = choose_patches(torch.zeros(20_000, 5), 2, "sampled", noise=noise)
    assert bool((drawn[:, 0] < drawn[:, 1]).all())
    counts = torch.bincount(drawn.flatten(), minlength=5) / 20_000
    assert float((counts - 0.4).abs().max()) < 0.02


def test_a_seed_gives_the_same_draw_again():
    draws = [
        patch_scores(pixels(), SIZE, "random", generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    ]
    assert torch.equal(*draws)
    extreme = torch.tensor([[0.0, 1.0, 0.5]])
    assert choose_patches(torch.zeros(1, 3), 3, "sampled", noise=extreme).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("keep", "count"), [(1, 1), (10, 10), (1.0, 10), (0.7, 7), (0.25, 2), (0.01, 1)]
)
def test_a_share_is_the_nearest_count(keep, count):
    assert keep_count(10, keep) == count


@pytest.mark.parametrize("keep", [0, 11, 0.0, 1.5, -0.2, math.nan])
def test_shares_and_counts_that_are_not_there(keep):
    with pytest.raises(UsageError, match="keep must be"):
        keep_count(10, keep)


def test_what_cannot_be_scored_or_chosen_is_named():
    with pytest.raises(UsageError, match="entropy"):
        patch_scores(pixels(), SIZE, "entropi")
    with pytest.raises(UsageError, match="two bins"):
        patch_scores(pixels(), SIZE, "entropy", bins=1)
    with pytest.raises(UsageError, match="9 x 2 in an image of 8 x 6"):
        patch_scores(pixels(), (9, 2))
    scores = torch.zeros(1, 4)
    with pytest.raises(UsageError, match="sampled"):
        choose_patches(scores, 2, "sample")
    for count in (0, 5):
        with pytest.raises(UsageError, match="from 1 to the 4"):
            choose_patches(scores, count)
    with pytest.raises(UsageError, match="above 0"):
        choose_patches(scores, 2, "sampled", temperature=0.0)


@pytest.mark.parametrize("score", SCORES[:4])
def test_flat_patches_are_drawn_evenly(score):
    levels = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    flat = levels.repeat_interleave(8, 0).repeat_interleave(8, 1).expand(1, 3, -1, -1)
    scores = patch_scores(flat, (8, 8), score)
    generator, drawn = torch.Generator().manual_seed(1), torch.zeros(16)
    for _ in range(800):
        noise = torch.rand(scores.shape, generator=generator)
        drawn[choose_patches(scores, 4, "sampled", noise=noise)[0]] += 1
    assert drawn.min() > 150  # 200 each, give or take 12
    assert drawn.max() < 250


@pytest.mark.parametrize(
    ("score", "step"),
    [("contrast", 1), ("rms", 1), ("variance", 1), ("entropy", 15)],  # entropy has wide bins
)
def test_the_least_difference_of_a_picture_still_counts(score, step):
    picture = torch.full((1, 1, 32, 32), 100 / 255)
    picture[0, 0, 3, 3] = (100 + step) / 255  # one pixel of 1,024
    scores = patch_scores(picture, (16, 16), score)
    assert scores[0, 0] > 0
    assert scores[0, 1:].eq(0).all()
    noise = torch.full((1, 4), 0.5)
    noise[0, 1] = 0.6  # a little luckier, which weighs less than the difference
    assert choose_patches(scores, 1, "sampled", noise=noise).tolist() == [[0]]
