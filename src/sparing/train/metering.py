"""What training steps spend, whatever counts it: energy, processor time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class StepMeter(Protocol):
    """Counts between ``start`` and ``stop``; a training starts it again after each pause."""

    def start(self) -> None:
        """Begin a window."""

    def stop(self) -> Mapping[str, float]:
        """End the window: what it took, by names that no other entry of a training's curve has."""


class Totals:
    """What a meter has counted in all windows so far."""

    def __init__(self, meter: StepMeter | None) -> None:
        self.meter = meter
        self.spent: dict[str, float] = {}
        self._counts = False

    def go_on(self) -> None:
        """Begin a window, unless one is open."""
        if self.meter is not None and not self._counts:
            self.meter.start()
            self._counts = True

    def read(self) -> dict[str, float]:
        """Close the window that is open, if one is, and give all that was counted."""
        if self.meter is not None and self._counts:
            self._counts = False
            for name, value in self.meter.stop().items():
                self.spent[name] = self.spent.get(name, 0.0) + value
        return dict(self.spent)
