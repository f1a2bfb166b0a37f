"""The facts of a task before its data is read: for lists, and for the task itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """A task's metrics, its chance level, licence and source.

    A task is evaluated by the first of ``metrics``. ``chance`` is its value on the published test
    split for the best constant answer. It is None where the data is the user's own or newly
    generated. ``splits`` describes the test split in words.
    """

    metrics: tuple[str, ...]
    licence: str
    source: str
    splits: str
    chance: float | None = None

    @property
    def metric(self) -> str:
        """The metric that the task is evaluated by."""
        return self.metrics[0]
