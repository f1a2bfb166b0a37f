"""What the Kerformer study runs: its options and its budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import torch

from sparing.core.checks import Count, check_fields, distinct, one_of, some, within
from sparing.core.errors import UsageError
from sparing_papers.kerformer.cores import CoreOptions
from sparing_papers.kerformer.speed import SpeedOptions
from sparing_papers.long_range.arms import BY_CONTENT, DENSE, KERFORMER, NOTHING, UNIFORM
from sparing_papers.long_range.pretrained import QUICK as FEW_TRANSFERS
from sparing_papers.long_range.pretrained import STANDARD as TRANSFERS
from sparing_papers.long_range.pretrained import PretrainedOptions
from sparing_papers.long_range.work import TaskOptions

CORES, SPEED, ARENA, VISION, PRETRAINED = "cores", "speed", "arena", "vision", "pretrained"
QUESTIONS = (CORES, SPEED, ARENA, VISION, PRETRAINED)
NO_SE_K = "kerformer, no SE-K"
ABLATIONS = (NO_SE_K, "kerformer, plain queries", "kerformer, plain keys")
NEEDS = ("", "accelerator")


@dataclass(frozen=True)
class Options:
    """What is run, and how long it may take.

    ``questions`` are "cores" (Tables 1 to 3), "speed" (Table 7), "arena" (Tables 5 and 6, noise,
    neighbours), "vision" (Figures 6 to 8) and "pretrained" (Table 4). Tasks of ``arena`` and
    ``vision`` that need a data folder are left out without one, and the page says so.
    """

    questions: Annotated[tuple[Annotated[str, one_of(*QUESTIONS)], ...], some, distinct] = QUESTIONS
    cores: CoreOptions = field(default_factory=CoreOptions)
    speed: SpeedOptions = field(default_factory=SpeedOptions)
    arena: TaskOptions = field(default_factory=TaskOptions)
    vision: TaskOptions = field(default_factory=TaskOptions)
    pretrained: PretrainedOptions = field(default_factory=PretrainedOptions)
    noise: tuple[Annotated[float, within(0, 1, ends="()")], ...] = (0.05, 0.1, 0.2)
    looked_at: Count = 16
    seeds: Count = 3
    needs: Annotated[str, one_of(*NEEDS)] = ""

    def __post_init__(self) -> None:
        check_fields(self)


def require_machine(options: Options) -> None:
    """Raise ``UsageError`` where a budget needs an accelerator and there is none."""
    if options.needs == "accelerator" and not torch.accelerator.is_available():
        raise UsageError(
            "the arena at its own lengths takes days on a processor and needs an accelerator; use "
            "the budget standard, or --set needs= to run it all the same"
        )


_LISTOPS = {"min_tokens": 128, "max_tokens": 256}
_VISION_ARMS = (DENSE, "efficient", "linear", "cosformer", KERFORMER)
# Those of the linear families of which one may be all that is wished for at once.
LINEAR_ARMS = (KERFORMER, BY_CONTENT, "linear", "linformer", "dct", "nystrom")
_FEW = (DENSE, KERFORMER, "dct", UNIFORM)
_PRINTED = (
    *(DENSE, "local", "reformer", "performer", "longformer", "bigbird", "dct", KERFORMER),
    *(BY_CONTENT, *ABLATIONS, "linear", "linformer", "nystrom", "efficient", UNIFORM, NOTHING),
)


def _bytes(tokens: int, examples: int) -> dict[str, Any]:
    return {"tokenizer": "bytes", "max_tokens": tokens, "examples": examples}


def _recipe(
    epochs: int, batch_size: int = 32, learning_rate: float | tuple[float, ...] = (3e-4, 1e-3)
) -> dict[str, Any]:
    return {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size}


_QUICK = Options(
    cores=CoreOptions(
        lengths=(1000, 10_000), ranges=(1.0, 10.0), range_tokens=4000, range_memory=False
    ),
    speed=SpeedOptions(
        arms=(DENSE, "linear", "performer", KERFORMER, BY_CONTENT, "linformer"),
        lengths=(1024,),
        rounds=3,
        longest=16_384,
    ),
    arena=TaskOptions(
        tasks=("listops", "imdb"),
        arms=(DENSE, KERFORMER, "linformer", "linear", UNIFORM),
        seeds=2,
        pilot=False,
        task_options={"listops": {**_LISTOPS, "examples": 1200}, "imdb": _bytes(512, 500)},
        trained={"listops": _recipe(2, 32, 1e-3), "imdb": _recipe(2, 32, 1e-3)},
        validation_examples=200,
        test_examples=500,
    ),
    vision=TaskOptions(
        tasks=("digits",),
        arms=_VISION_ARMS,
        seeds=2,
        pilot=False,
        task_options={"digits": {"patch_size": 2}},
        trained={"digits": _recipe(5, 64, 3e-3)},
    ),
    pretrained=FEW_TRANSFERS,
    seeds=1,
)
_STANDARD = Options(
    arena=TaskOptions(
        tasks=("listops", "cifar10"),
        arms=(DENSE, KERFORMER, BY_CONTENT, *ABLATIONS, "linear", UNIFORM, NOTHING),
        arms_of={"cifar10": _FEW},
        task_options={
            "listops": {"min_tokens": 8, "max_tokens": 32, "examples": 32_000},
            "cifar10": {"as_tokens": True, "examples": 8000},
        },
        # small batches: more steps for the same images
        trained={"listops": _recipe(6), "cifar10": _recipe(2, 8, (1e-4, 3e-4))},
        precision="fast",
    ),
    # five seeds: with three the interval that tells whether images decide is too wide
    vision=TaskOptions(
        tasks=("cifar10", "mnist", "flowers"),
        arms=_VISION_ARMS,
        seeds=5,
        task_options={"cifar10": {"examples": 9000}, "mnist": {"examples": 10_000}},
        trained={
            "cifar10": _recipe(15, 64),
            "mnist": _recipe(12, 64, (6e-4, 2e-3)),
            "flowers": _recipe(20, 32),
        },
    ),
    pretrained=TRANSFERS,
    seeds=5,
)
_PAPER = Options(
    # an accelerator works through what a core takes seconds for before a step is begun
    cores=CoreOptions(most_seconds=2.0),
    speed=SpeedOptions(step_tokens=131_072),
    arena=TaskOptions(
        tasks=("listops", "imdb", "retrieval", "pathfinder", "cifar10"),
        arms=_PRINTED,
        task_options={
            "listops": {"min_tokens": 500, "max_tokens": 2000, "examples": 96_000},
            "imdb": {"tokenizer": "bytes", "max_tokens": 4000},
            "retrieval": {"pairs": "papers", "max_tokens": 8000},
            "pathfinder": {"examples": 160_000},
            "cifar10": {"as_tokens": True},
        },
        trained={
            "listops": _recipe(10),
            "imdb": _recipe(20),
            "retrieval": _recipe(10),
            "pathfinder": _recipe(50),
            "cifar10": _recipe(50),
        },
        validation_examples=0,
        test_examples=0,
    ),
    vision=TaskOptions(
        tasks=("mnist", "cifar10", "cifar100", "flowers"),
        arms=_VISION_ARMS,
        seeds=10,
        task_options={
            name: {"image_size": 224, "patch_size": 16}
            for name in ("mnist", "cifar10", "cifar100", "flowers")
        },
        trained={
            **{name: _recipe(180, 32, 1e-4) for name in ("mnist", "cifar10", "cifar100")},
            "flowers": _recipe(80, 4, 1e-4),
        },
        validation_examples=0,
        test_examples=0,
    ),
    pretrained=TRANSFERS,
    needs="accelerator",
)
BUDGETS = {"quick": _QUICK, "standard": _STANDARD, "paper": _PAPER}
