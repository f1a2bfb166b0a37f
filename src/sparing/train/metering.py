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
    """What a meter has counted in all windows so far.

    A name that a window lacks, such as a counter that was lost on the way, is dropped: the sum of
    the other windows would look like less.
    """

    def __init__(self, meter: StepMeter | None) -> None:
        self.meter = meter
        self.spent: dict[str, float] = {}
        self._counts = self._begun = False

    def go_on(self) -> None:
        """Begin a window, unless one is open."""
        if self.meter is not None and not self._counts:
            self.meter.start()
            self._counts = True

    def read(self) -> dict[str, float]:
        """Close the window that is open, if one is, and give all that was counted."""
        if self.meter is not None and self._counts:
            self._counts = False
            self._add({name: float(value) for name, value in self.meter.stop().items()})
        return dict(self.spent)

    def _add(self, window: Mapping[str, float]) -> None:
        if not self._begun and not self.spent:
            self.spent = dict(window)
        else:
            self.spent = {n: v + window[n] for n, v in self.spent.items() if n in window}
        self._begun = True
