"""Costs of training steps, by any meter: energy, processor time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class StepMeter(Protocol):
    """Counts between ``start`` and ``stop``; a training starts it again after each pause."""

    def start(self) -> None:
        """Begin a window."""

    def stop(self) -> Mapping[str, float]:
        """End the window; returns its values under names that no other entry of a curve has."""


class Totals:
    """The sums of a meter over all windows so far.

    A name that a window lacks, such as a counter that was lost meanwhile, is dropped: the sum of
    the other windows would be too small.
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
        """Close an open window, and return all sums."""
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
