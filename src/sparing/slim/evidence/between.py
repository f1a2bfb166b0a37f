"""The dense model in INT8 between a plan in INT8 and the dense model in float32.

A plan passes on the inputs that it is not sure about. Most of them the dense model in INT8 answers
as in float32, in less than half of the time; the few it is not sure about either go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.slim.evidence.candidates import OURS, THRESHOLDS, Candidate


def may_come_between(key: Candidate, logits: Mapping[Candidate, Tensor]) -> bool:
    """Whether a form's cascade can go by way of the dense model in INT8; that has to have answered.

    ``logits`` are the answers of all forms, as (texts, exits, classes).
    """
    int8 = key.model == OURS and key.precision == "int8"
    return int8 and key.between in logits and logits[key].shape[1] > 1


def costs_of(
    key: Candidate, layers: Sequence[int], speeds: Mapping[Candidate, float]
) -> Float[Tensor, " exits"]:
    """The time of an input that leaves at each exit of a plan, and after each dense model.

    ``layers`` has the number of the layer before each exit, the last one at the end. ``speeds`` are
    those of forms without exits, over the fastest dense one in float32, whose time is 1.
    """
    exact = replace(key.between, precision="float32", settings="")
    plan = [number / layers[-1] / speeds[key] for number in layers]
    int8 = plan[-1] + 1 / speeds[key.between]
    return torch.tensor([*plan, int8, int8 + 1 / speeds[exact]], dtype=torch.float64)


def candidates_between(
    key: Candidate,
    logits: Float[Tensor, "texts exits classes"],
    costs: Float[Tensor, " exits"],
    reference: Float[Tensor, "texts classes"],
    shares: Sequence[float],
) -> list[Candidate]:
    """For each share the thresholds of least time that change at most that share of the answers.

    ``logits`` are those of ``stages``: the plan's exits, the dense model in INT8 and in float32.
    """
    changed, times = _grid(logits, costs, reference)
    listed = dict[Candidate, None]()
    for share in shares:
        allowed = times.where(changed <= share, torch.inf)
        if allowed.isfinite().any():
            first, second = divmod(int(allowed.argmin()), len(THRESHOLDS))
            one = replace(key, threshold=THRESHOLDS[first], second=THRESHOLDS[second])
            listed[replace(one, cascade=True)] = None
    return list(listed)


def _grid(
    logits: Float[Tensor, "texts exits classes"],
    costs: Float[Tensor, " exits"],
    reference: Float[Tensor, "texts classes"],
) -> tuple[Float[Tensor, "first second"], Float[Tensor, "first second"]]:
    """The share of changed answers and the mean time at each pair of thresholds."""
    confidence = logits.softmax(-1).amax(-1)
    wrong = (logits.argmax(-1) != reference.argmax(-1)[:, None]).double()
    stays = confidence[:, -2, None] > torch.tensor(THRESHOLDS)
    later_wrong = wrong[:, -2, None].where(stays, wrong[:, -1, None])
    later_cost = costs[-2].where(stays, costs[-1])
    changed, times = [], []
    for threshold in THRESHOLDS:
        sure = confidence[:, :-2] > threshold
        exits, leaves = sure.int().argmax(1), sure.any(1)[:, None]
        changed.append(wrong.gather(1, exits[:, None]).where(leaves, later_wrong).mean(0))
        times.append(costs[exits][:, None].where(leaves, later_cost).mean(0))
    return torch.stack(changed), torch.stack(times)
