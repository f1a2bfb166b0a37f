"""The arms of a comparison: their names, options and models."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sparing.core.catalogue import MECHANISMS, allow, mechanism_class
from sparing.core.errors import UsageError, nearest
from sparing.core.options import option_defaults, require_options
from sparing.core.traits import FAMILIES
from sparing.experiment.cells import probe
from sparing.tasks import Task, load_task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DENSE = "softmax"
COUNTS_TOKENS = {
    "slots": 4,
    "landmarks": 4,
    "frequencies": 4,
    "radius": 8,
    "chunk": 8,
    "block": 16,
}
Options = Mapping[str, Any]
Item = TypeVar("Item")


def family_of(name: str) -> str:
    """The family that a mechanism says it belongs to."""
    return mechanism_class(name).traits.family


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """Names with groups written out: ``all``, ``controls`` and ``family:NAME``, each arm once.

    A group holds the mechanisms that are arms, by family, the dense one first. A name that is
    given twice stays: the options of a study refuse it. Raises ``UsageError`` for an unknown
    family.
    """
    arms: list[str] = []
    named = [name for name in names if not _is_group(name)]
    for name in names:
        if not _is_group(name):
            allow(name)
            arms.append(name)
        else:
            members = [member for member in _members(name) if member not in (*arms, *named)]
            arms += members
    return tuple(arms)


def _is_group(name: str) -> bool:
    return name in ("all", "controls") or name.startswith("family:")


def _members(group: str) -> list[str]:
    family = "control" if group == "controls" else group.removeprefix("family:")
    if group != "all" and family not in FAMILIES:
        raise UsageError(f"unknown family {family!r}{nearest(family, FAMILIES)}")
    arms = [name for name in MECHANISMS.names() if mechanism_class(name).traits.arm]
    arms.sort(key=lambda name: (name != DENSE, FAMILIES.index(family_of(name)), name))
    return [name for name in arms if group == "all" or family_of(name) == family]


def shuffled(items: Iterable[Item], name: str) -> list[Item]:
    """The items in an order that follows from a name alone, such as question and seed."""
    order = list(items)
    random.Random(name).shuffle(order)
    return order


def fitted_options(name: str, tokens: int) -> dict[str, Any]:
    """Options that count tokens, shrunk to the task where their defaults exceed it.

    128 slots on a sequence of 65 tokens would save nothing. Slots, landmarks and frequencies are
    at most a quarter of the tokens, a radius or a chunk an eighth. A block is at most a
    sixteenth, for a query sees several blocks.
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
        require_options(name, mechanism_class(name), given.get(name, {}))
        resolved[name] = {**fitted_options(name, tokens), **given.get(name, {})}
    return resolved


def build_arm(
    model: str, task: Task, arm: str, options: Options, seed: int, sizes: Options
) -> PreTrainedModel:
    """The model of one arm, its weights initialised from the seed.

    The dense arm is the model as transformers gives it, with its own fused attention; every other
    arm starts from the same projections.
    """
    from sparing.models import build_model
    from sparing.transfer.swap import swap

    built = build_model(model, task, seed=seed, **sizes)
    if arm == DENSE and not options:
        return built
    settings = dict(options)
    if "seed" in option_defaults(mechanism_class(arm)):
        settings.setdefault("seed", seed)
    swap(built, arm, tokens=task.tokens, **settings)
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
) -> probe.Call:
    """A forward call of one arm's model on the task's own examples, built from plain values."""
    loaded = load_task(task, data=None if data is None else Path(data), **task_options)
    built = build_arm(model, loaded, arm, options, 0, sizes)
    return probe.model_call(built, probe.task_inputs(loaded, batch))
