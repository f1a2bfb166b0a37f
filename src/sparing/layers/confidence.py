"""A learned confidence: the probability that an early answer is the whole model's."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.mechanism import without_autocast

ANSWER_FEATURES = 4


def answer_features(
    logits: Float[Tensor, "batch classes"],
) -> Float[Tensor, "batch features"]:
    """Features of an answer's doubt, in float32, four numbers for each input.

    The largest probability, its lead over the next, the entropy in nats, and the lead of the
    logits; it needs two classes at least.
    """
    logits = logits.detach().float()
    likely = logits.softmax(-1)
    top, best = likely.topk(2).values, logits.topk(2).values
    # entr's decomposition fails in older exporters
    entropy = -torch.xlogy(likely, likely).sum(-1)
    return torch.stack([top[:, 0], top[:, 0] - top[:, 1], entropy, best[:, 0] - best[:, 1]], -1)


class ConfidenceHead(nn.Module):
    """The probability that an exit's answer is the whole model's, by logistic regression.

    It reads the row that the exit head reads and ``answer_features`` of its logits. It computes in
    float32, so that a threshold means the same in every precision. Before it is fitted it returns
    0.5.

    Source: the target is the consistency of Schuster et al., 2022 (CALM), arXiv 2207.07061, section
    3.4 (early-exit classifier). What differs: it also sees the answer, and it is fitted after the
    training, by a convex problem, so the model does not change.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width + ANSWER_FEATURES, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    @property
    def flops(self) -> int:
        """FLOPs of its matrix product for one input; a multiply-add is 2."""
        return 2 * self.linear.weight.numel()

    def forward(
        self, pooled: Float[Tensor, "batch width"], logits: Float[Tensor, "batch classes"]
    ) -> Float[Tensor, " batch"]:
        """The probability for each input; gradients do not reach the model."""
        seen = confidence_inputs(pooled, logits)
        weight, bias = self.linear.weight.float(), self.linear.bias.float()
        with without_autocast(seen.device.type):
            return F.linear(seen, weight, bias).squeeze(-1).sigmoid()


def confidence_inputs(
    pooled: Float[Tensor, "batch width"], logits: Float[Tensor, "batch classes"]
) -> Float[Tensor, "batch features"]:
    """The inputs of a confidence head, in float32."""
    return torch.cat([pooled.detach().float(), answer_features(logits)], -1)
