"""Heads that answer once for an input, and what they share with heads of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.errors import UsageError, require_choice
from sparing.layers.packing import Layout, mean_after_first, mean_of_all

ACTIVATIONS: tuple[str, ...] = ("tanh", "gelu", "relu", "silu")
POOLINGS = ("first", "mean", "others")


@dataclass(frozen=True)
class BodyForm:
    """What comes before the classes: an optional norm, dense layer and second norm.

    ``activation`` is that of the dense layer, one of ``ACTIVATIONS``; empty leaves the layer out.
    ``norm_epsilon`` None leaves out the norm before it, ``norms_after`` False the one behind.
    """

    width: int
    activation: str = ""
    norm_epsilon: float | None = None
    norms_after: bool = False

    def __post_init__(self) -> None:
        if self.activation:
            require_choice("a head", "activation", self.activation, ACTIVATIONS)
        if self.norms_after and self.norm_epsilon is None:
            raise UsageError("a head with a norm behind its dense layer needs norm_epsilon")


class Classifying(nn.Module):
    """Classes from rows, each by itself, through what a ``BodyForm`` puts before them."""

    def __init__(self, form: BodyForm, classes: int, dropout: float) -> None:
        super().__init__()
        epsilon = form.norm_epsilon
        self.norm = None if epsilon is None else nn.LayerNorm(form.width, eps=epsilon)
        self.dense = nn.Linear(form.width, form.width) if form.activation else None
        self.activation = getattr(torch.nn.functional, form.activation or "tanh")
        after = form.norms_after and epsilon is not None
        self.last_norm = nn.LayerNorm(form.width, eps=epsilon or 0.0) if after else None
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(form.width, classes)

    @property
    def flops(self) -> int:
        """FLOPs of its matrix products for one row; a multiply-add is 2."""
        dense = 0 if self.dense is None else self.dense.weight.numel()
        return 2 * (self.classifier.weight.numel() + dense)

    def normed(self, rows: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """The rows after the norm that comes before everything, if there is one."""
        return rows if self.norm is None else self.norm(rows)

    def classified(self, rows: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows classes"]:
        """The logits of normed rows, through the dense layer and the norm behind it."""
        if self.dense is not None:
            rows = self.activation(self.dense(rows))
        if self.last_norm is not None:
            rows = self.last_norm(rows)
        logits: Tensor = self.classifier(self.dropout(rows))
        return logits


@dataclass(frozen=True)
class HeadForm:
    """A classification head: what comes before the classes, and these.

    ``pooling`` is "first", the row of the class token, or the mean of all rows ("mean") or of all
    but the first ("others"). With ``one_class`` the largest class probability says how sure an
    answer is; several labels, and numbers, say nothing of the kind.
    """

    body: BodyForm
    classes: int
    dropout: float = 0.0
    pooling: Literal["first", "mean", "others"] = "first"
    one_class: bool = True
    entry: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        require_choice("a head", "pooling", self.pooling, POOLINGS)

    @property
    def width(self) -> int:
        """The channels that it reads."""
        return self.body.width

    @property
    def averages(self) -> bool:
        """Whether it reads more than one row."""
        return self.pooling != "first"

    @property
    def least_tokens(self) -> int:
        """How many tokens of an input must remain for the head to read."""
        return 2 if self.pooling == "others" else 1

    def build(self) -> ExitHead:
        """A head of this form."""
        return ExitHead(self)


class ExitHead(Classifying):
    """Class logits from one row an input; every exit, and the end, has one."""

    def __init__(self, form: HeadForm) -> None:
        super().__init__(form.body, form.classes, form.dropout)
        self.form = form

    def pool(self, rows: Tensor, layout: Layout) -> Float[Tensor, "batch width"]:
        """The head's input from each input's rows: the first, or a mean of normed ones."""
        if not self.form.averages:
            return layout.first(rows)
        mean = mean_of_all if self.form.pooling == "mean" else mean_after_first
        return mean(self.normed(rows), layout)

    def forward(self, pooled: Float[Tensor, "batch width"]) -> Float[Tensor, "batch classes"]:
        """The logits of a result of ``pool``."""
        return self.classified(pooled if self.form.averages else self.normed(pooled))
