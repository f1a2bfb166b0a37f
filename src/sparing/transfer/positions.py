"""Longer inputs for a model with learned positions: its position embeddings, interpolated."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from sparing.core.errors import Unsupported, UsageError
from sparing.transfer.families.known import family_type
from sparing.transfer.swap import is_swapped

# Families with one learned table of positions; other families add relative or rotary ones.
LEARNED = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
Model = TypeVar("Model", bound=nn.Module)


def lengthen(model: Model, tokens: int) -> Model:
    """The model for ``tokens`` tokens, as a new one with interpolated position embeddings.

    Formula: e'_j = (1 - r) e_i + r e_{i+1} with j (n - 1) / (m - 1) = i + r, i whole, 0 <= r < 1.

    Symbols: e are the n position embeddings of real tokens, e' the m = ``tokens`` new ones; the
    first and the last do not change, and with m = n none does. Where positions begin after the
    pad's (RoBERTa and its variants), the rows before the first stay too and are not counted.

    Takes classifiers, other heads and base models of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA
    and DistilBERT, and adaptive forms of them. The new configuration has the new number, so the
    model is saved and loaded as usual. Its tokenizer cuts at the old length until
    ``model_max_length`` is raised. The given model does not change. Without further training the
    answers on longer inputs are those of interpolated embeddings: measure them before you trust
    them.

    Raises ``UsageError`` for fewer tokens than it reads already, and ``Unsupported`` for other
    families, images and swapped models. For images use transformers' own
    ``interpolate_pos_encoding=True``. Mechanisms of a swapped model may depend on the old length:
    lengthen first, then swap.

    Source: Dosovitskiy et al., 2021, arXiv 2010.11929, section 3.2, for images. What differs: one
    dimension, linear, with the ends kept.
    """
    first, count = _reads(model)
    if tokens < count:
        raise UsageError(
            f"lengthen takes at least the {count} tokens that the model reads already; got {tokens}"
        )
    longer = copy.deepcopy(model)
    config: Any = longer.config
    config.max_position_embeddings = first + tokens
    for module in longer.modules():
        if isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            _lengthen(module, first, tokens)
    return longer


def _reads(model: nn.Module) -> tuple[int, int]:
    """The row of the first real token's position, and how many positions follow."""
    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"lengthen needs a transformers model; got {type(model).__name__}")
    kind = family_type(model.config)
    if kind not in LEARNED:
        hint = ""
        if model.main_input_name == "pixel_values":
            hint = "; images of another size go in with interpolate_pos_encoding=True"
        known = ", ".join(LEARNED)
        raise Unsupported(f"{kind or 'this model'} cannot be lengthened; {known} can{hint}")
    if is_swapped(model):
        raise Unsupported("the model is swapped: unswap it first, lengthen, swap again")
    tables = [
        module.position_embeddings
        for module in model.modules()
        if isinstance(getattr(module, "position_embeddings", None), nn.Embedding)
    ]
    if len(tables) != 1:
        raise Unsupported(f"lengthen needs one table of positions, this {kind} has {len(tables)}")
    pad = tables[0].padding_idx
    first = 0 if pad is None else pad + 1
    return first, tables[0].num_embeddings - first


def _lengthen(embeddings: nn.Module, first: int, tokens: int) -> None:
    """Replace the old table, and buffers of its length, by longer ones."""
    table: Any = embeddings.position_embeddings
    old = table.weight
    rows = torch.cat((old[:first].detach(), interpolated(old[first:].detach(), tokens)))
    table.weight = nn.Parameter(rows, requires_grad=old.requires_grad)
    table.num_embeddings = len(rows)
    for name in ("position_ids", "token_type_ids"):
        before = getattr(embeddings, name, None)
        if isinstance(before, Tensor):
            places = torch.arange(len(rows), device=before.device)[None]
            fresh = places if name == "position_ids" else torch.zeros_like(places)
            setattr(embeddings, name, fresh)


def interpolated(
    table: Float[Tensor, "positions width"], tokens: int
) -> Float[Tensor, "tokens width"]:
    """The rows at ``tokens`` evenly spaced points from the first row to the last; see ``lengthen``.

    Computed in float32 at least and returned in the table's own type.
    """
    if tokens == len(table):
        return table.clone()
    kind = torch.promote_types(table.dtype, torch.float32)
    stretched = F.interpolate(
        table.to(kind).T[None], size=tokens, mode="linear", align_corners=True
    )
    return stretched[0].T.contiguous().to(table.dtype)
