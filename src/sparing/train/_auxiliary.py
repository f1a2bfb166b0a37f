"""Losses that mechanisms report while a model trains, and how they end a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.core.ranks import over_ranks
from sparing.train.recipe import Auxiliary

Entry = Mapping[str, float | int]


def reported(log: Mapping[str, Sequence[Tensor]], name: str) -> list[Tensor]:
    """Everything that any layer reported under a name."""
    return [
        value for key, values in log.items() if key.rpartition("/")[2] == name for value in values
    ]


def with_auxiliary(
    loss: Float[Tensor, ""], log: Mapping[str, Sequence[Tensor]], weight: float
) -> Float[Tensor, ""]:
    """The loss plus the weighted mean of the layers' ``auxiliary_loss``.

    It is a mean, so the weight has the same meaning for models of any depth. Without such losses
    the loss does not change. In several processes a number is the same in all of them already;
    others have a row for each example.
    """
    losses = reported(log, "auxiliary_loss")
    if not losses or not weight:
        return loss
    mean = torch.stack([one.to(loss) for one in losses]).mean()
    return loss + weight * (over_ranks(mean, len(losses[0])) if losses[0].ndim else mean)


def mean_score(log: Mapping[str, Sequence[Tensor]]) -> float | None:
    """The mean over layers, rows and heads of the scores that layers reported, if any did."""
    scores = [value.detach().float().mean() for value in reported(log, "score")]
    if not scores:
        return None
    rows = len(reported(log, "score")[0])
    return float(over_ranks(torch.stack(scores).mean(), rows))


def fell_below(curve: Sequence[Entry], auxiliary: Auxiliary) -> bool:
    """Whether the last validation is below the floor, and an earlier one was not."""
    if auxiliary.baseline is None or not curve:
        return False
    enough = [_is_enough(entry, auxiliary) for entry in curve]
    return any(enough) and not enough[-1]


def replaces(entry: Entry, best: Entry, auxiliary: Auxiliary) -> bool:
    """Whether the weights of a validation replace those stored so far."""
    if auxiliary.baseline is not None:
        if _is_enough(entry, auxiliary):
            return True
        if _is_enough(best, auxiliary):
            return False
    return _rank(entry) > _rank(best)


def _is_enough(entry: Entry, auxiliary: Auxiliary) -> bool:
    assert auxiliary.baseline is not None
    return entry["validation_score"] >= auxiliary.floor_share * auxiliary.baseline


def _rank(entry: Entry) -> tuple[float, float]:
    """A higher score is better; ties, frequent on small splits, are broken by the lower loss."""
    return entry["validation_score"], -entry["validation_loss"]
