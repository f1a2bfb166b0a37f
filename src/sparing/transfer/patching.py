"""Image models that compute some of their patches: chosen by the image, dropped, not zeroed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError, require_choice
from sparing.core.ranks import alike
from sparing.core.recording import report
from sparing.layers.patches import (
    BINS,
    SCORES,
    WAYS,
    choose_patches,
    keep_count,
    patch_scores,
)
from sparing.models.shared.shape import image_config
from sparing.transfer.swap import own_configuration, write_entry

ENTRY, CHILD = "patches", "sparing_patches"
# Modules that embed an image: patches in a row behind one or two tokens of the model's own.
EMBEDDINGS = ("ViTEmbeddings", "DeiTEmbeddings", "CLIPVisionEmbeddings")


@dataclass(frozen=True)
class Selection:
    """Which patches go on, and when.

    ``score``, ``way``, ``temperature``, ``floor`` and ``bins`` are those of ``patch_scores`` and
    ``choose_patches``; ``keep`` is a count, or a share in (0, 1]. ``mean`` and ``deviation`` are
    those of the pixels' normalisation, for all channels or for each: scores are of raw pixels.
    ``chance`` is the probability that a training batch is selected from at all; without
    ``at_inference`` every patch goes on in evaluation. ``seed`` is that of random choices in
    evaluation, which are equal for every image; training uses PyTorch's own generator.
    """

    score: str = "contrast"
    keep: int | float = 0.7
    way: str = "top"
    temperature: float = 1.0
    floor: float = 0.05
    bins: int = BINS
    mean: tuple[float, ...] = (0.5,)
    deviation: tuple[float, ...] = (0.5,)
    chance: float = 1.0
    at_inference: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("patch selection", "score", self.score, SCORES)
        require_choice("patch selection", "way", self.way, WAYS)
        if not math.isfinite(self.keep):
            raise UsageError(f"keep must be a share in (0, 1] or a whole number; got {self.keep}")
        keep_count(max(1, int(self.keep)), self.keep)
        if not 0 <= self.chance <= 1:
            raise UsageError(f"chance must be in [0, 1]; got {self.chance}")
        if not self.mean or not self.deviation or min(self.deviation) <= 0:
            raise UsageError("mean and deviation need a number, and deviations are above 0")
        if not self.temperature > 0 or not self.floor > 0 or self.bins < 2:
            raise UsageError("temperature and floor must be above 0, bins at least 2")


class PatchSelector(nn.Module):
    """Chooses patches of raw pixels and passes on their embeddings; it has no weights.

    ``selection`` may be replaced between steps, for example by a schedule. The model is saved with
    the selection given to ``select_patches``: call that again to change it permanently.
    """

    def __init__(self, selection: Selection, size: tuple[int, int]) -> None:
        super().__init__()
        self.selection, self.size = selection, size

    def forward(
        self,
        pixels: Float[Tensor, "batch channels height width"],
        embedded: Float[Tensor, "batch tokens hidden_width"],
    ) -> Float[Tensor, "batch kept_tokens hidden_width"]:
        """The model's own tokens and the embeddings of the chosen patches."""
        if not self._acts():
            return embedded
        chosen = self.choose(pixels)
        report(self, "kept", chosen)
        patches = (pixels.shape[2] // self.size[0]) * (pixels.shape[3] // self.size[1])
        extra = embedded.shape[1] - patches
        index = (chosen + extra)[:, :, None].expand(-1, -1, embedded.shape[2])
        return torch.cat([embedded[:, :extra], embedded.gather(1, index)], 1)

    def choose(
        self, pixels: Float[Tensor, "batch channels height width"]
    ) -> Int[Tensor, "batch kept"]:
        """The positions of the chosen patches, in order."""
        selection = self.selection
        scores = self.scores(pixels)
        noise = None if self.training or selection.way == "top" else self._noise(scores)
        return choose_patches(
            scores,
            keep_count(scores.shape[1], selection.keep),
            selection.way,
            temperature=selection.temperature,
            floor=selection.floor,
            noise=noise,
        )

    @torch.no_grad()
    def scores(
        self, pixels: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch patches"]:
        """The score of every patch; in evaluation that of "random" is equal for all images."""
        selection = self.selection
        like = pixels[:, :1, :1, :1].float()
        mean, deviation = (
            like.new_tensor(numbers).view(-1, 1, 1)
            for numbers in (selection.mean, selection.deviation)
        )
        scores = patch_scores(
            pixels.float() * deviation + mean, self.size, selection.score, bins=selection.bins
        )
        if selection.score == "random" and not self.training:
            return self._noise(scores).expand_as(scores)
        return scores

    def _acts(self) -> bool:
        if not self.training:
            return self.selection.at_inference
        chance = self.selection.chance
        return chance >= 1 or bool(alike(torch.rand(())) < chance)

    def _noise(self, like: Tensor) -> Tensor:
        """One row for all images, so that neighbours in the batch change no choice."""
        generator = torch.Generator().manual_seed(self.selection.seed)
        drawn = torch.rand((1, like.shape[1]), generator=generator, device="cpu")
        return drawn.to(like.device, like.dtype)


def select_patches(
    model: PreTrainedModel, score: str | Selection = "contrast", **options: Any
) -> PatchSelector:
    """Let an image model compute only the patches that a score of the raw image chooses.

    Give a score with ``Selection``'s other fields as options, or a ``Selection``. Patches are
    dropped after the embeddings, which add their positions, so all layers work on fewer tokens; the
    class token stays. The model is changed in place and saves the selection; a second call replaces
    the first. It serves transformers' ViT, DeiT and CLIP image models, swapped or not, and their
    adaptive forms. Raises ``Unsupported`` for other models, and for masked image modelling, where
    the decoder needs every patch; ``UsageError`` for impossible options.
    """
    selection = score if isinstance(score, Selection) else Selection(score, **_tuples(options))
    if isinstance(score, Selection) and options:
        raise UsageError("give a Selection, or a score with options, not both")
    embeddings, size = _embeddings(model)
    _require_channels(selection, model)
    _require_patches(selection, model)
    own_configuration(model)
    keep_all_patches(model)
    selector = PatchSelector(selection, size).train(model.training)
    embeddings.add_module(CHILD, selector)
    vars(embeddings)["sparing_hook"] = embeddings.register_forward_hook(_drop, with_kwargs=True)
    write_entry(model, ENTRY, [asdict(selection)])
    return selector


def _require_channels(selection: Selection, model: PreTrainedModel) -> None:
    """Raise ``UsageError`` unless means and deviations are one number, or one for each channel."""
    channels = getattr(getattr(model.config, "vision_config", model.config), "num_channels", None)
    for name in ("mean", "deviation"):
        count = len(getattr(selection, name))
        if channels is not None and count not in (1, channels):
            raise UsageError(f"{name} has {count} numbers, the model's images {channels} channels")


def _require_patches(selection: Selection, model: PreTrainedModel) -> None:
    """Raise ``UsageError`` where more patches are to be kept than the model's images have."""
    patches = _patches_of(model)
    if not isinstance(selection.keep, float) and selection.keep > patches:
        raise UsageError(f"keep={selection.keep}: the model's images have {patches} patches")


def _patches_of(model: PreTrainedModel) -> int:
    """The number of patches of an image of the model's size."""
    sizes: Any = image_config(model.config)
    sides = sizes.image_size, sizes.patch_size
    (height, width), size = (
        (side, side) if isinstance(side, int) else tuple(side) for side in sides
    )
    return int((height // size[0]) * (width // size[1]))


def keep_all_patches(model: nn.Module) -> None:
    """Undo ``select_patches``; a model with every patch does not change."""
    for module in model.modules():
        hook = vars(module).pop("sparing_hook", None)
        if hook is not None:
            hook.remove()
            del module._modules[CHILD]
            write_entry(model, ENTRY, [])


def selector_of(model: nn.Module) -> PatchSelector | None:
    """The model's patch selector; None where all patches go on."""
    return next((part for part in model.modules() if isinstance(part, PatchSelector)), None)


def tokens_left(model: nn.Module, tokens: int) -> int:
    """How many of ``tokens`` tokens, the model's own among them, go on in evaluation."""
    selector = selector_of(model)
    if selector is None or not selector.selection.at_inference:
        return tokens
    assert isinstance(model, PreTrainedModel)
    patches = _patches_of(model)
    return int(tokens - patches) + keep_count(patches, selector.selection.keep)


def read_selection(rows: Any) -> Selection:
    """The selection of a saved entry; raises ``UsageError`` where it is damaged."""
    try:
        (row,) = rows
        return Selection(**_tuples(row))
    except (TypeError, ValueError) as error:
        raise UsageError(f"the saved selection of patches is damaged: {error}") from error


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Numbers for all channels may be given as one, and JSON knows no tuples."""
    values = dict(options)
    for name in ("mean", "deviation"):
        if name in values:
            value = values[name]
            values[name] = (value,) if isinstance(value, int | float) else tuple(value)
    return values


def _embeddings(model: nn.Module) -> tuple[nn.Module, tuple[int, int]]:
    """The module that embeds images, and the sides of its patches."""
    named = type(model).__name__
    if named.endswith("ForMaskedImageModeling"):
        raise Unsupported(f"{named} rebuilds every patch: it cannot leave any out")
    parts = [part for part in model.modules() if type(part).__name__ in EMBEDDINGS]
    if len(parts) != 1:
        raise Unsupported(f"{named} has no patches to select; ViT, DeiT and CLIP image models have")
    first: Any = parts[0]
    patches = getattr(first, "patch_embeddings", None)
    kernel = (
        first.patch_embedding.kernel_size if patches is None else patches.projection.kernel_size
    )
    return parts[0], (int(kernel[0]), int(kernel[1]))


def _drop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Any:
    pixels = args[0] if args else kwargs["pixel_values"]
    return module._modules[CHILD](pixels, output)  # type: ignore[misc]
