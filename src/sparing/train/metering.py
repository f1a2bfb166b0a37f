"""Costs of training steps, by any meter: energy, processor time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from sparing.core.ranks import everywhere


@runtime_checkable
class StepMeter(Protocol):
    """Counts between ``start`` and ``stop``; a training starts it again after each pause."""

    def start(self) -> None:
        """Begin a window."""

    def stop(self) -> Mapping[str, float]:
        """End the window; returns its values under names that no other entry of a curve has.

        Of several processes the values are summed, except those in the meter's ``whole_machine``,
        a set of names, if it has one: they are process 0's.
        """


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
        """Close an open window, and return all sums, which are over all processes.

        All processes read at the same steps.
        """
        if self._counts:
            window = self._stop()
            shared = set(getattr(self.meter, "whole_machine", ()))
            windows = everywhere(window)
            self._add(
                {
                    name: value if name in shared else sum(one[name] for one in windows)
                    for name, value in windows[0].items()
                    if all(name in one for one in windows)
                }
            )
        return dict(self.spent)

    def close(self) -> None:
        """End an open window of a training that failed, for this process alone."""
        if self._counts:
            self._add(self._stop())

    def _stop(self) -> dict[str, float]:
        assert self.meter is not None
        self._counts = False
        return {name: float(value) for name, value in self.meter.stop().items()}

    def _add(self, window: Mapping[str, float]) -> None:
        if not self._begun and not self.spent:
            self.spent = dict(window)
        else:
            self.spent = {n: v + window[n] for n, v in self.spent.items() if n in window}
        self._begun = True
