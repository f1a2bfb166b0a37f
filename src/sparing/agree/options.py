"""How two models are compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparing.answers import Settings
from sparing.core.errors import UsageError


@dataclass(frozen=True)
class Options:
    """How two models are compared.

    ``at_least`` is the share of equal answers that is required (0: none). ``batch`` texts are
    answered at a time. ``timed`` texts, sampled at random, are timed (0: none). ``threads``
    compute. ``settings`` say from when on answers agree.
    """

    at_least: float = 0.0
    batch: int = 1
    timed: int = 200
    threads: int = 1
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if not 0 <= self.at_least < 1:
            raise UsageError(f"at_least must be from 0 to below 1; got {self.at_least:g}")
        for name, least in (("batch", 1), ("timed", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}; got {getattr(self, name)}")
