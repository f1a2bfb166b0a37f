"""Training in stages: what one stage passes to the next, and what is frozen."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoModelForMaskedImageModeling, PreTrainedModel

from sparing.core.errors import Unsupported, UsageError
from sparing.models.shared.shape import image_config, seeded
from sparing.transfer.families.dense import require_classifier
from sparing.transfer.families.known import family_of
from sparing.transfer.registry import NAME

MASK_TOKEN = "embeddings.mask_token"


def masked_form(model: PreTrainedModel, *, seed: int = 0) -> PreTrainedModel:
    """A model that rebuilds masked patches around an image classifier's encoder.

    Its encoder starts with the classifier's weights; ``seed`` initialises its mask token and
    decoder. ``sparing.train.masking.MaskedPatches`` trains it, ``carry_encoder`` copies the encoder
    back. Raises ``Unsupported`` for a model of another kind.
    """
    family = family_of(require_classifier(model).config)
    if family.reads != "pixel_values":
        raise Unsupported(f"{type(model).__name__} reads texts; patches are masked of images")
    config = copy.deepcopy(model.config)
    vars(config).pop(NAME, None)  # changes of the classifier are not in this model
    image_config(config).encoder_stride = image_config(config).patch_size
    try:
        with seeded(seed):
            masked: PreTrainedModel = AutoModelForMaskedImageModeling.from_config(config)
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise Unsupported(f"{type(model).__name__} has no masked form: {reason}") from error
    carry_encoder(model, masked)
    return masked.train(model.training)


@torch.no_grad()
def carry_encoder(source: PreTrainedModel, target: PreTrainedModel) -> None:
    """Copy an encoder's weights into another model of the same shape; heads do not change.

    A mask token is left out where one of the two has none. Raises ``UsageError`` where the two
    encoders differ, before anything is copied.
    """
    weights, target_weights = source.base_model.state_dict(), target.base_model.state_dict()
    shared = {name for name in weights.keys() & target_weights.keys() if "pooler" not in name}
    missing = sorted(
        name
        for name in weights.keys() ^ target_weights.keys()
        if name != MASK_TOKEN and "pooler" not in name
    )
    unlike = sorted(name for name in shared if weights[name].shape != target_weights[name].shape)
    if missing or unlike:
        first = (missing or unlike)[0]
        raise UsageError(
            f"the encoders of {type(source).__name__} and {type(target).__name__} differ, in "
            f"{first} for one"
        )
    target.base_model.load_state_dict({name: weights[name] for name in shared}, strict=False)


def freeze_layers(model: PreTrainedModel, layers: int) -> None:
    """Freeze the embeddings and the first ``layers`` layers; 0 unfreezes all.

    Raises ``UsageError`` for more layers than the model has.
    """
    family = family_of(require_classifier(model).config)
    base, stack = family.base(model), family.layers_of(model)
    if not 0 <= layers <= len(stack):
        raise UsageError(f"the model has {len(stack)} layers: {layers} of them cannot be frozen")
    model.requires_grad_(True)
    if not layers:
        return
    embeddings: Any = base.embeddings
    embeddings.requires_grad_(False)
    first = family.embedding_norm
    for part in (*stack[:layers], *([base.get_submodule(first)] if first else [])):
        part.requires_grad_(False)


@torch.no_grad()
def renew_layers(model: PreTrainedModel, layers: int, *, seed: int = 0) -> None:
    """Initialise the weights of the last layers and of all heads again, as in a new model.

    The pooler above, which was trained on the last layer's output, goes with a renewed layer.
    Raises ``UsageError`` for more layers than the model has.
    """
    family = family_of(require_classifier(model).config)
    stack = family.layers_of(model)
    if not 0 <= layers <= len(stack):
        raise UsageError(f"the model has {len(stack)} layers: {layers} of them cannot be renewed")
    with seeded(seed):
        fresh = type(model)(copy.deepcopy(model.config))
    for old, new in zip(stack[::-1][:layers], family.layers_of(fresh)[::-1], strict=False):
        old.load_state_dict(new.state_dict())
    encoder = family.base(model)
    if layers and getattr(encoder, "pooler", None) is not None:
        state = family.base(fresh).get_submodule("pooler").state_dict()
        encoder.get_submodule("pooler").load_state_dict(state)
    below = {id(part) for part in encoder.modules()}
    for name, part in model.named_children():
        if id(part) not in below:
            part.load_state_dict(fresh.get_submodule(name).state_dict())
