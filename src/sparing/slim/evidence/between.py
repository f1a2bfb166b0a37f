"""The dense model in INT8 between a plan in INT8 and the dense model in float32.

A plan passes on the inputs that it is not sure about. Most of them the dense model in INT8 answers
as in float32, in less than half of the time; the few it is not sure about either go on. The plan
may have exits, or be cut after its first layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from sparing.slim.evidence.candidates import (
    OURS,
    THRESHOLDS,
    Candidate,
    Screened,
    stages,
)

Answers = Mapping[Candidate, Float[Tensor, "texts exits classes"]]


@dataclass(frozen=True, eq=False)
class Staged:
    """A form of slim with dense INT8 behind it: answers and times after each of its stages.

    ``answers`` are those of ``stages``, as (texts, stages, classes). ``costs`` (stages) is the time
    of an input that leaves there, where that of the fastest dense form in float32 is 1.
    """

    key: Candidate
    answers: Float[Tensor, "texts stages classes"]
    costs: Float[Tensor, " stages"]


def may_come_between(key: Candidate, answers: Answers) -> bool:
    """Whether a form's cascade can go by way of the dense model in INT8; that has to have answered.

    ``answers`` are those of all forms after every exit.
    """
    int8 = key.model == OURS and key.precision == "int8"
    return int8 and key.between in answers and answers[key].shape[1] > 1


def costs_of(
    key: Candidate, layers: Sequence[int], speeds: Mapping[Candidate, float]
) -> Float[Tensor, " stages"]:
    """The time of an input that leaves at each exit of a plan, and after each dense model.

    ``layers`` has the number of the layer before each exit, the last one at the end. ``speeds`` are
    those of whole forms, over the fastest dense one in float32, whose time is 1.
    """
    exact = replace(key.between, precision="float32", settings="")
    plan = [number / layers[-1] / speeds[key] for number in layers]
    int8 = plan[-1] + 1 / speeds[key.between]
    return torch.tensor([*plan, int8, int8 + 1 / speeds[exact]], dtype=torch.float64)


def staged(forms: Sequence[Screened], answers: Answers, layers: Sequence[int]) -> list[Staged]:
    """The forms of slim that can go by way of dense INT8: with exits, and cut.

    ``layers`` are as in ``costs_of``.
    """
    speeds, listed = {form.candidate: form.speed for form in forms}, list[Staged]()
    for key in answers:
        if (key.exits or key.layers) and may_come_between(key, answers):
            costs = costs_of(key, layers if key.exits else (1,), speeds)
            listed.append(Staged(key, stages(replace(key, second=0.5), answers), costs))
    return listed


def candidates_between(
    forms: Sequence[Staged], reference: Float[Tensor, "texts classes"], shares: Sequence[float]
) -> list[Candidate]:
    """For each share the form and thresholds of least time that change at most that share."""
    grids = [(one.key, *_grid(one, reference)) for one in forms]
    listed = dict[Candidate, None]()
    for share in shares:
        allowed = [times.where(changed <= share, torch.inf) for _, changed, times in grids]
        least = min(range(len(grids)), key=lambda at: float(allowed[at].min()), default=None)
        if least is not None and allowed[least].isfinite().any():
            first, second = divmod(int(allowed[least].argmin()), len(THRESHOLDS))
            one = replace(grids[least][0], threshold=THRESHOLDS[first], second=THRESHOLDS[second])
            listed[replace(one, cascade=True)] = None
    return list(listed)


def _grid(
    form: Staged, reference: Float[Tensor, "texts classes"]
) -> tuple[Float[Tensor, "first second"], Float[Tensor, "first second"]]:
    """The share of changed answers and the mean time at each pair of thresholds."""
    logits, costs = form.answers, form.costs
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
