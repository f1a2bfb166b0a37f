"""Which patches of an image are worth computing: scores of raw pixels, and choices by them."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sparing.core.errors import UsageError, require_choice

SCORES = ("contrast", "rms", "variance", "entropy", "random")
WAYS = ("top", "sampled")
# Rec. 601: the weights of red, green and blue in perceived brightness.
LUMA = (0.299, 0.587, 0.114)
BINS = 16
# Keeps 0 / 0 out of black patches; far below one step of 8 bits.
EPSILON = 1e-6
LN_2 = math.log(2.0)


def luminance(
    pixels: Float[Tensor, "batch channels height width"],
) -> Float[Tensor, "batch height width"]:
    """Brightness from 0 to 1 of raw pixels: weighted for three channels, else their mean."""
    pixels = pixels.clamp(0, 1)
    if pixels.shape[1] != len(LUMA):
        return pixels.mean(1)
    weights = torch.tensor(LUMA, dtype=pixels.dtype, device=pixels.device)
    return (pixels * weights[:, None, None]).sum(1)


def patches_of(
    pixels: Float[Tensor, "batch channels height width"], size: tuple[int, int]
) -> Float[Tensor, "batch patches channels pixels"]:
    """Patches row by row, as a ViT embeds them; incomplete ones at the edges are left out.

    Raises ``UsageError`` for a patch that is larger than the image.
    """
    batch, channels, height, width = pixels.shape
    down, across = height // size[0], width // size[1]
    if not down or not across:
        raise UsageError(f"patches of {size[0]} x {size[1]} in an image of {height} x {width}")
    cut = pixels[:, :, : down * size[0], : across * size[1]]
    cut = cut.reshape(batch, channels, down, size[0], across, size[1])
    pixels = cut.permute(0, 2, 4, 1, 3, 5)
    return pixels.reshape(batch, down * across, channels, size[0] * size[1])


def patch_scores(
    pixels: Float[Tensor, "batch channels height width"],
    size: tuple[int, int],
    score: str = "contrast",
    *,
    bins: int = BINS,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch patches"]:
    """The information score of each patch; every score is finite, also of flat patches.

    Formula: contrast (max - min) / (max + min + e), from 0 to 1; rms sqrt(mean (x - mean x)^2);
    variance sum (x - mean x)^2 / (n - 1), a mean over channels; entropy -sum_b p_b log2 p_b, in
    bits; random, uniform from 0 to 1, the control.

    Symbols: x are the patch's n brightnesses (of variance each channel's values), raw and in
    [0, 1], e is 1e-6, p_b the share of brightnesses in bin b of ``bins`` equal ones.

    Source: Michelson contrast, variance and histogram entropy as in HuggingGreen (2023), section 3.
    What differs: scores are of raw pixels before any normalisation. With e in the denominator,
    black patches have no contrast. The entropy is that of a histogram, where the published code
    takes the logarithm of pixel values. Raises ``UsageError`` for an unknown score or less than two
    bins.
    """
    require_choice("patch selection", "score", score, SCORES)
    if bins < 2:
        raise UsageError(f"an entropy needs two bins at least; got {bins}")
    pixels = pixels.nan_to_num()
    if score == "variance":
        return _variance(patches_of(pixels.clamp(0, 1), size))
    seen = patches_of(luminance(pixels)[:, None], size).squeeze(2)
    if score == "contrast":
        high, low = seen.amax(-1), seen.amin(-1)
        return (high - low) / (high + low + EPSILON)
    if score == "rms":
        return _squares(seen).mean(-1).sqrt()
    if score == "entropy":
        return _entropy(seen, bins)
    return _uniform(seen[..., 0], generator)


def choose_patches(
    scores: Float[Tensor, "batch patches"],
    count: int,
    way: str = "top",
    *,
    temperature: float = 1.0,
    floor: float = 0.05,
    noise: Float[Tensor, "#batch patches"] | None = None,
) -> Int[Tensor, "batch kept"]:
    """The positions of ``count`` patches of each image, in their order in the image.

    "top" takes the highest scores, of equal ones the first. "sampled" samples without replacement,
    each next patch in proportion to w^(1 / ``temperature``), with w = (score - min) / (max - min) +
    ``floor``. So no patch is impossible, and images without differences are sampled evenly.
    ``noise`` are uniform numbers between 0 and 1, random unless given.

    Source: Gumbel top-k, Kool et al., 2019, arXiv 1903.06059, section 3. Raises ``UsageError`` for
    an unknown way, a count out of range, a temperature or a floor not above 0.
    """
    require_choice("patch selection", "way", way, WAYS)
    patches = scores.shape[1]
    if not 1 <= count <= patches:
        raise UsageError(f"count must be from 1 to the {patches} patches there are; got {count}")
    if not temperature > 0 or not floor > 0:
        raise UsageError(f"temperature and floor must be above 0; got {temperature} and {floor}")
    if way == "sampled":
        scores = _perturbed(scores, temperature, floor, noise)
    order = scores.sort(dim=1, descending=True, stable=True).indices
    return order[:, :count].sort(dim=1).values


def keep_count(patches: int, keep: int | float) -> int:
    """The number of patches of a count, or of a share in (0, 1], rounded, at least one.

    Raises ``UsageError`` for a share or a count out of range.
    """
    if isinstance(keep, int) and not isinstance(keep, bool):
        if not 1 <= keep <= patches:
            raise UsageError(f"keep must be from 1 to the {patches} patches there are; got {keep}")
        return keep
    if not 0 < keep <= 1:
        raise UsageError(f"keep must be a share in (0, 1] or a whole number; got {keep}")
    return max(1, round(keep * patches))


def _variance(parts: Float[Tensor, "batch patches channels pixels"]) -> Tensor:
    """A patch of one pixel has none."""
    if parts.shape[-1] == 1:
        return parts.new_zeros(parts.shape[:2])
    return (_squares(parts).sum(-1) / (parts.shape[-1] - 1)).mean(-1)


def _squares(seen: Tensor) -> Tensor:
    """Squared distances to the last axis' mean; std and var warn of batches without images.

    Of equal values exactly 0: rounding of their mean would make flat patches differ.
    """
    flat = seen.amax(-1, keepdim=True) == seen.amin(-1, keepdim=True)
    return (seen - seen.mean(-1, keepdim=True)).square().masked_fill(flat, 0.0)


def _entropy(seen: Float[Tensor, "batch patches pixels"], bins: int) -> Tensor:
    """In bits. One bin at a time: no tensor exceeds the image, and all of it can be exported.

    Empty bins add nothing.
    """
    bin_index = (seen * bins).long().clamp(0, bins - 1)
    entropy = torch.zeros_like(seen[..., 0])
    for number in range(bins):
        share = (bin_index == number).to(seen.dtype).mean(-1)
        entropy = entropy + torch.special.entr(share)
    return entropy / LN_2


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _perturbed(scores: Tensor, temperature: float, floor: float, noise: Tensor | None) -> Tensor:
    """Logarithms of the weights plus Gumbel noise: their order samples without replacement."""
    low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    spread = (high - low).where(high > low, torch.ones_like(high))
    weights = (scores - low) / spread + floor
    drawn = _uniform(scores, None) if noise is None else noise
    tiny = torch.finfo(drawn.dtype).tiny
    gumbel = -torch.log(-torch.log(drawn.clamp(tiny, 1 - torch.finfo(drawn.dtype).eps)))
    return weights.log() / temperature + gumbel
