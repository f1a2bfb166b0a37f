"""One share of the energy and its method: the result of every reader of a counter."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Literal

JOULES_PER_KWH = 3.6e6
EnergyObtained = Literal["measured", "integrated", "estimated"]


@dataclass(frozen=True)
class Component:
    """The energy of one part of the machine during a window.

    ``obtained`` is ``measured`` by an energy counter, ``integrated`` from power samples, or
    ``estimated`` from a stated constant; ``method`` says it in a sentence. Estimates have an
    ``interval``: the reasonable range of the constant, not a spread of repeats.
    """

    name: str
    energy_j: float
    obtained: EnergyObtained
    method: str
    interval: tuple[float, float] | None = None


class Reader(abc.ABC):
    """A source of energy readings.

    ``start`` begins a window; ``poll`` is called every ``poll_every_s`` seconds meanwhile and at
    its end; ``stop`` ends it and returns the components. ``notes`` says what was not available.
    """

    poll_every_s: float
    notes: list[str]

    @abc.abstractmethod
    def start(self) -> None:
        """Begin a window."""

    @abc.abstractmethod
    def poll(self) -> None:
        """Read once within the window."""

    @abc.abstractmethod
    def stop(self) -> list[Component]:
        """End the window."""
