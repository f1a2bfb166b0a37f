"""What the calculator study runs: its options and its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from sparing.core.checks import Count, NotNegative, check_fields, distinct, one_of
from sparing.experiment.inputs.budgets import load_budgets
from sparing_papers.calculator.arms import ARMS
from sparing_papers.calculator.names import BASELINE


@dataclass(frozen=True)
class Options:
    """What is run, and how long it may take.

    ``arms`` are trained with ``seeds`` seeds for at most ``epochs`` epochs each; the baseline,
    whose errors scores are relative to, always is. ``language_model`` is a folder or hub name of a
    causal model to fine-tune with adapters of ``language_model_rank`` (0 trains all weights);
    "tiny" is a small one with random weights, whose sizes ``language_model_sizes`` gives, "" leaves
    it out. ``language_model_tests`` sums of each set are put to it. ``watts_per_core`` is the
    constant of energy that is estimated.
    """

    arms: Annotated[tuple[Annotated[str, one_of(*ARMS)], ...], distinct] = tuple(ARMS)
    seeds: Count = 5
    epochs: Count = 200
    language_model: str = "tiny"
    language_model_sizes: Mapping[str, Any] = field(default_factory=dict)
    language_model_epochs: Count = 20
    language_model_rank: NotNegative = 32
    language_model_tests: Count = 200
    watts_per_core: float = 5.0
    thread_count: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def trained(self) -> tuple[str, ...]:
        """The arms, the baseline first."""
        return (BASELINE, *(arm for arm in self.arms if arm != BASELINE))


BUDGETS = load_budgets("sparing_papers.calculator", Options)
