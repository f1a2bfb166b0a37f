"""The families that have an adaptive form, and which of them a model belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported
from sparing.transfer.blocks import Block, registered_blocks
from sparing.transfer.families.bert import BERT, CAMEMBERT, ELECTRA, ROBERTA, XLM_ROBERTA
from sparing.transfer.families.deberta import DEBERTA_V2
from sparing.transfer.families.distilbert import DISTILBERT
from sparing.transfer.families.form import Family
from sparing.transfer.families.modernbert import MODERNBERT
from sparing.transfer.families.mpnet import MPNET
from sparing.transfer.families.vit import CLIP, DEIT, VIT

FAMILIES: Mapping[str, Family] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "camembert": CAMEMBERT,
    "electra": ELECTRA,
    "distilbert": DISTILBERT,
    "mpnet": MPNET,
    "deberta-v2": DEBERTA_V2,
    "modernbert": MODERNBERT,
    "vit": VIT,
    "deit": DEIT,
    "clip": CLIP,
}


def family_of(config: Any) -> Family:
    """The family of a configuration; raises ``Unsupported`` naming the known ones.

    Also where the family is known, and this configuration has a part that its form has not.
    """
    kind = family_type(config)
    if kind not in FAMILIES:
        raise unknown_family(kind)
    family = FAMILIES[kind]
    obstacle = family.obstacle(config)
    if obstacle:
        raise Unsupported(f"this {kind} has {obstacle}; {_SERVED}")
    if getattr(config, "is_decoder", False):
        raise Unsupported(f"this {kind} is a decoder; an adaptive form needs an encoder")
    return family


_SERVED = "`sparing export MODEL --to onnx --precision int8` still makes it faster"


def unknown_family(kind: str) -> Unsupported:
    """The error for a family without an adaptive form, with the command that still helps."""
    return Unsupported(
        f"{kind[:40] or 'this model'!r} has no adaptive form; there is one for "
        f"{', '.join(FAMILIES)}; {_SERVED}"
    )


def family_type(config: Any) -> str:
    """The model type of a configuration's family, which an adaptive one keeps beside its own."""
    return str(getattr(config, "base_model_type", "") or getattr(config, "model_type", ""))


def find_blocks(model: nn.Module) -> list[Block]:
    """The blocks of an encoder of transformers, in order, pruned or not.

    Raises ``Unsupported``, naming the block and the reason, for families with layers unlike BERT's,
    for shared layers, and for keys that are grouped.
    """
    family = FAMILIES.get(family_type(getattr(model, "config", None)))
    if family is None or not isinstance(model, PreTrainedModel):
        return registered_blocks(model)
    return family.blocks(model)
