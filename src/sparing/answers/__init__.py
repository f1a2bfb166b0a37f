"""The answers that encoders give, a file for each kind: when two agree, and how they are shown."""

from sparing.answers.base import Answers, Encoded, Finding, Settings
from sparing.answers.kinds import KINDS, Kind, kind_of_model, kind_of_outputs

__all__ = [
    "KINDS",
    "Answers",
    "Encoded",
    "Finding",
    "Kind",
    "Settings",
    "kind_of_model",
    "kind_of_outputs",
]
