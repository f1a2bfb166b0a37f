"""What is known of a task before its data is read: for lists, and for the task itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """A task's metrics, its chance level, licence and source.

    The first of ``metrics`` is the one that a task is judged by. ``chance`` is its value on the
    published test split for the best answer that never changes; None where the data is the user's
    own or drawn anew. ``splits`` says in words what the test split is.
    """

    metrics: tuple[str, ...]
    licence: str
    source: str
    splits: str
    chance: float | None = None

    @property
    def metric(self) -> str:
        """The metric that the task is judged by."""
        return self.metrics[0]
