"""One share of the energy and how it was obtained: what every reader of a counter gives back."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Literal

JOULES_PER_KWH = 3.6e6
EnergyObtained = Literal["measured", "integrated", "estimated"]


@dataclass(frozen=True)
class Component:
    """The energy of one part of the machine during a window.

    ``obtained``: ``measured`` by an energy counter, ``integrated`` from power samples,
    ``estimated`` from a stated constant; ``method`` says it in a sentence. ``interval`` is there
    for estimates: what the constant may reasonably be, not a spread of repeats.
    """

    name: str
    energy_j: float
    obtained: EnergyObtained
    method: str
    interval: tuple[float, float] | None = None


class Reader(abc.ABC):
    """A source of energy readings.

    ``start`` begins a window; ``poll`` is called every ``poll_every_s`` seconds meanwhile and at
    its end; ``stop`` ends it and gives the components. ``notes`` says what was not available.
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
