"""Dropout turned off in a configuration, under each family's names."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from sparing.core.errors import Unsupported
from sparing.models.shared.shape import image_config
from sparing.transfer.patching import select_patches, selector_of
from sparing.transfer.registry import NAME
from sparing.transfer.swap import entry_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ATTENTION = ("attention_probs_dropout_prob", "attention_dropout")
HIDDEN = ("hidden_dropout_prob",)


def drop_nothing(config: Any, *, hidden: bool = True) -> bool:
    """Set attention dropout to 0, with ``hidden`` that of hidden states too.

    Returns whether any was above 0.
    """
    changed = False
    for part in (config, image_config(config)):
        for name in (*ATTENTION, *(HIDDEN if hidden else ())):
            if getattr(part, name, 0.0):
                setattr(part, name, 0.0)
                changed = True
    return changed


def without_dropout(model: PreTrainedModel, *, hidden: bool = True) -> PreTrainedModel:
    """The model, or a new one with its weights if its configuration has dropout.

    Only training differs. ``hidden`` as in ``drop_nothing``. Raises ``Unsupported`` for models that
    were swapped, pruned or adapted: their weights do not fit a new model.
    """
    config = copy.deepcopy(model.config)
    if not drop_nothing(config, hidden=hidden):
        return model
    changed = entry_of(model).keys() & {"swap", "pruned", "adaptive"}
    if changed:
        raise Unsupported(
            f"dropout cannot be turned off in a model with {', '.join(sorted(changed))}: begin "
            "from a plain model without dropout"
        )
    vars(config).pop(NAME, None)  # the entry of a selection of patches is written again
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten
        without: PreTrainedModel = type(model)(config)
    without.to(device=model.device, dtype=model.dtype)
    without.load_state_dict(model.state_dict())
    selector = selector_of(model)
    if selector is not None:
        select_patches(without, selector.selection)
    return without.train(model.training)
