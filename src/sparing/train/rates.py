"""A separate learning rate for the parameters that mechanisms add to a trained model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sparing.core.mechanism import Mechanism
from sparing.layers.gates import SkimGate


def quicken(optimizer: torch.optim.Optimizer, model: nn.Module, factor: float) -> None:
    """Let the parameters of mechanisms learn at ``factor`` times the rate of their group.

    So do those of token gates, except thresholds, which have their own rate. A group with
    parameters of both kinds becomes two with the same other settings, and a schedule made
    afterwards scales both. Empty groups are not made.
    """
    quickened = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, Mechanism | SkimGate)
        for parameter in module.parameters()
    }
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        ours = [tensor for tensor in group["params"] if id(tensor) in quickened]
        rest = [tensor for tensor in group["params"] if id(tensor) not in quickened]
        if rest or not ours:
            groups.append({**group, "params": rest})
        if ours:
            groups.append({**group, "params": ours, "lr": factor * group["lr"]})
    optimizer.param_groups[:] = groups
