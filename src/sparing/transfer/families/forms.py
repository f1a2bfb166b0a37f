"""The forms of an adaptive model's layers and heads, from its configuration."""

from __future__ import annotations

from typing import Any

from sparing.foreign.kinds import answer_kind
from sparing.layers.encoder import Form
from sparing.layers.heads import HeadForm
from sparing.layers.plan import LayerSizes
from sparing.layers.tokens import TokenForm
from sparing.layers.vectors import VectorForm
from sparing.transfer.families.form import Family
from sparing.transfer.families.known import family_of
from sparing.transfer.registry import NAME


def layer_sizes(config: Any) -> list[LayerSizes]:
    """The sizes of each dense layer."""
    sizes = family_of(config).sizes(config)
    size = LayerSizes(sizes.heads, sizes.dim, sizes.dim, sizes.neurons)
    return [size] * sizes.layers


def head_form(config: Any, family: Family) -> Form:
    """The form of the model's heads."""
    entry = getattr(config, NAME)["adaptive"]
    if "vector" in entry:
        body = family.body(config, "vector")
        return VectorForm.from_dict(entry["vector"], body.width, body.norm_epsilon)
    if "tokens" in entry:
        answer = str(entry["tokens"])
        dropout = family.head_dropout(config, answer)
        return TokenForm(family.body(config, answer), config.num_labels, answer, dropout)
    answer = answer_kind(config)
    return HeadForm(
        family.body(config, answer),
        config.num_labels,
        family.head_dropout(config, answer),
        family.head_pooling(config),
        one_class=answer == "class",
    )
