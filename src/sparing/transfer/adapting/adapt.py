"""The adaptive form of a dense model, whatever it answers with."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from sparing.foreign.kinds import by_token
from sparing.transfer.adaptive import AdaptiveClassifier, adapt_classifier
from sparing.transfer.tokens.adaptive import adapt_tokens
from sparing.transfer.unwrapping import unwrapped


def adapt(model: nn.Module, exits: Sequence[int] | None = None) -> AdaptiveClassifier:
    """The adaptive form of a dense model, with the same answers until a plan is set.

    Of a classifier, ``exits`` are the layers after which inputs may leave (every layer from the
    second on unless given). Of a model that answers for each token they are the layers at which a
    plan may end (every layer): no token exits early. Heads after them begin with the weights of
    the model's own. The dense model does not change. Raises ``Unsupported`` naming the known
    families for other families and other kinds of models.
    """
    whole = unwrapped(model, merged=True)
    if by_token(type(whole).__name__) is not None:
        return adapt_tokens(whole, exits)
    return adapt_classifier(whole, exits)
