"""How the arms of a study are trained, and the machine that a budget needs for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from sparing.core.errors import UsageError
from sparing.train import Recipe, default_recipe


def recipe_for(
    task: str, given: Mapping[str, Any], *, pretrained: bool = False, **fixed: Any
) -> Recipe:
    """A task's default recipe with what a study gives; 0 and None keep the default.

    No arm stops early: all are trained for the same number of epochs.
    """
    chosen = {name: value for name, value in given.items() if value}
    return replace(default_recipe(task, pretrained=pretrained), patience=None, **chosen, **fixed)


def require_accelerator(needs: str, why: str) -> None:
    """Raise ``UsageError`` where a budget ``needs`` an accelerator and there is none."""
    if needs == "accelerator" and not torch.accelerator.is_available():
        raise UsageError(f"{why}; use the budget standard, or --set needs= to run it all the same")
