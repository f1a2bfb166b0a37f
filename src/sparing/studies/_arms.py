"""Arms: what is compared, and how a model comes to each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.catalogue import mechanism_class
from sparing.core.errors import UsageError, nearest
from sparing.core.mechanism import option_defaults
from sparing.studies import _probe
from sparing.tasks import Task, load_task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DENSE = "softmax"
COUNTS_TOKENS = {"slots": 4, "landmarks": 4, "radius": 8}
Options = Mapping[str, Any]


def fitted_options(name: str, tokens: int) -> dict[str, Any]:
    """Options that count tokens, shrunk to the task where their defaults exceed it.

    128 slots on a sequence of 65 tokens would save nothing: slots and landmarks are at most a
    quarter of the tokens, a radius at most an eighth.
    """
    defaults = option_defaults(mechanism_class(name))
    fitted = {}
    for option, share in COUNTS_TOKENS.items():
        default = defaults.get(option)
        if isinstance(default, int):
            fitted[option] = max(1, min(default, tokens // share))
    return fitted


def resolve_options(
    names: tuple[str, ...], given: Mapping[str, Options], tokens: int
) -> dict[str, dict[str, Any]]:
    """Each arm's options: fitted to the task, then as given; unknown ones are refused."""
    for name in given:
        if name not in names:
            raise UsageError(f"options for {name!r}, which is not compared{nearest(name, names)}")
    resolved = {}
    for name in names:
        known = option_defaults(mechanism_class(name))
        for option in given.get(name, {}):
            if option not in known:
                raise UsageError(f"{name} has no option {option!r}{nearest(option, known)}")
        resolved[name] = {**fitted_options(name, tokens), **given.get(name, {})}
    return resolved


def build_arm(
    model: str, task: Task, arm: str, options: Options, seed: int, sizes: Options
) -> PreTrainedModel:
    """The model of one arm, its weights drawn from the seed.

    The dense arm is the model as transformers gives it, with its own fused attention; every other
    arm starts from the same projections.
    """
    from sparing.models import build_model
    from sparing.transfer.swap import swap

    built = build_model(model, task, seed=seed, **sizes)
    if arm == DENSE and not options:
        return built
    own = dict(options)
    if "seed" in option_defaults(mechanism_class(arm)):
        own.setdefault("seed", seed)
    swap(built, arm, tokens=task.tokens, **own)
    return built


def model_in_its_own_process(
    model: str,
    task: str,
    task_options: dict[str, Any],
    data: str | None,
    arm: str,
    options: dict[str, Any],
    sizes: dict[str, Any],
    batch: int,
) -> _probe.Call:
    """A forward call of one arm's model on the task's own examples, built from plain values."""
    loaded = load_task(task, data=None if data is None else Path(data), **task_options)
    built = build_arm(model, loaded, arm, options, 0, sizes)
    return _probe.model_call(built, _probe.task_inputs(loaded, batch))
