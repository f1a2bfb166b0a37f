"""The variants of the HuggingGreen study: selections of patches, and baselines of equal cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sparing.experiment.arms import shuffled as in_turn
from sparing.tasks import Task
from sparing.transfer.patching import Selection
from sparing.transfer.scheduling import PatchSchedule
from sparing_papers.hugginggreen.names import (
    AGAIN,
    DENSE,
    GAUSSIAN_HALF,
    HALVED,
    SOFTMAX_HALF,
    larger_name,
    network_name,
    selected_name,
    steps_name,
)
from sparing_papers.hugginggreen.options import ATTENTIONS, SCHEDULES, Options

Kind = Literal["dense", "selection", "steps", "larger", "network", "halved", "attention", "guess"]


@dataclass(frozen=True)
class Arm:
    """One model and how it is trained.

    ``keep`` is the share of patches that the variant selects, or that its cost is matched to.
    ``kept_heads`` of the dense model's heads are left (0: all). ``penalty`` is the weight of the
    loss that a mechanism reports.
    """

    name: str
    kind: Kind
    keep: float | int = 1.0
    selection: Selection | None = None
    schedule: PatchSchedule | None = None
    mechanism: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    kept_heads: int = 0
    penalty: float = 0.0


def named_schedule(name: str, keep: float | int) -> PatchSchedule:
    """A schedule by its name; those of the share run between it and all patches."""
    schedule = SCHEDULES[name]
    if schedule.field != "keep":
        return schedule
    share = float(keep)
    if name.endswith("-falling"):
        return replace(schedule, end=share)
    return replace(schedule, start=share)


def selection_arms(options: Options, task: Task, *, whole: bool) -> list[Arm]:
    """All variants that select patches; without ``whole`` the first way and share alone."""
    ways = options.ways if whole else options.ways[:1]
    keeps = options.keeps if whole else options.keeps[:1]
    arms = [
        _selecting(options, task, score, way, keep)
        for keep in keeps
        for way in ways
        for score in options.scores
    ]
    first = arms[0]
    for name in options.schedules if whole else ():
        assert first.selection is not None
        schedule = named_schedule(name, first.keep)
        arms.append(replace(first, name=f"{first.name}, {name}", schedule=schedule))
    return arms


def _selecting(options: Options, task: Task, score: str, way: str, keep: float | int) -> Arm:
    selection = Selection(
        score,
        keep,
        way,
        mean=(task.pixel_mean,),
        deviation=(task.pixel_deviation,),
        at_inference=options.at_inference,
    )
    schedule = named_schedule(options.schedule, keep) if options.schedule else None
    return Arm(selected_name(score, way, keep), "selection", keep, selection, schedule)


def patch_arms(options: Options, task: Task, *, whole: bool) -> list[Arm]:
    """The variants of RQ2: dense twice, every selection, and the baselines at each share's cost."""
    selecting = selection_arms(options, task, whole=whole)
    arms = [Arm(DENSE, "dense"), Arm(AGAIN, "dense"), *selecting]
    for keep in dict.fromkeys(arm.keep for arm in selecting):
        arms.append(Arm(steps_name(keep), "steps", keep))
        if larger_patches(task):
            arms.append(Arm(larger_name(keep), "larger", keep))
        if options.network_width:
            arms.append(Arm(network_name(keep), "network", keep))
    if options.halved:
        arms.append(Arm(HALVED, "halved"))
    return arms


def attention_arms(heads: int) -> list[Arm]:
    """The variants of RQ1: other attentions, and half the heads with and without Gaussian keys.

    Half the heads are half the projections too: a head keeps its dimensions, as in the paper of
    the Gaussian keys.
    """
    half = heads // 2
    arms = [
        Arm(DENSE, "dense"),
        Arm(AGAIN, "dense"),
        Arm("probabilistic", "attention", mechanism="probabilistic"),
        Arm("gaussian keys", "attention", mechanism="gaussian_keys"),
        Arm(
            "entropy penalty",
            "attention",
            mechanism="eager",
            options={"penalise_entropy": True},
            penalty=0.01,
        ),
    ]
    if half:
        arms += [
            Arm(SOFTMAX_HALF, "attention", kept_heads=half),
            Arm(GAUSSIAN_HALF, "attention", mechanism="gaussian_keys", kept_heads=half),
        ]
    return arms


def chosen_attentions(options: Options) -> list[Arm]:
    """Dense and the attentions that the options name."""
    chosen = [(name, *ATTENTIONS[name]) for name in options.attentions]
    return [
        Arm(DENSE, "dense"),
        *(Arm(name, "attention", mechanism=kind, options=given) for name, kind, given in chosen),
    ]


def larger_patches(task: Task) -> int:
    """The next larger patch that tiles the task's images; 0 if only the whole image is left."""
    sizes = range(task.patch_size + 1, task.image_size)
    return next((size for size in sizes if task.image_size % size == 0), 0)


def with_patches(task: Task, size: int) -> Task:
    """The same images, cut into patches of another size."""
    return replace(task, patch_size=size, tokens=(task.image_size // size) ** 2 + 1)


def equal_epochs(whole: float, once: float) -> int:
    """How many epochs of cost ``once`` cost ``whole``, rounded up in favour of the baseline.

    A difference by rounding of floats adds no epoch.
    """
    return max(1, math.ceil(whole / once - 1e-9))


def shuffled(arms: Sequence[Arm], seed: int, question: str) -> list[Arm]:
    """The order of a seed's variants: random for each seed, those that need others last."""
    order = in_turn(arms, f"{question}:{seed}")
    return sorted(order, key=lambda arm: arm.kind in ("network", "halved", "guess"))
