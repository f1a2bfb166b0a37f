"""What the calculator study runs: its options and its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparing.core.errors import UsageError, require_choice
from sparing.studies._value_arms import (
    ARMS,
    BASELINE,
    BOTH_WAYS,
    DROPOUT,
    FNN2,
    FNN3,
    LSTM,
    NO_PLACES,
    PROPOSED,
    RNN2,
    SMALL,
)


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

    arms: tuple[str, ...] = tuple(ARMS)
    seeds: int = 5
    epochs: int = 200
    language_model: str = "tiny"
    language_model_sizes: Mapping[str, Any] = field(default_factory=dict)
    language_model_epochs: int = 20
    language_model_rank: int = 32
    language_model_tests: int = 200
    watts_per_core: float = 5.0
    thread_count: int = 1

    def __post_init__(self) -> None:
        for arm in self.arms:
            require_choice("the study", "arms", arm, tuple(ARMS))
        if len(set(self.arms)) != len(self.arms):
            raise UsageError(f"arms are named twice: {', '.join(self.arms)}")
        names = ("seeds", "epochs", "language_model_epochs", "language_model_tests", "thread_count")
        for name in names:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.language_model_rank < 0:
            raise UsageError("language_model_rank must not be negative")

    @property
    def trained(self) -> tuple[str, ...]:
        """The arms, the baseline first."""
        return (BASELINE, *(arm for arm in self.arms if arm != BASELINE))


BUDGETS = {
    "quick": Options(
        arms=(FNN2, FNN3, RNN2, LSTM, SMALL, BOTH_WAYS, PROPOSED, NO_PLACES, DROPOUT, "NAU"),
        seeds=2,
        epochs=40,
        language_model_epochs=10,
        language_model_tests=50,
    ),
    "standard": Options(),
}
