"""What the Kerformer study runs: its options and its budgets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from sparing.core.checks import Count, check_fields, distinct, one_of, some, within
from sparing.experiment.inputs.budgets import load_budgets
from sparing_papers.kerformer.cores import CoreOptions
from sparing_papers.kerformer.speed import SpeedOptions
from sparing_papers.long_range.arms import BY_CONTENT, KERFORMER
from sparing_papers.long_range.pretrained import BUDGETS as TRANSFERS
from sparing_papers.long_range.pretrained import PretrainedOptions
from sparing_papers.long_range.work import TaskOptions

CORES, SPEED, ARENA, VISION, PRETRAINED = "cores", "speed", "arena", "vision", "pretrained"
QUESTIONS = (CORES, SPEED, ARENA, VISION, PRETRAINED)
NO_SE_K = "kerformer, no SE-K"
NEEDS = ("", "accelerator")
NEEDS_ACCELERATOR = (
    "the arena at its own lengths takes days on a processor and needs an accelerator"
)


@dataclass(frozen=True)
class Options:
    """What is run, and how long it may take."""

    # "cores" (Tables 1 to 3), "speed" (Table 7), "arena" (Tables 5 and 6, noise, neighbours),
    # "vision" (Figures 6 to 8) and "pretrained" (Table 4).
    questions: Annotated[tuple[Annotated[str, one_of(*QUESTIONS)], ...], some, distinct] = QUESTIONS
    cores: CoreOptions = field(default_factory=CoreOptions)
    speed: SpeedOptions = field(default_factory=SpeedOptions)
    # Tasks that need a data folder are left out without one, and the page says so.
    arena: TaskOptions = field(default_factory=TaskOptions)
    vision: TaskOptions = field(default_factory=TaskOptions)
    pretrained: PretrainedOptions = field(default_factory=PretrainedOptions)
    # Shares of tokens replaced under noise, and number of inputs to read attention weights of.
    noise: tuple[Annotated[float, within(0, 1, ends="()")], ...] = (0.05, 0.1, 0.2)
    looked_at: Count = 16
    # Seeds of each training; with ``seeds_fixed`` a run takes no more and no further variants.
    seeds: Count = 3
    seeds_fixed: bool = False
    # "accelerator" refuses a machine without one.
    needs: Annotated[str, one_of(*NEEDS)] = ""

    def __post_init__(self) -> None:
        check_fields(self)


# Those of the linear families of which one may be all that is wished for at once.
LINEAR_ARMS = (KERFORMER, BY_CONTENT, "linear", "linformer", "dct", "nystrom")
BUDGETS = {
    name: replace(budget, pretrained=TRANSFERS.get(name, TRANSFERS["standard"]))
    for name, budget in load_budgets("sparing_papers.kerformer", Options).items()
}
