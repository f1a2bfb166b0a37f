"""Which dense models an adaptive form is made from, and with which reason others are refused."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError
from sparing.foreign.kinds import answer_kind, by_token
from sparing.transfer.families.known import family_of
from sparing.transfer.patching import CHILD as PATCHES
from sparing.transfer.swap import entry_of


def require_classifier(model: nn.Module) -> PreTrainedModel:
    """The model, if it is a dense classifier of a family that has an adaptive form.

    Its answer may also be several labels, or one number.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    dense = _require_family(model)
    named = type(dense).__name__
    if not named.endswith(("ForSequenceClassification", "ForImageClassification")):
        raise Unsupported(
            f"{named} is not a classifier; open the checkpoint as "
            "AutoModelForSequenceClassification or AutoModelForImageClassification"
        )
    if answer_kind(dense.config) == "number" and dense.config.num_labels > 1:
        raise Unsupported(f"the model predicts {dense.config.num_labels} numbers for each input")
    _require_own_parts(dense)
    return dense


def require_token_model(model: nn.Module) -> PreTrainedModel:
    """The model, if it is a dense one of such a family that answers for each token of a text.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    dense = _require_family(model)
    answer = by_token(type(dense).__name__)
    if answer is None:
        raise Unsupported(f"{type(dense).__name__} gives no answer for each token")
    if answer == "span" and dense.config.num_labels != 2:
        raise Unsupported(f"the model gives {dense.config.num_labels} ends of an answer, not 2")
    _require_own_parts(dense)
    return dense


def require_encoder(model: nn.Module) -> PreTrainedModel:
    """The model, if it is a dense text encoder without a head of such a family.

    Raises ``UsageError`` or ``Unsupported`` with the reason otherwise.
    """
    dense = _require_family(model)
    if dense.base_model is not dense or dense.main_input_name != "input_ids":
        raise Unsupported(f"{type(dense).__name__} is not a text encoder without a head")
    _require_own_parts(dense)
    return dense


def _require_family(model: nn.Module) -> PreTrainedModel:
    """The model, if its family has an adaptive form and it carries no other change."""
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"an adaptive form needs a transformers model; got {type(model).__name__}")
    family_of(model.config)
    carried = entry_of(model)
    if carried.keys() - {"version", "patches"}:
        raise Unsupported("the model carries a swap or another change already; give the dense one")
    return model


def _require_own_parts(model: PreTrainedModel) -> None:
    """Raise ``Unsupported``, naming it, for a part that is not as the model's class builds it.

    Its weights could not be copied, or its computation would be lost silently.
    """
    kinds: list[Any] = [
        base for base in type(model).__mro__ if base.__module__.startswith("transformers.")
    ]
    with torch.device("meta"):
        plain = kinds[0](copy.deepcopy(model.config))
    ours = {name: part for name, part in model.named_modules() if not name.endswith(PATCHES)}
    theirs = dict(plain.named_modules())
    for name in {**theirs, **ours}:
        got, usual = (_class_of(parts.get(name)) for parts in (ours, theirs))
        if name and got != usual:
            raise Unsupported(
                f"{name} is {_named(got)}, and {kinds[0].__name__} has {_named(usual)} there; an "
                "adaptive form needs the parts of that class"
            )
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    for name, value in plain.named_parameters():
        if shapes.get(name) != tuple(value.shape):
            raise Unsupported(
                f"{name} is {shapes.get(name)}, and the configuration says {tuple(value.shape)}"
            )
    if type(model).forward is not kinds[0].forward:
        raise Unsupported(
            f"{type(model).__name__} has its own forward, which an adaptive form cannot copy"
        )


def _class_of(part: nn.Module | None) -> str:
    """The name of a part's class; of a folded part, that of the class that it was."""
    kinds = [kind for kind in type(part).__mro__ if "transfer.folding" not in kind.__module__]
    return kinds[0].__name__


def _named(kind: str) -> str:
    return "nothing" if kind == "NoneType" else kind
