"""What the calculator study runs: its options and its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from sparing.core.checks import Count, NotNegative, check_fields, distinct, one_of, some
from sparing.experiment.inputs.budgets import load_budgets
from sparing_papers.calculator.arms import ARMS, EVERY
from sparing_papers.calculator.names import BASELINE, NETWORKS, QUESTIONS


@dataclass(frozen=True)
class Options:
    """What is run, and how long it may take."""

    # Networks. The baseline is always trained: scores are relative to its errors.
    variants: Annotated[tuple[Annotated[str, one_of(*EVERY)], ...], distinct] = tuple(ARMS)
    # Variants with a rate that is searched and recorded, besides those that the others need.
    searched: Annotated[tuple[Annotated[str, one_of(*EVERY)], ...], distinct] = ()
    # Which claims are decided, and which sums are evaluated.
    questions: Annotated[tuple[Annotated[str, one_of(*QUESTIONS)], ...], some, distinct] = (
        NETWORKS,
    )
    # Seeds, and the most epochs of each training.
    seeds: Count = 5
    epochs: Count = 200
    # A folder or hub name of a causal model to fine-tune: "tiny" is a small one with random
    # weights and these sizes, "" leaves it out.
    language_model: str = "tiny"
    language_model_sizes: Mapping[str, Any] = field(default_factory=dict)
    language_model_epochs: Count = 20
    # Rank of its adapters; 0 trains all weights.
    language_model_rank: NotNegative = 32
    # Sums of each set that it answers.
    language_model_tests: Count = 200
    # The constant of energy that is estimated.
    watts_per_core: float = 5.0
    thread_count: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def trained(self) -> tuple[str, ...]:
        """The variants, the baseline first."""
        return (BASELINE, *(arm for arm in self.variants if arm != BASELINE))

    @property
    def searches(self) -> tuple[str, ...]:
        """The variants with searched rates, without repetition."""
        needed = (EVERY[arm].searched for arm in self.trained)
        return tuple(dict.fromkeys([*filter(None, needed), *self.searched]))


BUDGETS = load_budgets("sparing_papers.calculator", Options)
