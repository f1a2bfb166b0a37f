"""How far one model's answers are from another's."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def divergence(
    answers: Float[Tensor, "texts classes"], reference: Float[Tensor, "texts classes"]
) -> float:
    """The mean KL divergence KL(reference || answers) of class probabilities, in nats."""
    truth, given = (logits.double().log_softmax(-1) for logits in (reference, answers))
    return float((truth.exp() * (truth - given)).sum(-1).mean())
