"""What the Linformer study runs: its options and its budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from sparing.core.checks import Count, Positive, at_least, check_fields, one_of
from sparing.core.errors import UsageError
from sparing.experiment.inputs.budgets import load_budgets
from sparing.mechanisms.linformer import SHARING
from sparing_papers.linformer.language.work import LanguageOptions
from sparing_papers.long_range.arms import DENSE, UNIFORM
from sparing_papers.long_range.pretrained import PretrainedOptions
from sparing_papers.long_range.stages import Stages
from sparing_papers.long_range.work import TaskOptions

LONGER, SHARED, SHIFT = "longer", "sharing", "shift"
SPECTRUM, ERROR, COST, LANGUAGE = "spectrum", "error", "cost", "language"
SWAPPED = "swapped"
QUESTIONS = (LONGER, SHARED, SHIFT, SPECTRUM, ERROR, COST, SWAPPED, LANGUAGE)
LINFORMER = "linformer"
NEEDS = ("", "accelerator")
NEEDS_ACCELERATOR = (
    "the paper's lengths and slots, with five seeds, take weeks on a processor and need an "
    "accelerator"
)
POOLED, CONVOLVED = "linformer, pooled", "linformer, convolved"


@dataclass(frozen=True)
class CostOptions:
    """Time and memory at a fixed number of tokens, as many rows as fit of each length.

    ``slots`` are those of Linformer. A call that is predicted to take longer than ``most_seconds``
    or more than ``most_bytes`` is not made.
    """

    tokens: Count = 65536
    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
    slots: tuple[int, ...] = (128, 256)
    rounds: Count = 3
    most_seconds: Annotated[float, at_least(0)] = 20.0
    most_bytes: Annotated[float, at_least(0)] = 6e9

    def __post_init__(self) -> None:
        check_fields(self, "cost")
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise UsageError(f"cost.lengths must divide the {self.tokens} tokens; got {length}")


@dataclass(frozen=True)
class ErrorOptions:
    """Errors of the output: at which lengths, with how many slots, and how they are learned.

    ``draws`` are those of a random projection; ``texts`` are captured to learn from and ``held``
    to evaluate on; learned forms take ``steps`` steps of Adam.
    """

    lengths: tuple[Annotated[int, at_least(2)], ...] = (64, 128, 256)
    slots: tuple[Count, ...] = (8, 16, 32, 64, 128)
    draws: Count = 3
    texts: Count = 32
    held: Count = 8
    steps: Count = 150

    def __post_init__(self) -> None:
        check_fields(self, "error")
        if min(self.slots, default=1) >= max(self.lengths, default=2):
            raise UsageError("error.slots must be fewer than the longest of error.lengths")


# Position embeddings of the encoder were trained to all of these lengths, so dense attention can
# serve them. An encoder from nothing, with positions interpolated, cannot.
SWAPS = PretrainedOptions(
    tasks=("imdb",),
    stages=Stages(
        variants=(DENSE, LINFORMER, POOLED, "linear", "nystrom", UNIFORM),
        dense_epochs=3,
        layer_epochs=2,
        later_epochs=2,
        plain=False,
        batch_size=16,
        mechanism_rate_factor=10.0,
        precision="fast",
        test_examples=1000,
        read_at=(128, 256, 512),
    ),
    task_options={"imdb": {"examples": 1500, "max_tokens": 128}},
)


@dataclass(frozen=True)
class Options:
    """What is run, and how long it may take."""

    # Trainings that are also evaluated on longer inputs; those of texts need data and are
    # evaluated on another domain too.
    longer: TaskOptions = field(default_factory=TaskOptions)
    texts: TaskOptions = field(default_factory=lambda: TaskOptions(tasks=("imdb",)))
    # Parts of the study.
    questions: tuple[Annotated[str, one_of(*QUESTIONS)], ...] = QUESTIONS
    # Times the length of training, and inputs of each length.
    factors: tuple[int, ...] = (1, 2, 4, 8)
    length_examples: Count = 300
    # Inputs of the other domain.
    shift_examples: Count = 2000
    # Modes of sharing projections, and slots ("64", or a share of the length such as "n/4"):
    # each is trained on the first task of ``longer``.
    sharing: tuple[Annotated[str, one_of(*SHARING)], ...] = ("none", "kv", "layerwise")
    ranks: tuple[str, ...] = ("64", "128", "n/4", "n/2")
    # Lengths at which attention matrices are decomposed, and inputs at each.
    spectrum_lengths: tuple[Annotated[int, at_least(2)], ...] = (16, 32, 64, 128, 256, 512, 1024)
    spectrum_texts: Count = 4
    # A folder or hub name of an encoder for film reviews; "" leaves it out.
    pretrained: str = ""
    # How it is swapped and distilled, on inputs cut to ``max_tokens``. A variant that is less than
    # the margin below dense attention there does as well.
    swapped: PretrainedOptions = field(default_factory=lambda: SWAPS)
    swapped_margin: Positive = 0.03
    # Approximation error, cost by length, and language models.
    error: ErrorOptions = field(default_factory=ErrorOptions)
    cost: CostOptions = field(default_factory=CostOptions)
    language: LanguageOptions = field(default_factory=LanguageOptions)
    # Whether a run takes no more seeds than it began with, and no further variants.
    seeds_fixed: bool = False
    # What the machine must have.
    needs: Annotated[str, one_of(*NEEDS)] = ""

    def __post_init__(self) -> None:
        check_fields(self)
        for rank in self.ranks:
            slots_of(rank, 1024)
        if not self.factors or list(self.factors) != sorted({1, *self.factors}):
            raise UsageError(f"factors must rise from 1; got {self.factors}")
        for name in self.longer.tasks:
            if name in self.texts.tasks:
                raise UsageError(f"{name} is among the tasks of longer and of texts: name it once")


def slots_of(rank: str, tokens: int) -> int:
    """How many slots a rank names at a length: "64", or "n/4" for a quarter of the tokens."""
    share = rank.removeprefix("n/") if rank.startswith("n/") else ""
    if not (share or rank).isdecimal() or int(share or rank) < 1:
        raise UsageError(f"ranks are counts such as 64 or shares such as n/4; got {rank!r}")
    return max(1, tokens // int(share)) if share else min(int(rank), tokens)


BUDGETS = load_budgets("sparing_papers.linformer", Options)
