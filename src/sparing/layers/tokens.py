"""One answer for each token: its logits, from its own row alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from sparing.core.errors import UsageError
from sparing.layers.heads import BodyForm, Classifying
from sparing.layers.packing import Layout

ANSWERS = ("entities", "span")


@dataclass(frozen=True)
class TokenForm:
    """The form of every head that gives each token ``classes`` logits.

    ``answer`` is what they are read as: "entities", or "span", a first and a last token. ``body``
    is what comes before the classes.
    """

    body: BodyForm
    classes: int
    answer: str
    dropout: float = 0.0
    averages: ClassVar[bool] = True
    least_tokens: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS or (self.answer == "span" and self.classes != 2):
            raise UsageError(
                f"tokens answer with entities, or with the 2 ends of a span; got {self.answer!r} "
                f"of {self.classes}"
            )

    @property
    def width(self) -> int:
        """The channels that it reads."""
        return self.body.width

    @property
    def entry(self) -> Mapping[str, Any]:
        """What a configuration states of it."""
        return {"tokens": self.answer}

    def build(self) -> TokenHead:
        """A head of this form."""
        return TokenHead(self)


class TokenHead(Classifying):
    """Logits of every token; every depth that a plan may end at has one."""

    def __init__(self, form: TokenForm) -> None:
        super().__init__(form.body, form.classes, form.dropout)
        self.form = form

    def pool(self, rows: Tensor, layout: Layout) -> Float[Tensor, "*rows width"]:
        """All rows: each is read by itself."""
        return rows

    def forward(self, rows: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows classes"]:
        """The logits of each row."""
        return self.classified(self.normed(rows))
