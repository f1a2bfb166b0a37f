"""How two classifiers are compared."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.errors import UsageError


@dataclass(frozen=True)
class Options:
    """How two classifiers are compared.

    ``at_least`` is the share of equal answers that is required (0: none). ``threshold`` is the
    probability from which a label is given, by a classifier of several labels. ``batch`` texts are
    answered at a time. ``timed`` texts, sampled at random, are timed (0: none). ``threads``
    compute.
    """

    at_least: float = 0.0
    threshold: float = 0.5
    batch: int = 1
    timed: int = 200
    threads: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.at_least < 1:
            raise UsageError(f"at_least must be from 0 to below 1; got {self.at_least:g}")
        if not 0 < self.threshold < 1:
            raise UsageError(f"threshold must be between 0 and 1; got {self.threshold:g}")
        for name, least in (("batch", 1), ("timed", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}; got {getattr(self, name)}")
